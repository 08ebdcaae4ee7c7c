// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Features and defects of Istio's node readiness controller (istio-cni-taint); see
// docs/from-istio.md.

// critical returns a gate with keyA that is open while a pod of each of these daemons is ready.
// It closes again one second after one of them is not.
func critical(name string, daemons ...string) *v1alpha1.NodeGate {
	ng := newGate(name, keyA, v1alpha1.SignalSource{})
	ng.Spec.OpenWhen = nil
	for i, daemon := range daemons {
		ng.Spec.OpenWhen = append(ng.Spec.OpenWhen, v1alpha1.Signal{Name: fmt.Sprintf("%s-%d", daemon, i), SignalSource: byPods(daemon)})
	}
	ng.Spec.ReclosePolicy = v1alpha1.RecloseOnRegression
	ng.Spec.Timing.CloseAfterSeconds = new(int32(1))
	ng.Spec.Budget.MaxReclosed = percent("100%")
	return ng
}

// All of several requirements must be met. For two years, Istio's controller considered only
// the last selector, and watched a selector twice that was listed twice.
func TestSeedIstioSeveralCriticalPods(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	cni, dns := e.daemonSet("cni"), e.daemonSet("dns")
	e.declare(critical("critical", "cni", "dns", "cni"))
	first, second := e.kubelet("n1"), e.kubelet("n2")
	first.register()
	second.register()
	first.run(first.daemonPod(cni), true)
	second.run(second.daemonPod(dns), true) // a pod on another node does not count
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
	for name, remove := range map[string]func(k *kubelet, pod *corev1.Pod){
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
			k.must(k.admin.Delete(k.Context(), pod)) // it remains Ready until the kubelet deletes it
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
			remove(k, pod)
			k.becomes("critical", isClosed, keyA)
			// Times in the API have whole seconds.
			if r := k.record("critical"); r.Reason != v1alpha1.ReasonRegression || r.Since.Before(began.Truncate(time.Second).Add(time.Second)) {
				t.Errorf("closed for %s at %s, want %s at least a second after %s", r.Reason, r.Since, v1alpha1.ReasonRegression, began)
			}
			k.run(k.daemonPod(ds), true)
			k.becomes("critical", isOpen, keyA)
			k.wrote(3)
		})
	}
}

// The gate closes because of a pod that was deleted while the controller was down. Istio's
// controller ignored deletions that it detected by a list.
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

// One ready pod satisfies a requirement. Istio's controller tainted the node when any pod was
// deleted or not ready, regardless of the others. Pods without a node are ignored; Istio's
// controller retried each of them fifty times.
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
	other.becomes("critical", isClosed, keyA) // by now, the first node would be closed, too
	if n := closed(); n > 0 {
		t.Errorf("the node had the taint in %d states although a critical pod was ready", n)
	}
	k.run(sibling, false)
	k.becomes("critical", isClosed, keyA)
}

// reportCondition sets a condition of the node, with this time as heartbeat and transition.
func (k *kubelet) reportCondition(conditionType string, status corev1.ConditionStatus, at time.Time) {
	k.Helper()
	k.setConditionTimes(conditionType, status, at, at)
}

// setConditionTimes sets a condition of the node.
func (k *kubelet) setConditionTimes(conditionType string, status corev1.ConditionStatus, heartbeat, transition time.Time) {
	k.Helper()
	k.statusPatch(fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q,"lastHeartbeatTime":%q,"lastTransitionTime":%q}]}}`,
		conditionType, status, heartbeat.UTC().Format(time.RFC3339), transition.UTC().Format(time.RFC3339)))
}

// A node is ready according to its Ready condition. Istio's controller used the condition with
// the newest heartbeat, of whatever type, and did not remove the taint if that was a problem
// detector's condition with status False.
func TestSeedIstioNodeReady(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := critical("critical")
	ng.Spec.OpenWhen = []v1alpha1.Signal{{Name: "ready", SignalSource: v1alpha1.SignalSource{
		Condition: &v1alpha1.ConditionSignal{Type: "Ready", Status: "True"},
	}}}
	e.declare(ng)
	e.kubelet("no-conditions").register(func(n *corev1.Node) { n.Status.Conditions = nil })
	e.waitsFor("critical", "no-conditions", v1alpha1.ReadingMissing)

	k := e.kubelet("n1")
	k.register(func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{ready(corev1.ConditionFalse, "")} })
	e.waitsFor("critical", "n1", v1alpha1.ReadingDiffers)
	now := time.Now()
	k.reportCondition("KernelDeadlock", corev1.ConditionFalse, now.Add(time.Minute))
	k.reportCondition("Ready", corev1.ConditionTrue, now)
	k.becomes("critical", isOpen, keyA)
	k.reportCondition("NetworkUnavailable", corev1.ConditionTrue, now.Add(time.Hour))
	k.settled()
	e.must(k.is("critical", isOpen, keyA))
	k.reportCondition("Ready", corev1.ConditionFalse, now)
	k.becomes("critical", isClosed, keyA)
}

// A condition without a recent heartbeat is unknown: it neither opens nor closes the gate until
// there is a heartbeat.
func TestSeedIstioHeartbeatAge(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := critical("critical")
	ng.Spec.OpenWhen = []v1alpha1.Signal{{Name: "net", SignalSource: v1alpha1.SignalSource{
		Condition: &v1alpha1.ConditionSignal{Type: "NetworkProbed", Status: "True", MaxHeartbeatAgeSeconds: new(int32(600))},
	}}}
	e.declare(ng)
	e.must(e.condition("critical", v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)) // not NoBootEvidence
	k := e.kubelet("n1")
	k.register()
	transition := time.Now().Add(-time.Hour)
	beat := func(status corev1.ConditionStatus, at time.Time) {
		t.Helper()
		k.setConditionTimes("NetworkProbed", status, at, transition)
	}
	beat("True", transition)
	e.waitsFor("critical", "n1", v1alpha1.ReadingStaleHeartbeat)
	beat("True", time.Now()) // only the heartbeat changes
	k.becomes("critical", isOpen, keyA)
	beat("False", transition)
	k.settled()
	e.must(k.is("critical", isOpen, keyA))
	beat("False", time.Now())
	k.becomes("critical", isClosed, keyA)
}

// Nodes on which the critical pods do not run are not selected. Istio's controller tainted
// every node, and some of them forever.
func TestSeedIstioOtherNodes(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := critical("critical", "critical")
	ng.Spec.NodeSelector.MatchLabels = map[string]string{corev1.LabelOSStable: "linux"}
	e.declare(ng)
	if born := e.kubelet("linux").register(); !hasTaint(born, keyA) {
		t.Error("a selected node was created without the taint")
	}
	windows := e.kubelet("windows")
	windows.register(func(n *corev1.Node) { n.Labels[corev1.LabelOSStable] = "windows" })
	windows.settled()
	windows.wrote(0)
	e.must(windows.is("critical", isNone, keyA))
}
