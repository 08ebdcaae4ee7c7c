// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// schedulingEnv is a cluster with the real scheduler and the real DaemonSet controller.
// The test simulates the machines, and determines when a daemon's pod becomes ready.
type schedulingEnv struct {
	*env
	mu sync.Mutex
	// ready tells whether pods that start now become ready.
	ready bool
}

func newSchedulingEnv(t *testing.T) *schedulingEnv {
	t.Helper()
	clustertest.SkipIfShort(t)
	clustertest.SkipWithoutMutatingPolicies(t)
	t.Parallel() // it has a cluster of its own
	c, err := testcluster.Start(t.Context(), testcluster.Options{
		Audit: true, Components: []testcluster.Component{testcluster.ControllerManager, testcluster.Scheduler},
	})
	if err != nil {
		t.Fatalf("starting a cluster: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Err(), c.Stop()); err != nil {
			t.Errorf("stopping the cluster: %v", err)
		}
	})
	w := &schedulingEnv{env: &env{T: t, cluster: c, admin: newClient(t, c)}}
	w.must(w.apply(t.Context()))
	w.must(w.awaitPolicies(t.Context()))
	w.must(w.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: daemonNamespace}}))
	w.startMachines()
	return w
}

// startMachines runs every pod that is bound to a node, and removes every deleted pod,
// until the test ends.
func (w *schedulingEnv) startMachines() {
	w.Helper()
	pods, err := w.admin.Watch(w.Context(), &corev1.PodList{})
	w.must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range pods.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && event.Type != watch.Deleted && pod.Spec.NodeName != "" {
				w.machine(pod)
			}
		}
	}()
	w.Cleanup(func() { pods.Stop(); <-done })
}

// machine performs the next action of the node for one pod.
func (w *schedulingEnv) machine(pod *corev1.Pod) {
	ctx := context.Background() // also while the test ends
	var err error
	switch {
	case pod.DeletionTimestamp != nil:
		err = w.admin.Delete(ctx, pod, client.GracePeriodSeconds(0))
	case pod.Status.Phase == corev1.PodPending:
		w.mu.Lock()
		defer w.mu.Unlock()
		err = w.start(ctx, pod, w.ready)
	}
	if client.IgnoreNotFound(err) != nil {
		w.Errorf("running pod %s: %v", pod.Name, err)
	}
}

func (w *schedulingEnv) start(ctx context.Context, pod *corev1.Pod, ready bool) error {
	before := pod.DeepCopy()
	before.Status = corev1.PodStatus{} // so that all of it is written
	pod.Status = daemonStatus(ready, "containerd://"+string(uuid.NewUUID()))
	return w.admin.Status().Patch(ctx, pod, client.MergeFrom(before))
}

// setReady sets whether existing and future pods are ready.
func (w *schedulingEnv) setReady(ready bool) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready = ready
	var pods corev1.PodList
	w.must(w.admin.List(w.Context(), &pods))
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			w.must(client.IgnoreNotFound(w.start(w.Context(), p, ready)))
		}
	}
}

// newPods sets whether future pods become ready.
func (w *schedulingEnv) newPods(ready bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready = ready
}

// schedulableNode registers a node with capacity for pods.
func (w *schedulingEnv) schedulableNode(name string) *kubelet {
	w.Helper()
	k := w.kubelet(name)
	k.register(func(n *corev1.Node) {
		n.Status.Allocatable = corev1.ResourceList{
			corev1.ResourcePods: resource.MustParse("50"), corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("8Gi"),
		}
		n.Status.Capacity = n.Status.Allocatable
	})
	return k
}

// createWork creates pods that may run on any node.
func (w *schedulingEnv) createWork(n int) {
	w.Helper()
	for range n {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, GenerateName: "work-", Labels: map[string]string{"work": ""}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "work", Image: "work"}}},
		}
		w.eventually("there is a ServiceAccount for pods", func() error { return w.admin.Create(w.Context(), pod) })
	}
}

// awaitWorkBound waits until all workload pods are bound.
func (w *schedulingEnv) awaitWorkBound() {
	w.Helper()
	w.eventually("all workload pods are bound", func() error {
		var pods corev1.PodList
		w.must(w.admin.List(w.Context(), &pods, client.MatchingLabels{"work": ""}))
		for i := range pods.Items {
			if pods.Items[i].Spec.NodeName == "" {
				return fmt.Errorf("pod %s is not bound", pods.Items[i].Name)
			}
		}
		return nil
	})
}

// daemonRuns waits until the DaemonSet has a pod on the node other than the one
// named, and returns it.
func (w *schedulingEnv) daemonRuns(ds *appsv1.DaemonSet, node, other string) *corev1.Pod {
	w.Helper()
	var found *corev1.Pod
	w.eventually(fmt.Sprintf("%s runs on node %s", ds.Name, node), func() error {
		var pods corev1.PodList
		w.must(w.admin.List(w.Context(), &pods, client.InNamespace(ds.Namespace), client.MatchingLabels(ds.Spec.Selector.MatchLabels)))
		for i := range pods.Items {
			p := &pods.Items[i]
			if p.Spec.NodeName == node && p.Name != other && metav1.IsControlledBy(p, ds) && p.Status.Phase == corev1.PodRunning {
				found = p
				return nil
			}
		}
		return errNotYet
	})
	return found
}

