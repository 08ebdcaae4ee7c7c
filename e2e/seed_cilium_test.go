// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Requirements of cilium/cilium#16602, and what Cilium's operator does instead; see
// docs/from-cilium.md. Reboots are in attack_reboot_test.go and e2e/node.

// strictly makes a gate close as soon as its signals do not hold, as #16602 requires, and
// returns it.
func strictly(ng *v1alpha1.NodeGate) *v1alpha1.NodeGate {
	ng.Spec.Timing.RolloutGraceSeconds = new(int32(0))
	return onRegression(ng)
}

// tainted returns a function that adds the taint to a Node before it is created.
func tainted(taint corev1.Taint) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, taint) }
}

// ciliumTaint returns the taint that Cilium's documentation recommends for kubelets and cloud
// providers.
func ciliumTaint() corev1.Taint {
	return corev1.Taint{Key: keyA, Value: "true", Effect: corev1.TaintEffectNoSchedule}
}

// add adds a taint, or replaces its value, as the controllers of a cloud provider do.
func (k *kubelet) add(taint corev1.Taint) {
	k.Helper()
	k.must(k.editTaints(k.Context(), k.name, "cloud", func(taints []corev1.Taint) []corev1.Taint {
		return append(slices.DeleteFunc(taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }), taint)
	}))
}

// The kubelet registers the node with the taint (--register-with-taints) and the value from
// Cilium's documentation. It is the gate's taint from the beginning, and is removed when the
// agent is ready.
func TestSeedCiliumTaintAtRegistration(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.agent()
	k := e.kubelet("n1")
	if born := k.register(tainted(ciliumTaint())); k.count(keyA) != 1 || !hasTaint(born, keyA) {
		t.Fatalf("the node was created with taints %s, want %s once", keys(born), keyA)
	}
	pod := k.daemonPod(ds)
	k.run(pod, false)
	k.holds("agent", isClosed)
	k.run(pod, true)
	k.becomes("agent", isOpen, keyA)
}

// A cloud provider's controller adds the taint after registration: before the agent is ready,
// after the gate has opened, and on a node that is older than the gate and not a member of it.
// The taint is removed as soon as the agent is ready. Cilium's agent removes the taint only
// when it starts, so that later taints stay forever.
func TestSeedCiliumTaintByTheCloud(t *testing.T) {
	e := newEnv(t)
	old := e.kubelet("old")
	old.register()
	e.waitNextSecond()
	e.startController(0)
	ds := e.agent()
	k := e.kubelet("n1")
	k.register()
	pod, oldPod := k.daemonPod(ds), old.daemonPod(ds)
	k.run(oldPod, true)
	k.run(pod, false)

	k.add(ciliumTaint())
	k.holds("agent", isClosed)
	k.run(pod, true)
	k.becomes("agent", isOpen, keyA)
	k.add(ciliumTaint())
	k.becomes("agent", isOpen, keyA)
	e.must(old.is("agent", isNone, keyA))
	old.add(ciliumTaint())
	old.becomes("agent", isOpen, keyA)
}

// Cilium's operator removes its key with any effect. A gate's taint has one effect, and the
// gate does not remove a taint with the same key and another effect.
func TestSeedCiliumEffect(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.daemonSet("agent")
	ng := newGate("agent", keyA, byDaemonSet("agent"))
	ng.Spec.Taint.Effect = corev1.TaintEffectNoExecute
	ng.Spec.Acknowledge = []v1alpha1.Acknowledgement{v1alpha1.AcknowledgePodEviction}
	e.declare(ng)
	k := e.kubelet("n1")
	evicts := ciliumTaint()
	evicts.Effect = corev1.TaintEffectNoExecute
	k.register(tainted(evicts), tainted(ciliumTaint()))
	k.run(k.daemonPod(ds), true)
	e.eventually("only the taint with the gate's effect is removed", func() error {
		notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule} // added by the API server
		left := slices.DeleteFunc(k.node().Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&notReady) })
		return errUnless(len(left) == 1 && left[0].ToString() == keyA+"=true:NoSchedule", fmt.Sprintf("taints: %v", left))
	})
}

