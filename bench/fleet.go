// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
)

// A fleet is the nodes, with one daemon's pod on each. There are no kubelets:
// only what the benchmark writes changes.
type fleet struct {
	client kubernetes.Interface
	ds     *appsv1.DaemonSet
	nodes  []string
}

// newFleet creates nodes, which the API server closes, with pods that are not
// ready.
func newFleet(ctx context.Context, client kubernetes.Interface, count int) (*fleet, error) {
	f := &fleet{client: client}
	sets := client.AppsV1().DaemonSets(namespace)
	ds, err := sets.Get(ctx, daemon, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the daemon: %w", err)
	}
	ds.Status.ObservedGeneration = ds.Generation // no rollout is under way
	if f.ds, err = sets.UpdateStatus(ctx, ds, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("reporting the daemon: %w", err)
	}
	for i := range count {
		f.nodes = append(f.nodes, nodeName(i))
	}
	return f, inParallel(f.nodes, func(_ int, node string) error { return f.add(ctx, node) })
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// inParallel does something for each node, several at a time, and returns the
// first error.
func inParallel(nodes []string, do func(int, string) error) error {
	var group sync.WaitGroup
	var once sync.Once
	var first error
	for at := range slices.Chunk(indices(len(nodes)), max(1, (len(nodes)+workers-1)/workers)) {
		group.Go(func() {
			for _, i := range at {
				if err := do(i, nodes[i]); err != nil {
					once.Do(func() { first = err })
				}
			}
		})
	}
	group.Wait()
	return first
}

func indices(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func (f *fleet) add(ctx context.Context, name string) error {
	now := metav1.Now()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{BootID: string(uuid.NewUUID())},
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now},
			},
		},
	}
	node, err := f.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating node %s: %w", name, err)
	}
	if !hasTaint(node) {
		return fmt.Errorf("creating node %s: the API server did not close it", name)
	}
	if err := f.dropOtherTaints(ctx, node); err != nil {
		return err
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: f.podOn(name), Namespace: namespace, Labels: f.ds.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(f.ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
		},
		Spec: *f.ds.Spec.Template.Spec.DeepCopy(),
	}
	pod.Spec.NodeName = name
	if _, err := f.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the daemon's pod on %s: %w", name, err)
	}
	return f.report(ctx, name, false)
}

// dropOtherTaints leaves the gate's taint only, so that the limit knows what to
// write without looking.
func (f *fleet) dropOtherTaints(ctx context.Context, node *corev1.Node) error {
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key != taint.Key })
	if _, err := f.client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("updating node %s: %w", node.Name, err)
	}
	return nil
}

func (f *fleet) podOn(node string) string { return daemon + "-" + node }

// report writes the daemon's status on a node as its kubelet would.
func (f *fleet) report(ctx context.Context, node string, ready bool) error {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	body, err := json.Marshal(map[string]any{"status": corev1.PodStatus{
		Phase:             corev1.PodRunning,
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: daemon, ContainerID: "containerd://" + node, Ready: ready}},
	}})
	if err != nil {
		return fmt.Errorf("marshalling status: %w", err)
	}
	_, err = f.client.CoreV1().Pods(namespace).Patch(ctx, f.podOn(node), types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("reporting the daemon's pod on %s: %w", node, err)
	}
	return nil
}

// flip changes the daemon on all nodes, so many each second, and returns when
// each change was sent. The API server commits it a little later, so that
// what is counted from then includes that write and is never too little.
func (f *fleet) flip(ctx context.Context, rate int, ready bool) (map[string]time.Time, error) {
	sent := make([]time.Time, len(f.nodes))
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	var group sync.WaitGroup
	var once sync.Once
	var first error
	for i, node := range f.nodes {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-ticker.C:
		}
		group.Go(func() {
			sent[i] = time.Now()
			if err := f.report(ctx, node, ready); err != nil {
				once.Do(func() { first = err })
			}
		})
	}
	group.Wait()
	times := make(map[string]time.Time, len(f.nodes))
	for i, node := range f.nodes {
		times[node] = sent[i]
	}
	return times, first
}
