// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// What nodetaintshandler's users suffered from. Which defects are shown
// elsewhere is in docs/from-nodetaintshandler.md.

// There a day-old pod of the former machine, with the annotation still on,
// opened the new one's gate at once.
func TestSeedNodetaintshandlerPodOfTheFormerMachine(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	ds := e.daemonSet("init")
	e.declare(newGate("init", keyA, initPods("init", v1alpha1.ReadyByAnnotation)))
	k := e.registered("n1")[0]
	pod := k.daemonPod(ds)
	k.annotate(pod, true)
	k.becomes("init", isOpen, keyA)

	e.must(e.admin.Delete(t.Context(), k.node()))
	e.waitNextSecond()
	k = e.registered("n1")[0] // another machine takes the name
	e.waitsFor("init", "n1", v1alpha1.ReadingStaleAnnotation)
	stop()
	e.startController(time.Hour) // time does not make it true
	e.settled()
	e.must(k.is("init", isClosed, keyA))
	k.run(pod, true) // nor do new containers
	e.settled()
	e.must(k.is("init", isClosed, keyA))

	second := k.daemonPod(ds)
	e.must(e.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	k.annotate(second, true)
	k.becomes("init", isOpen, keyA)
}

// There a reboot changed nothing. Here the gate closes, and an annotation that
// the pod kept over the reboot does not open it before the pod's program has
// taken it away and set it anew.
func TestSeedNodetaintshandlerAnnotationKeptOverReboot(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.daemonSet("init")
	e.declare(newGate("init", keyA, initPods("init", v1alpha1.ReadyByAnnotation)))
	k := e.registered("n1")[0]
	pod := k.daemonPod(ds)
	k.run(pod, true)
	k.annotate(pod, true)
	k.becomes("init", isOpen, keyA)
	k.reboot()
	k.becomes("init", isClosed, keyA)
	k.run(pod, true)
	e.waitsFor("init", "n1", v1alpha1.ReadingStaleAnnotation)
	e.settled()
	e.must(k.is("init", isClosed, keyA))
	k.annotate(pod, false)
	k.waitNextSecond() // of writes, the API server keeps the second
	k.annotate(pod, true)
	k.becomes("init", isOpen, keyA)
}

// There a kubelet that registered with the key and another value was refused:
// the webhook appended a second taint of the same key and effect.
func TestSeedNodetaintshandlerTaintOfAnotherValueAtRegistration(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := newGate("init", keyA, byLabel("ready"))
	ng.Spec.Taint.Value = "wait"
	e.declare(ng)
	k := e.kubelet("n1")
	k.register(func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: keyA, Value: "other", Effect: corev1.TaintEffectNoSchedule}}
	})
	e.eventually("the taint has the gate's value, once", func() error {
		if k.count(keyA) != 1 || !strings.Contains(keys(k.node()), keyA+"=wait:NoSchedule") {
			return fmt.Errorf("taints: %s", keys(k.node()))
		}
		return nil
	})
	k.label("ready")
	k.becomes("init", isOpen, keyA)
}

// There one init pod was enough, whatever others there were.
func TestSeedNodetaintshandlerSeveralInitDaemonSets(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	images, probe := e.daemonSet("images"), e.daemonSet("probe")
	ng := newGate("init", keyA, initPods("images", v1alpha1.ReadyByEither))
	ng.Spec.OpenWhen[0].Name = "images"
	ng.Spec.OpenWhen = append(ng.Spec.OpenWhen, v1alpha1.Signal{Name: "probe", SignalSource: initPods("probe", v1alpha1.ReadyByCondition)})
	e.declare(ng)
	k := e.registered("n1")[0]
	e.waitsFor("init", "n1", v1alpha1.ReadingPodMissing)
	k.annotate(k.daemonPod(images), true)
	pod := k.daemonPod(probe)
	e.waitsFor("init", "n1", v1alpha1.ReadingPodNotReady)
	if w := e.waitingMessage("init", "n1"); w.Signal != "probe" {
		t.Errorf("waits for %+v", w)
	}
	e.must(k.is("init", isClosed, keyA))
	k.run(pod, true)
	k.becomes("init", isOpen, keyA)
	k.wrote(1)
}

// There the taint went although the node itself was not ready.
func TestSeedNodetaintshandlerNodeNotReady(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.daemonSet("init")
	ng := newGate("init", keyA, initPods("init", v1alpha1.ReadyByCondition))
	ng.Spec.OpenWhen = append(ng.Spec.OpenWhen, v1alpha1.Signal{Name: "node", SignalSource: v1alpha1.SignalSource{
		Condition: &v1alpha1.ConditionSignal{Type: "Ready", Status: "True"},
	}})
	e.declare(ng)
	k := e.kubelet("n1")
	k.register(func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{ready(corev1.ConditionFalse, "starting")}
	})
	k.run(k.daemonPod(ds), true)
	e.waitsFor("init", "n1", v1alpha1.ReadingDiffers)
	k.becomeUnreachable()
	e.waitsFor("init", "n1", v1alpha1.ReadingNodeSilent) // without any such signal, too
	k.report(corev1.ConditionTrue, "")
	k.becomes("init", isOpen, keyA)
}

// There each pod event, and each pod each 30 seconds, cost a GET of its node;
// above 150 nodes that was never caught up with. And a container of it patched
// every DaemonSet of kube-system at each of its restarts.
func TestSeedNodetaintshandlerNoRequestPerEvent(t *testing.T) {
	const fleet = 20
	e := newEnv(t)
	seen := len(e.audit())
	e.startController(0)
	ds := e.daemonSet("init")
	e.declare(newGate("init", keyA, initPods("init", v1alpha1.ReadyByEither)))
	var nodes []*kubelet
	var pods []*corev1.Pod
	for i := range fleet {
		k := e.kubelet(fmt.Sprint("n", i))
		k.register()
		pod := k.daemonPod(ds)
		k.run(pod, true)
		nodes, pods = append(nodes, k), append(pods, pod)
	}
	for _, k := range nodes {
		k.becomes("init", isOpen, keyA)
	}
	settled := len(e.audit())
	for i, k := range nodes {
		k.annotate(pods[i], true)
		k.report(corev1.ConditionTrue, "")
	}
	e.settled()
	count := func(from int, does func(*auditEvent) bool) (n int) {
		for _, event := range e.audit()[from:] {
			if event.User.Username == installationUser && does(&event) {
				n++
			}
		}
		return n
	}
	ofFleet := func(event *auditEvent, verb string) bool {
		return event.ObjectRef.Resource == "nodes" && event.Verb == verb && strings.HasPrefix(event.ObjectRef.Name, "n")
	}
	if n := count(seen, func(event *auditEvent) bool { return ofFleet(event, "get") }); n > 0 {
		t.Errorf("nodegate read nodes %d times", n)
	}
	if n := count(seen, func(event *auditEvent) bool { return ofFleet(event, "patch") && event.ResponseStatus.Code == 200 }); n != fleet {
		t.Errorf("nodegate wrote nodes %d times, want once for each of %d", n, fleet)
	}
	if n := count(settled, func(event *auditEvent) bool { return ofFleet(event, "patch") }); n > 0 {
		t.Errorf("nodegate wrote nodes %d times although nothing had changed", n)
	}
	if n := count(seen, func(event *auditEvent) bool {
		return event.ObjectRef.Resource == "daemonsets" && event.Verb != "list" && event.Verb != "watch"
	}); n > 0 {
		t.Errorf("nodegate touched DaemonSets %d times", n)
	}
}
