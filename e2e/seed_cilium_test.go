// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// What cilium/cilium#16602 asks for, and what Cilium's operator does of it; see
// docs/from-cilium.md. Reboots are in seed_cilium_replay_test.go.

// strictly is a gate that closes as soon as its agent goes away: the policy that
// #16602 asks for.
func strictly(ng *v1alpha1.NodeGate) *v1alpha1.NodeGate {
	ng.Spec.ReclosePolicy = v1alpha1.RecloseOnRegression
	ng.Spec.Timing.CloseAfterSeconds = ptr.To[int32](0)
	ng.Spec.Timing.RolloutGraceSeconds = ptr.To[int32](0)
	return ng
}

// tainted has a Node come with this taint.
func tainted(taint corev1.Taint) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, taint) }
}

// ciliumTaint is as Cilium's pages have kubelets and clouds put it.
func ciliumTaint() corev1.Taint {
	return corev1.Taint{Key: keyA, Value: "true", Effect: corev1.TaintEffectNoSchedule}
}

// add adds a taint as a cloud's controllers do.
func (k *kubelet) add(taint corev1.Taint) {
	k.Helper()
	k.must(k.editTaints(k.Context(), k.name, "cloud", func(taints []corev1.Taint) []corev1.Taint {
		return append(slices.DeleteFunc(taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }), taint)
	}))
}

// The kubelet registers the node with the taint (--register-with-taints), with a
// value as Cilium's pages have it. It is the gate's, from the first moment on,
// with or without the gate's own policy, and goes when the agent is ready.
func TestSeedCiliumTaintAtRegistration(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.agent()
	k := e.kubelet("n1")
	if born := k.register(tainted(ciliumTaint())); k.count(keyA) != 1 || !hasTaint(born, keyA) {
		t.Fatalf("registered with taints %s, want %s once", keys(born), keyA)
	}
	pod := k.daemonPod(ds)
	k.run(pod, false)
	k.holds("agent", isClosed)
	k.run(pod, true)
	k.becomes("agent", isOpen, keyA)
}

// A cloud's controller puts the taint there after registration: while the agent
// is on its way, after the gate has opened, and on a node that is older than the
// gate and was left alone so far. Each time it is lifted once the agent is ready.
// Cilium's agent looked once, at its start, and left late taints there for ever.
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

// Cilium's operator removes its key whatever the effect. A gate has one effect:
// the one that the kubelet registers. Another effect's taint is somebody else's.
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
	e.eventually("the gate's effect is lifted, and no other", func() error {
		if keys(k.node()) != keyA+"=true:NoSchedule,node.kubernetes.io/not-ready:NoSchedule" && keys(k.node()) != keyA+"=true:NoSchedule" {
			return errNotYet
		}
		return nil
	})
}

// #16602: "on shutdown, reapply the taint". The gate closes while the agent still
// runs: as soon as its pod is asked to go, whoever asks. Cilium's operator closes
// when the agent is not ready any more, or never, when its pod is not replaced.
func TestSeedCiliumClosesBeforeTheAgentIsGone(t *testing.T) {
	for name, goes := range map[string]func(*env, *appsv1.DaemonSet, *corev1.Pod) error{
		"deleted": func(e *env, _ *appsv1.DaemonSet, pod *corev1.Pod) error { return e.admin.Delete(e.Context(), pod) },
		"evicted": func(e *env, _ *appsv1.DaemonSet, pod *corev1.Pod) error {
			return e.admin.SubResource("eviction").Create(e.Context(), pod, &policyv1.Eviction{})
		},
		"rolled out": func(e *env, ds *appsv1.DaemonSet, pod *corev1.Pod) error {
			ds.Spec.Template.Annotations = map[string]string{"version": "2"}
			if err := e.admin.Update(e.Context(), ds); err != nil {
				return err
			}
			e.settled() // the rollout is known by now: it is no failure, and has a grace of its own
			return e.admin.Delete(e.Context(), pod)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.startController(0)
			ds := e.daemonSet("agent")
			ng := strictly(newGate("agent", keyA, byDaemonSet("agent")))
			if name == "rolled out" {
				ng.Spec.Timing.CloseAfterSeconds = nil // two minutes: for failures
			}
			e.declare(ng)
			h := e.watchHistory()
			k, pod := e.openNode("n1", ds)

			e.must(goes(e, ds, pod))
			k.becomes("agent", isClosed, keyA) // within the pod's grace; only then does its kubelet end it
			e.must(e.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
			h.caughtUp()
			shut, gone := h.closed("n1", keyA)[1], h.gone[client.ObjectKeyFromObject(pod).String()]
			last := h.lastBefore(pod, gone)
			if shut.from >= gone || last.DeletionTimestamp == nil || !last.Status.ContainerStatuses[0].Ready {
				t.Errorf("closed at %d; the agent's pod was gone at %d, after %+v", shut.from, gone, last.Status)
			}
			k.run(k.daemonPod(ds), true)
			k.becomes("agent", isOpen, keyA)
		})
	}
}

// By default a gate closes for reboots only: an agent that is restarted leaves it
// open, and costs no write. Cilium's operator taints every node of a rollout.
func TestSeedCiliumAgentRestart(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.daemonSet("agent")
	ng := strictly(newGate("agent", keyA, byDaemonSet("agent")))
	ng.Spec.ReclosePolicy = "" // which is OnReboot
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

// A node that announces its shutdown is closed while its agent still runs: by the
// kubelet's own words, or by the lifecycle condition that Kubernetes 1.37 knows.
// When the announcement is taken back, it opens at once. Cilium's operator waits
// for the agent to be gone.
func TestSeedCiliumNodeShutdown(t *testing.T) {
	const inProgress = string(corev1.NodeGracefulNodeShutdownInProgress)
	for name, c := range map[string]struct{ announce, takeBack func(*kubelet) }{
		"the kubelet's graceful shutdown": {
			func(k *kubelet) { k.report(corev1.ConditionFalse, "[PLEG is not healthy, node is shutting down]") },
			func(k *kubelet) { k.report(corev1.ConditionTrue, "kubelet is posting ready status") },
		},
		"the lifecycle condition": {
			func(k *kubelet) { k.has(inProgress, "True") },
			func(k *kubelet) { k.has(inProgress, "False") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.startController(0)
			ds := e.agent()
			k, _ := e.openNode("n1", ds)
			for _, no := range []corev1.NodeConditionType{
				corev1.NodeDrainInProgress, corev1.NodeDrained, corev1.NodeMaintenancePlanned, corev1.NodeMaintenanceInProgress,
			} {
				k.has(string(no), "True")
			}
			k.holds("agent", isOpen)
			c.announce(k)
			k.becomes("agent", isClosed, keyA)
			if r := k.record("agent"); r.Reason != v1alpha1.ReasonNodeShutdown {
				t.Errorf("closed for %s, want %s", r.Reason, v1alpha1.ReasonNodeShutdown)
			}
			c.takeBack(k)
			k.becomes("agent", isOpen, keyA)
			k.wrote(3)
		})
	}
}
