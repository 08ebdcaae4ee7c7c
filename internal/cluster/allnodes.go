// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/internal/gate"
)

// NodeFacts returns what a Node tells by itself: its taints, records and overrides
// among it, but nothing that only some signals look at.
func NodeFacts(node *corev1.Node) *gate.Node { return newNodeStore(unheard).convert(node) }

// NodeFacts returns that of the Node of a name.
func (r *Reader) NodeFacts(ctx context.Context, name string) (*gate.Node, error) {
	node, err := r.Node(ctx, name)
	if err != nil {
		return nil, err
	}
	return NodeFacts(node), nil
}

// AllNodeFacts returns the same of those Nodes, of all, that are wanted, by name; nil
// wants all. They are read in pages, and only what is wanted is kept.
func (r *Reader) AllNodeFacts(ctx context.Context, wanted func(*gate.Node) bool) ([]*gate.Node, error) {
	return newLookAt(r, "", pageSize).readNodes(ctx, wanted)
}
