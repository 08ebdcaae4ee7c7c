// SPDX-License-Identifier: Apache-2.0

package read

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
)

// NodeFacts returns the facts that the Node object contains, such as taints, records and
// overrides, without those that only some signals need.
func NodeFacts(node *corev1.Node) *gate.Node { return nodestore.New(nodestore.Options{}).Convert(node) }

// NodeFacts reads a Node and returns its facts, like the function NodeFacts.
func (r *Reader) NodeFacts(ctx context.Context, name string) (*gate.Node, error) {
	node, err := r.Node(ctx, name)
	if err != nil {
		return nil, err
	}
	return NodeFacts(node), nil
}

// AllNodeFacts returns the facts about all Nodes that are wanted, sorted by name. A nil
// function selects all. Nodes are read in pages, and only those that are wanted are kept.
func (r *Reader) AllNodeFacts(ctx context.Context, wanted func(*gate.Node) bool) ([]*gate.Node, error) {
	return newSnapshot(r, "", pageSize).readNodes(ctx, wanted)
}
