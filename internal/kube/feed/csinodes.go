// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"maps"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// CSINode contains the facts about a CSINode, which has the name of its node.
type CSINode struct {
	node  string
	owner types.UID
	// drivers maps each driver to whether its volume limit is known.
	drivers map[string]bool
}

// CSINodes stores CSINodes by name. What it returns is immutable.
type CSINodes struct {
	// changed is called, without locks, with the name of a node whose CSINode has
	// changed.
	changed func(node string)
	nodes   *nodestore.Store

	mu     sync.RWMutex
	byName map[string]*CSINode
}

var _ reflector.Sink[*CSINode] = (*CSINodes)(nil)

// NewCSINodes returns an empty CSINodes.
func NewCSINodes(changed func(string), nodes *nodestore.Store) *CSINodes {
	return &CSINodes{changed: changed, nodes: nodes, byName: make(map[string]*CSINode)}
}

// Of returns the facts about the CSINode of a node.
func (s *CSINodes) Of(node string) gate.CSINode {
	s.mu.RLock()
	defer s.mu.RUnlock()
	f, known := s.byName[node]
	if !known {
		return gate.CSINode{Observed: true}
	}
	return gate.CSINode{Observed: true, Owner: f.owner, Drivers: f.drivers}
}

// Put implements reflector.Sink.
func (s *CSINodes) Put(f *CSINode) {
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

// Drop implements reflector.Sink.
func (s *CSINodes) Drop(f *CSINode) {
	s.mu.Lock()
	_, known := s.byName[f.node]
	delete(s.byName, f.node)
	s.mu.Unlock()
	if known {
		s.changed(f.node)
	}
}

// Replace implements reflector.Sink. It does not call changed: while the CSINodes are
// listed they count as unknown, and afterwards all nodes are evaluated.
func (s *CSINodes) Replace(all []*CSINode) {
	byName := make(map[string]*CSINode, len(all))
	for _, f := range all {
		byName[f.node] = f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byName = byName
}

// Convert returns the facts about a CSINode. The owner is the Node for which a kubelet
// created the CSINode. It is empty if no owner reference names a Node of the CSINode's name.
func (s *CSINodes) Convert(o *storagev1.CSINode) *CSINode {
	f := &CSINode{node: s.nodes.NameOf(o.Name)}
	if owner := nodeOwner(o.OwnerReferences, o.Name); owner != nil {
		f.owner = owner.UID
	}
	for i := range o.Spec.Drivers {
		d := &o.Spec.Drivers[i]
		if f.drivers == nil {
			f.drivers = make(map[string]bool, len(o.Spec.Drivers))
		}
		f.drivers[s.nodes.Texts.Text(d.Name)] = d.Allocatable != nil && d.Allocatable.Count != nil
	}
	return f
}
