// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// beatEvery is the interval at which a heart writes due reports. Each time it
// writes only a few nodes, because the API server disconnects watchers that
// cannot follow a burst.
const beatEvery = 5 * time.Millisecond

// A Heart reports the status of nodes as their kubelets do while nothing happens:
// only the heartbeats of their conditions change.
type Heart struct {
	driver *Driver
	nodes  []*beating
	next   int
}

// beating is the stored form of a node, and its revision.
type beating struct {
	node     *corev1.Node
	revision int64
}

// CountNodes returns the number of nodes that satisfy a predicate.
func (d *Driver) CountNodes(ctx context.Context, is func(*corev1.Node) bool) (count int, err error) {
	err = d.eachNode(ctx, func(n *corev1.Node) error {
		if is(n) {
			count++
		}
		return nil
	})
	return count, err
}

// eachNode reads all nodes.
func (d *Driver) eachNode(ctx context.Context, take func(*corev1.Node) error) error {
	list, err := d.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("reading the nodes: %w", err)
	}
	for i := range list.Items {
		if err := take(&list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// NewHeart reads the nodes that it will report: all for which keep returns true.
func (d *Driver) NewHeart(ctx context.Context, keep func(*corev1.Node) bool) (*Heart, error) {
	h := &Heart{driver: d}
	err := d.eachNode(ctx, func(n *corev1.Node) error {
		if !keep(n) {
			return nil
		}
		b := &beating{}
		h.nodes = append(h.nodes, b)
		return b.know(n)
	})
	return h, err
}

// know stores a node that was read.
func (b *beating) know(node *corev1.Node) (err error) {
	b.node = node
	b.revision, err = strconv.ParseInt(node.ResourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("reading the revision of node %s: %w", node.Name, err)
	}
	return nil
}

// Beat reports one node after the other directly to etcd, at the given rate per
// second, until ctx ends, and returns its speed. It never overwrites other
// writes: if a node has changed in the meantime, it reads the node again.
func (h *Heart) Beat(ctx context.Context, rate float64) (Speed, error) {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	whole := context.WithoutCancel(ctx) // what has begun is brought to its end
	start, done := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return Speed{done, time.Since(start)}, nil
		case now := <-ticker.C:
			due := min(int(now.Sub(start).Seconds()*rate)-done, len(h.nodes))
			var writes errgroup.Group
			writes.SetLimit(reports)
			for range due {
				b := h.nodes[h.next]
				h.next = (h.next + 1) % len(h.nodes)
				writes.Go(func() error { return h.write(whole, b, now) })
			}
			if err := writes.Wait(); err != nil {
				return Speed{}, err
			}
			done += max(due, 0)
		}
	}
}

// write reports a node if it has not changed since it was read.
func (h *Heart) write(ctx context.Context, b *beating, now time.Time) error {
	for i := range b.node.Status.Conditions {
		b.node.Status.Conditions[i].LastHeartbeatTime = metav1.NewTime(now)
	}
	stored, err := StoreNode(b.node)
	if err != nil {
		return err
	}
	same := clientv3.Compare(clientv3.ModRevision(stored.Key), "=", b.revision)
	answer, err := h.driver.etcd.Txn(ctx).If(same).Then(clientv3.OpPut(stored.Key, string(stored.Value))).Commit()
	if err != nil {
		return fmt.Errorf("reporting node %s: %w", b.node.Name, err)
	}
	if b.revision = answer.Header.Revision; answer.Succeeded {
		return nil
	}
	node, err := h.driver.client.CoreV1().Nodes().Get(ctx, b.node.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading node %s: %w", b.node.Name, err)
	}
	return b.know(node)
}
