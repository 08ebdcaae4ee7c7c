// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/nodegate/nodegate/bench/scene"
)

// births is the number of nodes that are created concurrently.
const births = 16

// A Fleet consists of nodes, each with the daemon's pod. There are no kubelets:
// only the benchmark changes them.
type Fleet struct {
	driver *Driver
	ds     *appsv1.DaemonSet
	pod    *corev1.Pod // what all of the daemon's pods are copies of
	nodes  []string
	closed []Stored // the nodes as they were born
	pods   []*corev1.Pod
}

// NewFleet returns a fleet without nodes. The DaemonSet must exist.
func (d *Driver) NewFleet(ctx context.Context) (*Fleet, error) {
	f := &Fleet{driver: d}
	sets := d.client.AppsV1().DaemonSets(scene.Namespace)
	ds, err := sets.Get(ctx, scene.Daemon, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the daemon: %w", err)
	}
	ds.Status.ObservedGeneration = ds.Generation // no rollout is under way
	if f.ds, err = sets.UpdateStatus(ctx, ds, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("reporting the daemon: %w", err)
	}
	// The API server sets the defaults of the first pod, which is the template
	// for all others.
	options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	f.pod, err = d.client.CoreV1().Pods(scene.Namespace).Create(ctx, scene.Pod(f.ds, scene.NodeName(0)), options)
	if err != nil {
		return nil, fmt.Errorf("creating the daemon's pod in a dry run: %w", err)
	}
	return f, nil
}

// Nodes returns the names of the fleet's nodes, in order.
func (f *Fleet) Nodes() []string { return f.nodes }

// Resize creates nodes, or removes the youngest, until the fleet has the given size.
// Afterwards all nodes are closed, as the API server closed them, and their daemons are
// not ready.
func (f *Fleet) Resize(ctx context.Context, size int) error {
	if size < len(f.nodes) {
		return f.shrink(ctx, size)
	}
	first := len(f.nodes)
	closed := make([]Stored, size-first)
	var registrations errgroup.Group
	registrations.SetLimit(births)
	for i := range closed {
		registrations.Go(func() (err error) {
			closed[i], err = f.born(ctx, scene.NodeName(first+i))
			return err
		})
	}
	if err := registrations.Wait(); err != nil {
		return err
	}
	for i := range closed {
		name := scene.NodeName(first + i)
		f.nodes, f.pods = append(f.nodes, name), append(f.pods, f.podOn(name))
	}
	f.closed = append(f.closed, closed...)
	if _, err := f.Report(ctx, size, false); err != nil {
		return err
	}
	return f.Born(ctx, size)
}

// born registers a node through the API server, including admission, and returns
// it in its initialized state, without Kubernetes' own taint.
func (f *Fleet) born(ctx context.Context, name string) (Stored, error) {
	node, err := f.driver.client.CoreV1().Nodes().Create(ctx, scene.Node(name, time.Now()), metav1.CreateOptions{})
	if err != nil {
		return Stored{}, fmt.Errorf("creating node %s: %w", name, err)
	}
	if !scene.Tainted(node) {
		return Stored{}, fmt.Errorf("creating node %s: the API server did not close it", name)
	}
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return !t.MatchTaint(&scene.Taint) })
	return StoreNode(node)
}

// podOn returns the daemon's pod on a node, before it has a status.
func (f *Fleet) podOn(node string) *corev1.Pod {
	pod := f.pod.DeepCopy()
	own := scene.Pod(f.ds, node)
	pod.Name, pod.UID, pod.CreationTimestamp = own.Name, uuid.NewUUID(), metav1.Now()
	pod.Spec.NodeName, pod.Spec.Affinity = node, own.Spec.Affinity
	return pod
}

func (f *Fleet) shrink(ctx context.Context, size int) error {
	var keys []string
	for i := size; i < len(f.nodes); i++ {
		stored, err := StorePod(f.pods[i])
		if err != nil {
			return err
		}
		keys = append(keys, stored.Key, f.closed[i].Key)
	}
	f.nodes, f.pods, f.closed = f.nodes[:size], f.pods[:size], f.closed[:size]
	return f.driver.Delete(ctx, keys)
}

// Born resets the first nodes to their state at birth, with the gate's taint and
// record. The Node, its boot and the container stay the same. The controller must
// have observed before that the daemons there are not ready; otherwise it opens
// the nodes again.
func (f *Fleet) Born(ctx context.Context, count int) error {
	if _, err := f.driver.Put(ctx, f.closed[:count]); err != nil {
		return fmt.Errorf("closing nodes: %w", err)
	}
	return nil
}

// Report makes the daemon ready, or not ready, on the first nodes at the same
// time, and returns its speed.
func (f *Fleet) Report(ctx context.Context, count int, ready bool) (Speed, error) {
	pods, err := f.store(count, ready)
	if err != nil {
		return Speed{}, err
	}
	return f.driver.Put(ctx, pods)
}

// store returns the first pods with a current status.
func (f *Fleet) store(count int, ready bool) ([]Stored, error) {
	all, now := make([]Stored, count), time.Now()
	for i, pod := range f.pods[:count] {
		pod.Status = scene.PodStatus(pod, ready, now)
		var err error
		if all[i], err = StorePod(pod); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// ReportOne writes the daemon's status on a node as its kubelet would, through the
// API server.
func (f *Fleet) ReportOne(ctx context.Context, node string, ready bool) error {
	pod := f.podOn(node)
	body, err := json.Marshal(map[string]any{"status": scene.PodStatus(pod, ready, time.Now())})
	if err != nil {
		return fmt.Errorf("marshalling status: %w", err)
	}
	pods := f.driver.client.CoreV1().Pods(scene.Namespace)
	_, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("reporting the daemon's pod on %s: %w", node, err)
	}
	return nil
}

// Pace reports the daemon on nodes one after the other, at the given rate per
// second.
func (f *Fleet) Pace(ctx context.Context, nodes []string, rate int, ready bool) error {
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	var reports errgroup.Group
	for _, node := range nodes {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		reports.Go(func() error { return f.ReportOne(ctx, node, ready) })
	}
	return reports.Wait()
}
