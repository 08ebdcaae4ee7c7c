// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// The life of a node with a real scheduler and DaemonSet controller: pods wait for it to
// join, and its daemon is rolled out, deleted and reinstalled.
func TestLifeAmongRealControllers(t *testing.T) {
	w := newSchedulingEnv(t)
	w.startController(0)
	ds := w.daemonSet("agent")
	ng := newGate("agent", keyA, byDaemonSet("agent"))
	ng.Spec.ReclosePolicy = v1alpha1.RecloseOnRegression
	w.declare(ng)
	w.createWork(10)

	n1 := w.schedulableNode("n1")
	first := w.daemonRuns(ds, "n1", "")
	w.must(n1.is("agent", isClosed, keyA))
	w.setReady(true)
	w.opensBeforeWork(n1)

	// The daemon is rolled out, and its pod is deleted. Nothing is written.
	w.setReady(false)
	w.rollOut(ds)
	second := w.daemonRuns(ds, "n1", first.Name)
	w.setReady(true)
	w.must(w.admin.Delete(t.Context(), second))
	third := w.daemonRuns(ds, "n1", second.Name)
	n1.wrote(1)

	// The DaemonSet is replaced by another one with the same name. The old one's pods do not
	// count.
	w.setReady(false)
	w.must(w.admin.Delete(t.Context(), ds))
	w.eventually("the old daemon's pod is deleted", func() error {
		err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(third), &corev1.Pod{})
		return unless(apierrors.IsNotFound(err))
	})
	again := w.daemonSet("agent")
	w.createWork(10)
	n2 := w.schedulableNode("n2")
	w.daemonRuns(again, "n2", "")
	w.must(n2.is("agent", isClosed, keyA))
	w.setReady(true)
	w.opensBeforeWork(n2)
	n1.wrote(1)
}

// opensBeforeWork waits until the gate has opened and all workload pods are bound, and checks
// that the gate opened with one write, and before any pod was bound to the node.
func (w *schedulingEnv) opensBeforeWork(k *kubelet) {
	w.Helper()
	k.becomes("agent", isOpen, keyA)
	w.awaitWorkBound()
	k.wrote(1)
	if early := w.boundTooEarly(k.name); len(early) > 0 {
		w.Errorf("pods %v were bound to node %s before the gate opened", early, k.name)
	}
}

// A gate that closes immediately when its daemon fails stays open during a rollout,
// including the last step, when the last new pod exists but is not ready yet.
func TestRolloutIsNoRegression(t *testing.T) {
	w := newSchedulingEnv(t)
	w.startController(0)
	ds := w.daemonSet("agent")
	w.declare(onRegression(on(newGate("agent", keyA, byDaemonSet("agent")), "gated", "")))
	w.setReady(true)
	w.schedulableNode("other")
	n1 := w.kubelet("n1")
	n1.register(hasCapacity, func(n *corev1.Node) { n.Labels["gated"] = "" })
	n1.becomes("agent", isOpen, keyA)
	first := w.daemonRuns(ds, "n1", "")
	w.must(w.runContainers(t.Context(), first, false))
	n1.becomes("agent", isClosed, keyA) // no rollout is in progress, and there is budget
	w.must(w.runContainers(t.Context(), first, true))
	n1.becomes("agent", isOpen, keyA)
	n1.wrote(3)

	w.newPods(false)
	second := w.replaceInTurn(ds, n1, first)
	w.eventually("the DaemonSet's status reports a complete rollout", func() error {
		w.must(w.admin.Get(t.Context(), client.ObjectKeyFromObject(ds), ds))
		complete := ds.Status.ObservedGeneration == ds.Generation && ds.Status.UpdatedNumberScheduled == ds.Status.DesiredNumberScheduled
		return unless(complete)
	})
	n1.label("touched") // the controller reconciles the node
	w.newPods(true)
	w.settled()
	n1.wrote(3)
	w.must(w.runContainers(t.Context(), second, true))
	n1.label("touched-again")
	w.settled()
	n1.wrote(3)
	w.adopts(n1)

	// The rollout is complete, so the failing daemon closes the gate.
	w.must(w.runContainers(t.Context(), second, false))
	n1.becomes("agent", isClosed, keyA)
}

// adopts waits until a second gate, which waits for the same daemon, adopts the node. This shows
// that the controller has decided about the node while the daemon was ready. Without such a
// decision, a later failure of the daemon would count as a part of the rollout.
func (w *schedulingEnv) adopts(k *kubelet) {
	w.Helper()
	ng := on(newGate("adopts", keyB, byDaemonSet("agent")), "gated", "")
	ng.Spec.ExistingNodes = v1alpha1.ExistingAdopt
	w.declare(ng)
	k.becomes("adopts", isOpen, keyB)
	k.wrote(4)
}

// replaceInTurn rolls out the DaemonSet and returns its new pod on a node, which replaces the
// first one. The node is the second one in turn, and the first pod terminates slowly, so that
// the controller observes the rollout before that pod is deleted, and decides while it
// terminates.
func (w *schedulingEnv) replaceInTurn(ds *appsv1.DaemonSet, k *kubelet, first *corev1.Pod) *corev1.Pod {
	w.Helper()
	// A daemon that is not ready is replaced first. The rollout then waits for the new one.
	other := w.daemonRuns(ds, "other", "")
	w.must(w.runContainers(w.Context(), other, false))
	w.eventually("the DaemonSet's status reports that a daemon is not ready", func() error {
		w.must(w.admin.Get(w.Context(), client.ObjectKeyFromObject(ds), ds))
		return unless(ds.Status.NumberUnavailable == 1)
	})
	w.rollOut(ds)
	next := w.daemonRuns(ds, "other", other.Name)
	w.settled()

	w.edit(first, func() { first.Finalizers = []string{"e2e.nodegate.dev/slow"} })
	w.must(w.runContainers(w.Context(), next, true))
	w.eventually("the daemon's pod terminates", func() error {
		w.must(w.admin.Get(w.Context(), client.ObjectKeyFromObject(first), first))
		return unless(first.DeletionTimestamp != nil)
	})
	w.settled()
	k.wrote(3)
	w.edit(first, func() { first.Finalizers = nil })
	return w.daemonRuns(ds, k.name, first.Name)
}