// #16602: "on shutdown, reapply the taint". The gate closes while the agent still runs, as
// soon as its pod is being deleted for any reason. Cilium's operator adds the taint when the
// agent is no longer ready, or never if its pod is not replaced.
func TestSeedCiliumClosesBeforeTheAgentIsGone(t *testing.T) {
	for name, remove := range map[string]func(*env, *appsv1.DaemonSet, *corev1.Pod) error{
		"deleted": func(e *env, _ *appsv1.DaemonSet, pod *corev1.Pod) error { return e.admin.Delete(e.Context(), pod) },
		"evicted": func(e *env, _ *appsv1.DaemonSet, pod *corev1.Pod) error {
			return e.admin.SubResource("eviction").Create(e.Context(), pod, &policyv1.Eviction{})
		},
		"rolled out": func(e *env, ds *appsv1.DaemonSet, pod *corev1.Pod) error {
			ds.Spec.Template.Annotations = map[string]string{"version": "2"}
			if err := e.admin.Update(e.Context(), ds); err != nil {
				return err
			}
			e.daemonSetsObserved() // rolloutGraceSeconds applies to the rollout
			return e.admin.Delete(e.Context(), pod)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.startController(0)
			ds := e.daemonSet("agent")
			ng := strictly(newGate("agent", keyA, byDaemonSet("agent")))
			if name == "rolled out" {
				ng.Spec.Timing.CloseAfterSeconds = nil // the default, two minutes, applies to failures
			}
			e.declare(ng)
			h := e.watchHistory()
			k, pod := e.openNode("n1", ds)

			e.must(remove(e, ds, pod))
			k.becomes("agent", isClosed, keyA) // within the pod's grace period, before the kubelet deletes it
			e.must(e.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
			h.caughtUp()
			closed, deleted := h.closed("n1", keyA)[1], h.deleted[client.ObjectKeyFromObject(pod).String()]
			last := h.lastBefore(pod, deleted)
			if closed.from >= deleted || last.DeletionTimestamp == nil || !last.Status.ContainerStatuses[0].Ready {
				t.Errorf("the gate closed at resource version %d, want before %d, when the agent's pod with this status was deleted: %+v", closed.from, deleted, last.Status)
			}
			k.run(k.daemonPod(ds), true)
			k.becomes("agent", isOpen, keyA)
		})
	}
}

// By default, a gate closes only because of reboots: it stays open without a write while the
// agent restarts. Cilium's operator taints every node during a rollout.
func TestSeedCiliumAgentRestart(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.daemonSet("agent")
	ng := strictly(newGate("agent", keyA, byDaemonSet("agent")))
	ng.Spec.ReclosePolicy = "" // the default, OnReboot
	e.declare(ng)
	k, pod := e.openNode("n1", ds)
	e.must(e.admin.Delete(t.Context(), pod))
	k.holds("agent", isOpen)
	e.must(e.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	k.holds("agent", isOpen)
	k.run(k.daemonPod(ds), true)
	k.holds("agent", isOpen)
	k.wrote(1)
}

// The gate closes on a node that announces its shutdown, while the agent still runs: by the
// message of the kubelet, or by the lifecycle condition of Kubernetes 1.37. When the node
// withdraws the announcement, the gate opens immediately. Cilium's operator waits until the
// agent is not ready.
func TestSeedCiliumNodeShutdown(t *testing.T) {
	const inProgress = string(corev1.NodeGracefulNodeShutdownInProgress)
	for name, c := range map[string]struct{ announce, withdraw func(*kubelet) }{
		"the kubelet's graceful shutdown": {
			func(k *kubelet) { k.report(corev1.ConditionFalse, "[PLEG is not healthy, node is shutting down]") },
			func(k *kubelet) { k.report(corev1.ConditionTrue, "kubelet is posting ready status") },
		},
		"the lifecycle condition": {
			func(k *kubelet) { k.setCondition(inProgress, "True") },
			func(k *kubelet) { k.setCondition(inProgress, "False") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.startController(0)
			ds := e.agent()
			k, _ := e.openNode("n1", ds)
			for _, unrelated := range []corev1.NodeConditionType{
				corev1.NodeDrainInProgress, corev1.NodeDrained, corev1.NodeMaintenancePlanned, corev1.NodeMaintenanceInProgress,
			} {
				k.setCondition(string(unrelated), "True")
			}
			k.holds("agent", isOpen)
			c.announce(k)
			k.becomes("agent", isClosed, keyA)
			if r := k.record("agent"); r.Reason != v1alpha1.ReasonNodeShutdown {
				t.Errorf("closed for %s, want %s", r.Reason, v1alpha1.ReasonNodeShutdown)
			}
			c.withdraw(k)
			k.becomes("agent", isOpen, keyA)
			k.wrote(3)
		})
	}
}
