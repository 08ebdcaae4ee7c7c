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

// beatEvery is how often a heart writes what is due: a few nodes, because the API
// server cuts watchers off that fall behind a burst.
const beatEvery = 5 * time.Millisecond

// A Heart reports the status of nodes as their kubelets do while nothing happens:
// nothing but the heartbeats of their conditions is new.
type Heart struct {
	driver *Driver
	nodes  []*beating
	next   int
}

// beating is a node as it is stored, and the revision of that.
type beating struct {
	node     *corev1.Node
	revision int64
}

// CountNodes returns how many nodes are so.
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

// NewHeart reads those nodes that it shall report: all that keep says.
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

// know takes a node as it was read.
func (b *beating) know(node *corev1.Node) (err error) {
	b.node = node
	b.revision, err = strconv.ParseInt(node.ResourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("reading the revision of node %s: %w", node.Name, err)
	}
	return nil
}

// Beat reports one node after the other straight into etcd, so many each second,
// until ctx ends, and tells how fast it was. It overwrites nothing: a node that
// another has written since is read again.
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

// write reports a node, if it is as it is known.
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
