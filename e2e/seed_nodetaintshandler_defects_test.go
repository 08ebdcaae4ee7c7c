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

// Defects of nodetaintshandler. docs/from-nodetaintshandler.md also names tests in other files.

// An annotated pod from before a Node was recreated does not open the gate on the new Node. In
// nodetaintshandler, such a pod opened it immediately.
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
	k = e.registered("n1")[0] // another machine with the same name
	e.waitsFor("init", "n1", v1alpha1.ReadingStaleAnnotation)
	stop()
	e.startReconciled(time.Hour, "init", 1) // the annotation does not count after an hour either
	e.must(k.is("init", isClosed, keyA))
	k.run(pod, true) // nor with new containers
	e.settled()
	e.must(k.is("init", isClosed, keyA))

	second := k.daemonPod(ds)
	e.must(e.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	k.annotate(second, true)
	k.becomes("init", isOpen, keyA)
}

// The gate closes because of a reboot. An annotation from before the reboot opens it only after
// the pod's program has removed and set it again. nodetaintshandler ignored reboots.
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
	k.waitNextSecond() // managedFields has whole seconds
	k.annotate(pod, true)
	k.becomes("init", isOpen, keyA)
}

// If a kubelet registers with the key and another value, the gate corrects the value.
// nodetaintshandler's webhook added a second taint with the same key and effect, so that the
// API server rejected the node.
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

// All init DaemonSets must be ready. In nodetaintshandler, one init pod was sufficient.
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
		t.Errorf("waiting: %+v, want signal probe", w)
	}
	e.must(k.is("init", isClosed, keyA))
	k.run(pod, true)
	k.becomes("init", isOpen, keyA)
	k.wrote(1)
}

// The gate can require that the node is Ready. nodetaintshandler removed its taint in any case.
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
	e.waitsFor("init", "n1", v1alpha1.ReadingNodeSilent) // even without a signal on the condition
	k.report(corev1.ConditionTrue, "")
	k.becomes("init", isOpen, keyA)
}

// Events that change no fact cause no requests. In nodetaintshandler, every event of a pod, and
// every pod every 30 seconds, caused a GET of its node, for which it was too slow with more than
// 150 nodes. One of its containers patched every DaemonSet in kube-system whenever it started.
func TestSeedNodetaintshandlerNoRequestPerEvent(t *testing.T) {
	const fleet = 20
	e := newEnv(t)
	begin := len(e.audit())
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
		k.wrote(1)
	}
	opened := len(e.audit())
	for i, k := range nodes {
		k.annotate(pods[i], true)
		k.report(corev1.ConditionTrue, "")
	}
	e.settled()
	e.podsObserved(ds)
	for _, k := range nodes {
		k.wrote(1)
	}
	count := func(from int, matches func(*auditEvent) bool) (n int) {
		for _, event := range e.audit()[from:] {
			if event.User.Username == installationUser && matches(&event) {
				n++
			}
		}
		return n
	}
	ofFleet := func(event *auditEvent, verb string) bool {
		return event.ObjectRef.Resource == "nodes" && event.Verb == verb && strings.HasPrefix(event.ObjectRef.Name, "n")
	}
	if n := count(begin, func(event *auditEvent) bool { return ofFleet(event, "get") }); n > 0 {
		t.Errorf("nodegate read nodes %d times, want 0", n)
	}
	if n := count(opened, func(event *auditEvent) bool { return ofFleet(event, "patch") }); n > 0 {
		t.Errorf("nodegate patched nodes %d times although no fact had changed", n)
	}
	if n := count(begin, func(event *auditEvent) bool {
		return event.ObjectRef.Resource == "daemonsets" && event.Verb != "list" && event.Verb != "watch"
	}); n > 0 {
		t.Errorf("nodegate sent %d requests for DaemonSets other than list and watch", n)
	}
}
