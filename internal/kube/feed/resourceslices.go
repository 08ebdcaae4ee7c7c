// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"cmp"
	"slices"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// ResourceSlice contains the facts about a ResourceSlice, and its node.
type ResourceSlice struct {
	node string
	gate.ResourceSlice
}

// ResourceSlices stores the ResourceSlices of one driver by node.
type ResourceSlices struct {
	// changed is called, without locks, with the name of a node whose slices have
	// changed.
	changed func(node string)
	nodes   *Nodes

	mu sync.RWMutex
	// byNode has the slices of each node, sorted by name. The lists are immutable,
	// because decisions share them.
	byNode map[string][]gate.ResourceSlice
}

var _ reflector.Sink[*ResourceSlice] = (*ResourceSlices)(nil)

// NewResourceSlices returns an empty ResourceSlices.
func NewResourceSlices(changed func(string), nodes *Nodes) *ResourceSlices {
	return &ResourceSlices{changed: changed, nodes: nodes, byNode: make(map[string][]gate.ResourceSlice)}
}

// On returns the slices of a node.
func (s *ResourceSlices) On(node string) []gate.ResourceSlice {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byNode[node]
}

// Put implements reflector.Sink. The node of a slice never changes.
func (s *ResourceSlices) Put(f *ResourceSlice) {
	s.replaceOn(f.node, func(now []gate.ResourceSlice, i int, there bool) []gate.ResourceSlice {
		now = slices.Clone(now)
		if there {
			now[i] = f.ResourceSlice
			return now
		}
		return slices.Insert(now, i, f.ResourceSlice)
	}, f)
}

// Drop implements reflector.Sink.
func (s *ResourceSlices) Drop(f *ResourceSlice) {
	s.replaceOn(f.node, func(now []gate.ResourceSlice, i int, there bool) []gate.ResourceSlice {
		if !there {
			return now
		}
		return slices.Delete(slices.Clone(now), i, i+1)
	}, f)
}

// replaceOn replaces a node's list by the result of change, which receives the list, the
// index of the slice or its place, and whether the slice is in the list.
func (s *ResourceSlices) replaceOn(node string, change func([]gate.ResourceSlice, int, bool) []gate.ResourceSlice, f *ResourceSlice) {
	s.mu.Lock()
	before := s.byNode[node]
	i, there := slices.BinarySearchFunc(before, f.ResourceSlice, bySliceName)
	after := change(before, i, there)
	if len(after) > 0 {
		s.byNode[node] = after
	} else {
		delete(s.byNode, node)
	}
	s.mu.Unlock()
	if !slices.Equal(before, after) {
		s.changed(node)
	}
}

// Replace implements reflector.Sink. It does not call changed: while the slices are
// listed they count as unknown, and afterwards all nodes are evaluated.
func (s *ResourceSlices) Replace(all []*ResourceSlice) {
	byNode := make(map[string][]gate.ResourceSlice)
	for _, f := range all {
		byNode[f.node] = append(byNode[f.node], f.ResourceSlice)
	}
	for _, list := range byNode {
		slices.SortFunc(list, bySliceName)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byNode = byNode
}

func bySliceName(a, b gate.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) }

// Convert returns the facts about a ResourceSlice. Its owner is the Node for which a
// driver created it.
func (s *ResourceSlices) Convert(o *resourcev1.ResourceSlice) *ResourceSlice {
	f := &ResourceSlice{
		node: s.nodes.nameOf(ptr.Deref(o.Spec.NodeName, "")),
		ResourceSlice: gate.ResourceSlice{
			Name: o.Name, Pool: s.nodes.intern.text(o.Spec.Pool.Name),
			Generation: o.Spec.Pool.Generation, Count: o.Spec.Pool.ResourceSliceCount,
		},
	}
	for _, owner := range o.OwnerReferences {
		if owner.Kind == "Node" && owner.Name == f.node {
			f.Owner = internUID(s.nodes.intern, owner.UID)
		}
	}
	return f
}
