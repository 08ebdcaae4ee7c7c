// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/nodegate/nodegate/bench/fixture"
)

// registrations is the maximum number of nodes that are created concurrently.
const registrations = 16

// A Fleet is a set of nodes, each with the daemon's pod. There are no kubelets: only the
// benchmark changes nodes and pods.
type Fleet struct {
	driver *Driver
	ds     *appsv1.DaemonSet
	pod    *corev1.Pod // the template of all the daemon's pods
	nodes  []string
	closed []Stored // the nodes as the API server created them
	pods   []*corev1.Pod
}

// NewFleet returns a fleet without nodes. The DaemonSet must exist.
func (d *Driver) NewFleet(ctx context.Context) (*Fleet, error) {
	f := &Fleet{driver: d}
	sets := d.client.AppsV1().DaemonSets(fixture.Namespace)
	ds, err := sets.Get(ctx, fixture.Daemon, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the DaemonSet: %w", err)
	}
	ds.Status.ObservedGeneration = ds.Generation // no rollout is in progress
	if f.ds, err = sets.UpdateStatus(ctx, ds, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("updating the DaemonSet's status: %w", err)
	}
	// The API server sets defaults in the template.
	options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	f.pod, err = d.client.CoreV1().Pods(fixture.Namespace).Create(ctx, fixture.Pod(f.ds, fixture.NodeName(0)), options)
	if err != nil {
		return nil, fmt.Errorf("creating the daemon's pod in a dry run: %w", err)
	}
	return f, nil
}

// Nodes returns the names of the fleet's nodes, in order.
func (f *Fleet) Nodes() []string { return f.nodes }

// Resize creates nodes, or deletes the last ones, until the fleet has the given size. If
// it creates nodes, all nodes are closed afterwards, as the API server has closed them,
// and their daemons are not ready.
func (f *Fleet) Resize(ctx context.Context, size int) error {
	if size < len(f.nodes) {
		return f.shrink(ctx, size)
	}
	first := len(f.nodes)
	closed := make([]Stored, size-first)
	var creations errgroup.Group
	creations.SetLimit(registrations)
	for i := range closed {
		creations.Go(func() (err error) {
			closed[i], err = f.register(ctx, fixture.NodeName(first+i))
			return err
		})
	}
	if err := creations.Wait(); err != nil {
		return err
	}
	for i := range closed {
		name := fixture.NodeName(first + i)
		f.nodes, f.pods = append(f.nodes, name), append(f.pods, f.podOn(name))
	}
	f.closed = append(f.closed, closed...)
	if _, err := f.Report(ctx, size, false); err != nil {
		return err
	}
	return f.Reset(ctx, size)
}

// register creates a node through the API server, including admission, and returns the
// stored form without Kubernetes' own taint.
func (f *Fleet) register(ctx context.Context, name string) (Stored, error) {
	node, err := f.driver.client.CoreV1().Nodes().Create(ctx, fixture.Node(name, time.Now()), metav1.CreateOptions{})
	if err != nil {
		return Stored{}, fmt.Errorf("creating node %s: %w", name, err)
	}
	if !fixture.Tainted(node) {
		return Stored{}, fmt.Errorf("creating node %s: the API server did not close it", name)
	}
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return !t.MatchTaint(&fixture.Taint) })
	return Store(node)
}

// podOn returns the daemon's pod on a node, without a status.
func (f *Fleet) podOn(node string) *corev1.Pod {
	pod := f.pod.DeepCopy()
	own := fixture.Pod(f.ds, node)
	pod.Name, pod.UID, pod.CreationTimestamp = own.Name, uuid.NewUUID(), metav1.Now()
	pod.Spec.NodeName, pod.Spec.Affinity = node, own.Spec.Affinity
	return pod
}

func (f *Fleet) shrink(ctx context.Context, size int) error {
	pods, err := StoreAll(len(f.pods)-size, func(i int) *corev1.Pod { return f.pods[size+i] })
	if err != nil {
		return err
	}
	var keys []string
	for _, stored := range append(pods, f.closed[size:]...) {
		keys = append(keys, stored.Key)
	}
	f.nodes, f.pods, f.closed = f.nodes[:size], f.pods[:size], f.closed[:size]
	return f.driver.Delete(ctx, keys)
}

// Reset resets the first nodes to their state after creation, with the gate's taint and
// record. The UID, the boot and the container stay the same. The controller must have
// observed that the daemons there are not ready; otherwise it opens the nodes again.
func (f *Fleet) Reset(ctx context.Context, count int) error {
	if _, err := f.driver.Put(ctx, f.closed[:count]); err != nil {
		return fmt.Errorf("closing nodes: %w", err)
	}
	return nil
}

// Report makes the daemon ready, or not ready, on the first nodes as fast as Put allows.
func (f *Fleet) Report(ctx context.Context, count int, ready bool) (Speed, error) {
	now := time.Now()
	pods, err := StoreAll(count, func(i int) *corev1.Pod {
		pod := f.pods[i]
		pod.Status = fixture.PodStatus(pod, ready, now)
		return pod
	})
	if err != nil {
		return Speed{}, err
	}
	return f.driver.Put(ctx, pods)
}

// ReportOne writes the daemon's status on a node through the API server, as its kubelet
// would.
func (f *Fleet) ReportOne(ctx context.Context, node string, ready bool) error {
	pod := f.podOn(node)
	body, err := json.Marshal(map[string]any{"status": fixture.PodStatus(pod, ready, time.Now())})
	if err != nil {
		return fmt.Errorf("encoding status: %w", err)
	}
	pods := f.driver.client.CoreV1().Pods(fixture.Namespace)
	_, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("reporting the daemon's pod on %s: %w", node, err)
	}
	return nil
}

// Pace is like ReportOne for one node after the other, at the given rate per second.
func (f *Fleet) Pace(ctx context.Context, nodes []string, perSecond float64, ready bool) error {
	pace := rate.NewLimiter(rate.Limit(perSecond), 1)
	pace.Allow() // the first report waits, too
	var reports errgroup.Group
	for _, node := range nodes {
		if err := pace.Wait(ctx); err != nil {
			return errors.Join(err, reports.Wait())
		}
		reports.Go(func() error { return f.ReportOne(ctx, node, ready) })
	}
	return reports.Wait()
}
