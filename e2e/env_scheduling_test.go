// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/testcluster"
)

// schedulingEnv is a cluster with the real scheduler and the real DaemonSet controller. The
// test simulates the kubelets, and determines when a daemon's pod becomes ready.
type schedulingEnv struct {
	*env
	mu sync.Mutex
	// ready is whether pods that start now become ready.
	ready bool
}

func newSchedulingEnv(t *testing.T) *schedulingEnv {
	t.Helper()
	w := &schedulingEnv{env: newControllersEnv(t, []testcluster.Component{testcluster.ControllerManager, testcluster.Scheduler})}
	w.startKubelets()
	return w
}

// startKubelets runs every pod that is bound to a node, and removes every deleted pod, until
// the test ends.
func (w *schedulingEnv) startKubelets() {
	w.Helper()
	pods, err := w.admin.Watch(w.Context(), &corev1.PodList{})
	w.must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range pods.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && event.Type != watch.Deleted && pod.Spec.NodeName != "" {
				w.syncPod(pod)
			}
		}
	}()
	w.Cleanup(func() { pods.Stop(); <-done })
}

// syncPod performs the kubelet's next action for one pod.
func (w *schedulingEnv) syncPod(pod *corev1.Pod) {
	ctx := context.Background() // also while the test ends
	var err error
	switch {
	case pod.DeletionTimestamp != nil:
		err = w.admin.Delete(ctx, pod, client.GracePeriodSeconds(0))
	case pod.Status.Phase == corev1.PodPending:
		w.mu.Lock()
		defer w.mu.Unlock()
		err = w.runContainers(ctx, pod, w.ready)
	}
	if client.IgnoreNotFound(err) != nil {
		w.Errorf("running pod %s: %v", pod.Name, err)
	}
}

// runContainers reports that the pod runs in new containers, ready or not. It writes the
// whole status without optimistic locking.
func (e *env) runContainers(ctx context.Context, pod *corev1.Pod, ready bool) error {
	before := pod.DeepCopy()
	before.Status = corev1.PodStatus{}
	pod.Status = daemonStatus(ready, newContainerID())
	return e.admin.Status().Patch(ctx, pod, client.MergeFrom(before))
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
			w.must(client.IgnoreNotFound(w.runContainers(w.Context(), p, ready)))
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
	k.register(hasCapacity)
	return k
}

// hasCapacity gives a Node capacity for pods.
func hasCapacity(n *corev1.Node) {
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourcePods: resource.MustParse("50"), corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("8Gi"),
	}
	n.Status.Capacity = n.Status.Allocatable
}

// workPrefix is the prefix of the names of workload pods.
const workPrefix = "work-"

// createWork creates workload pods that may run on any node.
func (w *schedulingEnv) createWork(n int) {
	w.Helper()
	for range n {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, GenerateName: workPrefix, Labels: map[string]string{"work": ""}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "work", Image: "work"}}},
		}
		w.eventually("a ServiceAccount for pods exists", func() error { return w.admin.Create(w.Context(), pod) })
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

// daemonRuns waits until a pod of the DaemonSet with a name other than the given one runs on
// the node, and returns it.
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

// boundTooEarly returns the workload pods that were bound to a node before the API server
// received the controller's last write of the node.
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
		if event.bindsTo(node) && event.Received.Before(&opened) && strings.HasPrefix(event.ObjectRef.Name, workPrefix) {
			early = append(early, event.ObjectRef.Name)
		}
	}
	return early
}

// rollOut changes the DaemonSet's pod template.
func (w *schedulingEnv) rollOut(ds *appsv1.DaemonSet) {
	w.Helper()
	w.edit(ds, func() { ds.Spec.Template.Annotations = map[string]string{"version": "2"} })
}
