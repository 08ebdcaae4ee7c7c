// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"cmp"
	"slices"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// ResourceSlice contains the facts about a ResourceSlice, and its node.
type ResourceSlice struct {
	node string
	gate.ResourceSlice
	// devices contains the devices for each query that counts them.
	devices []gate.Devices
}

// ResourceSlices stores the node-local ResourceSlices of one driver by node.
type ResourceSlices struct {
	nodes *nodestore.Store
	// plain is nil if no gate needs slices without their devices.
	plain   *nodeSlices[gate.ResourceSlice]
	counted []countedSlices
}

// countedSlices stores the slices for a query that counts their devices.
type countedSlices struct {
	*deviceCounter
	*nodeSlices[gate.DeviceSlice]
}

var _ reflector.Sink[*ResourceSlice] = (*ResourceSlices)(nil)

// NewResourceSlices returns an empty ResourceSlices. changed returns the function to call,
// without locks, with the name of a node when an aspect of it has changed.
func NewResourceSlices(nodes *nodestore.Store, driver string, needs SliceNeeds, changed func(gate.Aspect) func(node string)) *ResourceSlices {
	s := &ResourceSlices{nodes: nodes}
	if needs.Plain {
		s.plain = newNodeSlices(bySliceName, changed(gate.Aspect{Kind: gate.AspectResourceSlices, Name: driver}))
	}
	for _, query := range needs.Queries {
		byName := func(a, b gate.DeviceSlice) int { return bySliceName(a.ResourceSlice, b.ResourceSlice) }
		s.counted = append(s.counted, countedSlices{newDeviceCounter(query, nodes.Texts), newNodeSlices(byName, changed(query.Aspect()))})
	}
	return s
}

// On returns the slices of a node without their devices.
func (s *ResourceSlices) On(node string) []gate.ResourceSlice {
	if s.plain == nil {
		return nil
	}
	return s.plain.on(node)
}

// DevicesOn returns the slices of a node with their devices.
func (s *ResourceSlices) DevicesOn(node string, query gate.DeviceQuery) []gate.DeviceSlice {
	for i := range s.counted {
		if s.counted[i].query == query {
			return s.counted[i].on(node)
		}
	}
	return nil
}

// Put implements reflector.Sink. The node of a slice never changes.
func (s *ResourceSlices) Put(f *ResourceSlice) {
	if s.plain != nil {
		s.plain.put(f.node, f.ResourceSlice)
	}
	for i := range s.counted {
		s.counted[i].put(f.node, gate.DeviceSlice{ResourceSlice: f.ResourceSlice, Devices: f.devices[i]})
	}
}

// Drop implements reflector.Sink.
func (s *ResourceSlices) Drop(f *ResourceSlice) {
	if s.plain != nil {
		s.plain.drop(f.node, f.ResourceSlice)
	}
	for i := range s.counted {
		s.counted[i].drop(f.node, gate.DeviceSlice{ResourceSlice: f.ResourceSlice})
	}
}

// Replace implements reflector.Sink. It does not call changed: while the slices are
// listed they count as unknown, and afterwards all nodes are evaluated.
func (s *ResourceSlices) Replace(all []*ResourceSlice) {
	if s.plain != nil {
		s.plain.replace(all, func(f *ResourceSlice) gate.ResourceSlice { return f.ResourceSlice })
	}
	for i := range s.counted {
		s.counted[i].replace(all, func(f *ResourceSlice) gate.DeviceSlice {
			return gate.DeviceSlice{ResourceSlice: f.ResourceSlice, Devices: f.devices[i]}
		})
	}
}

// ruleChanged announces the nodes that have a pool which a DeviceTaintRule selects.
func (s *ResourceSlices) ruleChanged(driver string, r *gate.DeviceTaintRule) {
	for i := range s.counted {
		for _, node := range s.counted[i].having(func(slice *gate.DeviceSlice) bool { return r.Selects(driver, slice.Pool) }) {
			s.counted[i].changed(node)
		}
	}
}

// Convert returns the facts about a ResourceSlice. Its owner is the Node for which a
// driver created it.
func (s *ResourceSlices) Convert(o *resourcev1.ResourceSlice) *ResourceSlice {
	f := &ResourceSlice{
		node: s.nodes.NameOf(ptr.Deref(o.Spec.NodeName, "")),
		ResourceSlice: gate.ResourceSlice{
			Name: o.Name, Pool: s.nodes.Texts.Text(o.Spec.Pool.Name),
			Generation: o.Spec.Pool.Generation, Count: o.Spec.Pool.ResourceSliceCount,
		},
	}
	if owner := nodeOwner(o.OwnerReferences, f.node); owner != nil {
		f.Owner = s.nodes.Texts.UID(owner.UID)
	}
	for i := range s.counted {
		f.devices = append(f.devices, s.counted[i].count(o.Spec.Driver, pointersTo(o.Spec.Devices)))
	}
	return f
}

// nodeSlices stores slices by node.
type nodeSlices[S comparable] struct {
	order   func(a, b S) int
	changed func(node string)

	mu sync.RWMutex
	// byNode has the slices of each node, sorted. The lists are immutable, because decisions
	// share them.
	byNode map[string][]S
}

func newNodeSlices[S comparable](order func(a, b S) int, changed func(string)) *nodeSlices[S] {
	return &nodeSlices[S]{order: order, changed: changed, byNode: make(map[string][]S)}
}

func (s *nodeSlices[S]) on(node string) []S {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byNode[node]
}

func (s *nodeSlices[S]) put(node string, one S) {
	s.change(node, one, func(now []S, i int, there bool) []S {
		now = slices.Clone(now)
		if there {
			now[i] = one
			return now
		}
		return slices.Insert(now, i, one)
	})
}

func (s *nodeSlices[S]) drop(node string, one S) {
	s.change(node, one, func(now []S, i int, there bool) []S {
		if !there {
			return now
		}
		return slices.Delete(slices.Clone(now), i, i+1)
	})
}

// change replaces a node's list by the result of edit, which receives the list, the index
// of the slice or its place, and whether the slice is in the list.
func (s *nodeSlices[S]) change(node string, one S, edit func([]S, int, bool) []S) {
	s.mu.Lock()
	before := s.byNode[node]
	i, there := slices.BinarySearchFunc(before, one, s.order)
	after := edit(before, i, there)
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

func (s *nodeSlices[S]) replace(all []*ResourceSlice, convert func(*ResourceSlice) S) {
	byNode := make(map[string][]S)
	for _, f := range all {
		byNode[f.node] = append(byNode[f.node], convert(f))
	}
	for _, list := range byNode {
		slices.SortFunc(list, s.order)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byNode = byNode
}

// having returns the names of nodes that have a slice for which is returns true.
func (s *nodeSlices[S]) having(is func(*S) bool) (names []string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for node, list := range s.byNode {
		for i := range list {
			if is(&list[i]) {
				names = append(names, node)
				break
			}
		}
	}
	return names
}

func bySliceName(a, b gate.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) }

func pointersTo[T any](all []T) []*T {
	pointers := make([]*T, len(all))
	for i := range all {
		pointers[i] = &all[i]
	}
	return pointers
}
