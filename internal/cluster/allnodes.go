// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/nodegate/nodegate/internal/gate"
)

// NodeFacts returns what is known of a Node itself: its taints, records and
// overrides among it, and nothing that only a signal looks at.
func (r *Reader) NodeFacts(ctx context.Context, name string) (*gate.Node, error) {
	node, err := r.Node(ctx, name)
	if err != nil {
		return nil, err
	}
	return newNodeStore(nobody).convert(node), nil
}

// AllNodeFacts returns the same of those Nodes, of all, that are wanted. They are
// read in pages, and only what is wanted is kept.
func (r *Reader) AllNodeFacts(ctx context.Context, wanted func(*gate.Node) bool) ([]*gate.Node, error) {
	store := newNodeStore(nobody)
	var nodes []*gate.Node
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.core.CoreV1().Nodes().List(ctx, o)
	}
	err := pager.New(list).EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		if o, ok := item.(*corev1.Node); ok {
			if n := store.convert(o); wanted(n) {
				nodes = append(nodes, n)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return nodes, nil
}
