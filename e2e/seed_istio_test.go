// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Features and defects of Istio's node readiness controller (istio-cni-taint); see
// docs/from-istio.md.

// critical returns a gate on keyA that is open while a pod of each of these
// daemons is ready, and closes again when that has not been so for a second.
func critical(name string, daemons ...string) *v1alpha1.NodeGate {
	ng := newGate(name, keyA, v1alpha1.SignalSource{})
	ng.Spec.OpenWhen = nil
	for i, daemon := range daemons {
		ng.Spec.OpenWhen = append(ng.Spec.OpenWhen, v1alpha1.Signal{Name: fmt.Sprintf("%s-%d", daemon, i), SignalSource: byPods(daemon)})
	}
	ng.Spec.ReclosePolicy = v1alpha1.RecloseOnRegression
	ng.Spec.Timing.CloseAfterSeconds = ptr.To[int32](1)
	ng.Spec.Budget.MaxReclosed = percent("100%")
	return ng
}

// Several requirements, all of which must be met: with more than one, Istio's
// controller looked at the last selector only for two years, and one that was
// listed twice was watched twice and believed once.
func TestSeedIstioSeveralCriticalPods(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	cni, dns := e.daemonSet("cni"), e.daemonSet("dns")
	e.declare(critical("critical", "cni", "dns", "cni"))
	first, second := e.kubelet("n1"), e.kubelet("n2")
	first.register()
	second.register()
	first.run(first.daemonPod(cni), true)
	second.run(second.daemonPod(dns), true) // what is ready on another node does not count
	e.waitsFor("critical", "n1", v1alpha1.ReadingPodMissing)
	e.waitsFor("critical", "n2", v1alpha1.ReadingPodMissing)
	e.must(first.is("critical", isClosed, keyA))

	pod := first.daemonPod(dns)
	first.run(pod, false)
	e.waitsFor("critical", "n1", v1alpha1.ReadingPodNotReady)
	first.run(pod, true)
	first.becomes("critical", isOpen, keyA)
	first.run(pod, false)
	first.becomes("critical", isClosed, keyA)
	e.must(second.is("critical", isClosed, keyA))
}

// However a critical pod disappears, the node is tainted again after closeAfterSeconds, also
// if nodegate was down. Istio's controller tainted it immediately after every event, and not
// at all if it missed the deletion.
func TestSeedIstioPodGoes(t *testing.T) {
	for name, goes := range map[string]func(k *kubelet, pod *corev1.Pod){
		"deleted": func(k *kubelet, pod *corev1.Pod) {
			k.must(k.admin.Delete(k.Context(), pod, client.GracePeriodSeconds(0)))
		},
		"evicted": func(k *kubelet, pod *corev1.Pod) {
			k.must(k.admin.SubResource("eviction").Create(k.Context(), pod, &policyv1.Eviction{}))
		},
		"crashed": func(k *kubelet, pod *corev1.Pod) {
			k.run(pod, false)
		},
		"terminating": func(k *kubelet, pod *corev1.Pod) {
			k.must(k.admin.Delete(k.Context(), pod)) // it goes on being ready until the kubelet is done
		},
		"failed": func(k *kubelet, pod *corev1.Pod) {
			pod.Status.Phase = corev1.PodFailed
			k.must(k.admin.Status().Update(k.Context(), pod))
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.startController(0)
			ds := e.daemonSet("critical")
			e.declare(critical("critical", "critical"))
			k, pod := e.openNode("n1", ds)
			began := time.Now()
			goes(k, pod)
			k.becomes("critical", isClosed, keyA)
			// The API tells times in whole seconds.
			if r := k.record("critical"); r.Reason != v1alpha1.ReasonRegression || r.Since.Before(began.Truncate(time.Second).Add(time.Second)) {
				t.Errorf("closed for %s at %s, lost at %s", r.Reason, r.Since, began)
			}
			k.run(k.daemonPod(ds), true)
			k.becomes("critical", isOpen, keyA)
			k.wrote(3)
		})
	}
}

