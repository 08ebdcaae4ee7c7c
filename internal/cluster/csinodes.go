// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"maps"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/internal/gate"
)

// csiNodeFeed observes all CSINodes, while some gate needs them.
type csiNodeFeed struct {
	*running
	csiNodes *csiNodeSet
}

// adjustCSINodes starts or stops observing CSINodes.
func (f *Feed) adjustCSINodes(ctx context.Context, needed bool) {
	before := f.csiNodeFeed.Load()
	switch {
	case needed && before == nil:
		f.csiNodeFeed.Store(f.startCSINodes(ctx))
	case !needed && before != nil:
		f.csiNodeFeed.Store(nil)
		before.stop()
	}
}

func (f *Feed) startCSINodes(ctx context.Context) *csiNodeFeed {
	told := f.tellOf(gate.Aspect{Kind: gate.AspectCSINode})
	feed := &csiNodeFeed{running: f.newRunning(csiNodesName), csiNodes: newCSINodeSet(told, f.nodes)}
	feed.turned = f.handler.GatesChanged
	in := &intake[*storagev1.CSINode, *csiNodeFact]{observer: feed.observer, sink: feed.csiNodes, convert: feed.csiNodes.convert}
	f.start(ctx, feed.running, func(ctx context.Context) { in.run(ctx, f.sources.csiNodes, &storagev1.CSINode{}) })
	return feed
}

// csiNodeFact is a CSINode. It has the name of its node.
type csiNodeFact struct {
	node  string
	owner types.UID
	// drivers tells of each driver whether its volume limit is known.
	drivers map[string]bool
}

// csiNodeSet keeps the CSINodes by name. What it hands out is immutable.
type csiNodeSet struct {
	// changed is called, without locks, with a node whose CSINode has changed.
	changed func(node string)
	nodes   *nodeStore

	mu     sync.RWMutex
	byName map[string]*csiNodeFact
}

var _ sink[*csiNodeFact] = (*csiNodeSet)(nil)

func newCSINodeSet(changed func(string), nodes *nodeStore) *csiNodeSet {
	return &csiNodeSet{changed: changed, nodes: nodes, byName: make(map[string]*csiNodeFact)}
}

// of returns what the node's CSINode says.
func (s *csiNodeSet) of(node string) gate.CSINode {
	s.mu.RLock()
	defer s.mu.RUnlock()
	f, known := s.byName[node]
	if !known {
		return gate.CSINode{Observed: true}
	}
	return gate.CSINode{Observed: true, Owner: f.owner, Drivers: f.drivers}
}

// put implements sink.
func (s *csiNodeSet) put(f *csiNodeFact) {
	s.mu.Lock()
	old, known := s.byName[f.node]
	changed := !known || old.owner != f.owner || !maps.Equal(old.drivers, f.drivers)
	if changed {
		s.byName[f.node] = f
	}
	s.mu.Unlock()
	if changed {
		s.changed(f.node)
	}
}

// drop implements sink.
func (s *csiNodeSet) drop(f *csiNodeFact) {
	s.mu.Lock()
	_, known := s.byName[f.node]
	delete(s.byName, f.node)
	s.mu.Unlock()
	if known {
		s.changed(f.node)
	}
}

// replace implements sink. It tells of no node: what was known before counted
// as unknown while it was read anew, so that all nodes are looked at.
func (s *csiNodeSet) replace(all []*csiNodeFact) {
	byName := make(map[string]*csiNodeFact, len(all))
	for _, f := range all {
		byName[f.node] = f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byName = byName
}

// convert makes a CSINode into a fact. Its owner is the Node for which a
// kubelet made it: one without such an owner is nobody's.
func (s *csiNodeSet) convert(o *storagev1.CSINode) *csiNodeFact {
	f := &csiNodeFact{node: s.nodes.nameOf(o.Name)}
	for _, owner := range o.OwnerReferences {
		if owner.Kind == "Node" && owner.Name == o.Name {
			f.owner = owner.UID
		}
	}
	for i := range o.Spec.Drivers {
		d := &o.Spec.Drivers[i]
		if f.drivers == nil {
			f.drivers = make(map[string]bool, len(o.Spec.Drivers))
		}
		f.drivers[s.nodes.intern.text(d.Name)] = d.Allocatable != nil && d.Allocatable.Count != nil
	}
	return f
}