// boundTooEarly returns the workload pods that were bound to a node before
// nodegate asked for its last change there, as the API server has it.
func (w *schedulingEnv) boundTooEarly(node string) (early []string) {
	w.Helper()
	events := w.audit()
	var opened metav1.MicroTime
	for _, event := range events {
		if ref := event.ObjectRef; ref.Resource == "nodes" && ref.Name == node && event.Verb == "patch" && event.User.Username == installationUser {
			opened = event.Received
		}
	}
	for _, event := range events {
		ref := event.ObjectRef
		if ref.Subresource == "binding" && event.bindsTo(node) && event.Received.Before(&opened) && len(ref.Name) > 5 && ref.Name[:5] == "work-" {
			early = append(early, ref.Name)
		}
	}
	return early
}

// rollOut gives the DaemonSet another pod template.
func (w *schedulingEnv) rollOut(ds *appsv1.DaemonSet) {
	w.Helper()
	w.edit(ds, func() { ds.Spec.Template.Annotations = map[string]string{"version": "2"} })
}

// The life of a node with a real scheduler and DaemonSet controller: pods wait for it to
// join, and its daemon is rolled out, fails, and is reinstalled.
func TestLifeAmongRealControllers(t *testing.T) {
	w := newSchedulingEnv(t)
	w.startController(0)
	ds := w.daemonSet("agent")
	gate := newGate("agent", keyA, byDaemonSet("agent"))
	gate.Spec.ReclosePolicy = v1alpha1.RecloseOnRegression
	w.declare(gate)
	w.createWork(10)

	n1 := w.schedulableNode("n1")
	first := w.daemonRuns(ds, "n1", "")
	w.must(n1.is("agent", isClosed, keyA))
	w.setReady(true)
	w.awaitWorkBound()
	n1.becomes("agent", isOpen, keyA)
	n1.wrote(1)
	if early := w.boundTooEarly("n1"); len(early) > 0 {
		t.Errorf("pods %v were bound before the gate opened", early)
	}

	// The daemon's own rollout, its death, and 0 writes.
	w.setReady(false)
	w.rollOut(ds)
	second := w.daemonRuns(ds, "n1", first.Name)
	w.setReady(true)
	w.must(w.admin.Delete(t.Context(), second))
	third := w.daemonRuns(ds, "n1", second.Name)
	n1.wrote(1)

	// A DaemonSet of the same name: what the old one's pods say does not count.
	w.setReady(false)
	w.must(w.admin.Delete(t.Context(), ds))
	w.eventually("the old daemon is gone", func() error {
		if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(third), &corev1.Pod{}); err == nil {
			return errNotYet
		}
		return nil
	})
	again := w.daemonSet("agent")
	w.createWork(10)
	n2 := w.schedulableNode("n2")
	w.daemonRuns(again, "n2", "")
	w.must(n2.is("agent", isClosed, keyA))
	w.setReady(true)
	n2.becomes("agent", isOpen, keyA)
	w.awaitWorkBound()
	n2.wrote(1)
	n1.wrote(1)
	if early := w.boundTooEarly("n2"); len(early) > 0 {
		t.Errorf("pods %v were bound before the gate opened", early)
	}
}

// A gate that closes immediately when its daemon fails stays open during a rollout,
// including the last step, when the last new pod exists but is not ready yet.
func TestRolloutIsNoRegression(t *testing.T) {
	w := newSchedulingEnv(t)
	w.startController(0)
	ds := w.daemonSet("agent")
	gate := newGate("agent", keyA, byDaemonSet("agent"))
	gate.Spec.ReclosePolicy = v1alpha1.RecloseOnRegression
	gate.Spec.Timing.CloseAfterSeconds = ptr.To[int32](0)
	w.declare(gate)
	w.setReady(true)
	n1 := w.schedulableNode("n1")
	n1.becomes("agent", isOpen, keyA)
	first := w.daemonRuns(ds, "n1", "")
	w.must(w.start(t.Context(), first, false))
	n1.becomes("agent", isClosed, keyA) // failing is failing, and there is budget
	w.must(w.start(t.Context(), first, true))
	n1.becomes("agent", isOpen, keyA)
	n1.wrote(3)

	w.newPods(false)
	w.rollOut(ds)
	second := w.daemonRuns(ds, "n1", first.Name)
	w.eventually("the rollout looks finished", func() error {
		w.must(w.admin.Get(t.Context(), client.ObjectKeyFromObject(ds), ds))
		if ds.Status.ObservedGeneration != ds.Generation || ds.Status.UpdatedNumberScheduled < ds.Status.DesiredNumberScheduled {
			return errNotYet
		}
		return nil
	})
	n1.label("touched") // whatever makes nodegate look again
	w.newPods(true)
	w.settled()
	n1.wrote(3)
	w.must(w.start(t.Context(), second, true))
	n1.label("touched-again")
	w.settled()
	n1.wrote(3)

	// With the rollout over, failing is failing again.
	w.must(w.start(t.Context(), second, false))
	n1.becomes("agent", isClosed, keyA)
}