// A pod that was deleted while the controller was away is missed all the same;
// Istio's controller dropped what it learned of by a list.
func TestSeedIstioDeletionNobodySaw(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	ds := e.daemonSet("critical")
	e.declare(critical("critical", "critical"))
	k, pod := e.openNode("n1", ds)
	stop()
	e.must(e.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	e.startController(0)
	k.becomes("critical", isClosed, keyA)
}

// One ready pod of a requirement will do; Istio's controller tainted the node
// when any of them went or was not ready, without a look at the others. Pods
// that have no node yet are nobody's business; it retried each fifty times.
func TestSeedIstioSiblingPods(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.daemonSet("critical")
	e.declare(critical("critical", "critical"))
	k, pod := e.openNode("n1", ds)
	sibling := k.daemonPod(ds)
	k.run(sibling, true)
	pending := newDaemonPod(ds, "")
	e.must(e.admin.Create(t.Context(), pending))
	closed := e.watchFor(func(n *corev1.Node) bool { return n.Name == "n1" && hasTaint(n, keyA) })
	e.must(e.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	k.settled()
	other, last := e.openNode("n2", ds)
	e.must(e.admin.Delete(t.Context(), last, client.GracePeriodSeconds(0)))
	other.becomes("critical", isClosed, keyA) // by now the first would be too
	if n := closed(); n > 0 {
		t.Errorf("the node was seen tainted %d times, although a critical pod was ready", n)
	}
	k.run(sibling, false)
	k.becomes("critical", isClosed, keyA)
}

// reports sets a condition of the node, heartbeat and all.
func (k *kubelet) reports(conditionType string, status corev1.ConditionStatus, heartbeat time.Time) {
	k.Helper()
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q,"lastHeartbeatTime":%q,"lastTransitionTime":%q}]}}`,
		conditionType, status, heartbeat.UTC().Format(time.RFC3339), heartbeat.UTC().Format(time.RFC3339))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.name}}
	k.must(k.admin.Status().Patch(k.Context(), node, client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
}

// Whether a node is ready is told by its Ready condition. Istio's controller
// took the condition with the newest heartbeat, whatever it was, and left nodes
// tainted for a problem detector's "no problem".
func TestSeedIstioNodeReady(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := critical("critical")
	ng.Spec.OpenWhen = []v1alpha1.Signal{{Name: "ready", SignalSource: v1alpha1.SignalSource{
		Condition: &v1alpha1.ConditionSignal{Type: "Ready", Status: "True"},
	}}}
	e.declare(ng)
	bare := e.kubelet("bare")
	bare.register(func(n *corev1.Node) { n.Status.Conditions = nil })
	e.waitsFor("critical", "bare", v1alpha1.ReadingMissing)

	k := e.kubelet("n1")
	k.register(func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{ready(corev1.ConditionFalse, "")} })
	e.waitsFor("critical", "n1", v1alpha1.ReadingDiffers)
	now := time.Now()
	k.reports("KernelDeadlock", corev1.ConditionFalse, now.Add(time.Minute))
	k.reports("Ready", corev1.ConditionTrue, now)
	k.becomes("critical", isOpen, keyA)
	k.reports("NetworkUnavailable", corev1.ConditionTrue, now.Add(time.Hour))
	k.settled()
	e.must(k.is("critical", isOpen, keyA))
	k.reports("Ready", corev1.ConditionFalse, now)
	k.becomes("critical", isClosed, keyA)
}

// A condition that nobody has confirmed lately is unknown: it does not open, nor
// close, until there is a heartbeat.
func TestSeedIstioHeartbeatAge(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := critical("critical")
	ng.Spec.OpenWhen = []v1alpha1.Signal{{Name: "net", SignalSource: v1alpha1.SignalSource{
		Condition: &v1alpha1.ConditionSignal{Type: "NetworkProbed", Status: "True", MaxHeartbeatAgeSeconds: ptr.To[int32](600)},
	}}}
	e.declare(ng)
	e.must(e.condition("critical", v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)) // it proves the boot
	k := e.kubelet("n1")
	k.register()
	transition := time.Now().Add(-time.Hour)
	beat := func(status corev1.ConditionStatus, at time.Time) {
		t.Helper()
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"NetworkProbed","status":%q,"lastHeartbeatTime":%q,"lastTransitionTime":%q}]}}`,
			status, at.UTC().Format(time.RFC3339), transition.UTC().Format(time.RFC3339))
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.name}}
		e.must(e.admin.Status().Patch(t.Context(), node, client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
	}
	beat("True", transition)
	e.waitsFor("critical", "n1", v1alpha1.ReadingStaleHeartbeat)
	beat("True", time.Now()) // a heartbeat is all that changes
	k.becomes("critical", isOpen, keyA)
	beat("False", transition)
	k.settled()
	e.must(k.is("critical", isOpen, keyA))
	beat("False", time.Now())
	k.becomes("critical", isClosed, keyA)
}

// Nodes where the critical pods do not run are left alone; Istio's controller
// tainted every node, and some for ever.
func TestSeedIstioOtherNodes(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := critical("critical", "critical")
	ng.Spec.NodeSelector.MatchLabels = map[string]string{corev1.LabelOSStable: "linux"}
	e.declare(ng)
	if born := e.kubelet("linux").register(); !hasTaint(born, keyA) {
		t.Error("a node that is selected was born untainted")
	}
	windows := e.kubelet("windows")
	windows.register(func(n *corev1.Node) { n.Labels[corev1.LabelOSStable] = "windows" })
	windows.settled()
	windows.wrote(0)
	e.must(windows.is("critical", isNone, keyA))
}
