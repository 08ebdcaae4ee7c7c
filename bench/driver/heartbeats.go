// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/nodegate/nodegate/bench/fixture"
)

// reports is the maximum number of concurrent status reports.
const reports = 32

// Kubelets reports the status of each node once in every interval until ctx ends:
// through the API server, with the patch that a kubelet sends. It returns the number of
// reports.
func (d *Driver) Kubelets(ctx context.Context, nodes []string, every time.Duration) (Speed, error) {
	pace := rate.NewLimiter(rate.Every(every/time.Duration(len(nodes))), 1)
	var sending errgroup.Group
	sending.SetLimit(reports)
	start := time.Now()
	for sent := 0; ; sent++ {
		if pace.Wait(ctx) != nil {
			return Speed{sent, time.Since(start)}, sending.Wait()
		}
		sending.Go(func() error { return d.report(nodes[sent%len(nodes)]) })
	}
}

// report sends one heartbeat as a kubelet does.
func (d *Driver) report(name string) error {
	before := &corev1.Node{Status: corev1.NodeStatus{Conditions: fixture.Node(name, time.Unix(0, 0)).Status.Conditions}}
	after := before.DeepCopy()
	beat(after, time.Now())
	if _, _, err := nodeutil.PatchNodeStatus(d.client.CoreV1(), types.NodeName(name), before, after); err != nil {
		return fmt.Errorf("reporting node %s: %w", name, err)
	}
	return nil
}

// beat sets the heartbeat times of a node's conditions.
func beat(node *corev1.Node, now time.Time) {
	for i := range node.Status.Conditions {
		node.Status.Conditions[i].LastHeartbeatTime = metav1.NewTime(now)
	}
}

// Heartbeats reports nodes as kubelets do while nothing changes: only the heartbeat
// times of their conditions change.
type Heartbeats struct {
	driver *Driver
	nodes  []storedNode
	next   int
}

// A storedNode is a node with its revision in etcd.
type storedNode struct {
	*corev1.Node
	revision int64
}

// NewHeartbeats reads the nodes for which keep returns true.
func (d *Driver) NewHeartbeats(ctx context.Context, keep func(*corev1.Node) bool) (*Heartbeats, error) {
	all, err := d.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	h := &Heartbeats{driver: d}
	for i := range all {
		if !keep(&all[i]) {
			continue
		}
		h.nodes = append(h.nodes, storedNode{})
		if err := h.nodes[len(h.nodes)-1].set(&all[i]); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func (s *storedNode) set(node *corev1.Node) (err error) {
	s.Node = node
	s.revision, err = strconv.ParseInt(node.ResourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("parsing the resource version of node %s: %w", node.Name, err)
	}
	return nil
}

// Send reports one node after the other at the given rate per second, directly to etcd,
// until ctx ends. Few are written at a time, because the API server disconnects watchers
// that cannot follow a burst. A node that has changed in the meantime is read again
// instead, so no other write is overwritten.
func (h *Heartbeats) Send(ctx context.Context, perSecond float64) (Speed, error) {
	pace := rate.NewLimiter(rate.Limit(perSecond), putsAtOnce)
	pace.AllowN(time.Now(), putsAtOnce) // no burst at the start
	whole := context.WithoutCancel(ctx) // finishes what has begun
	var writes errgroup.Group
	writes.SetLimit(putsAtOnce)
	start := time.Now()
	for done := 0; ; done++ {
		if pace.Wait(ctx) != nil {
			return Speed{done, time.Since(start)}, writes.Wait()
		}
		if h.next == len(h.nodes) { // no node is written twice at a time
			if err := writes.Wait(); err != nil {
				return Speed{}, err
			}
			h.next = 0
		}
		node := &h.nodes[h.next]
		h.next++
		writes.Go(func() error { return h.write(whole, node) })
	}
}

func (h *Heartbeats) write(ctx context.Context, node *storedNode) error {
	beat(node.Node, time.Now())
	stored, err := Store(node.Node)
	if err != nil {
		return err
	}
	unchanged := clientv3.Compare(clientv3.ModRevision(stored.Key), "=", node.revision)
	response, err := h.driver.etcd.Txn(ctx).If(unchanged).Then(clientv3.OpPut(stored.Key, string(stored.Value))).Commit()
	if err != nil {
		return fmt.Errorf("reporting node %s: %w", node.Name, err)
	}
	if response.Succeeded {
		node.revision = response.Header.Revision
		return nil
	}
	current, err := h.driver.client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading node %s: %w", node.Name, err)
	}
	return node.set(current)
}
