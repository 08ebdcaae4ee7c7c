// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"maps"
	"slices"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/signal"
)

// gateSet is all gates as they are at one moment, compiled. It is immutable.
type gateSet struct {
	// gates are sorted by name.
	gates []gate.Gate
	// declared are the NodeGates behind them, by name.
	declared map[string]*v1alpha1.NodeGate
	// acceptance says, by name, which of them are in force.
	acceptance map[string]gate.Acceptance
	// keys are the taint keys of all gates.
	keys map[string]bool
	// complete tells whether these are known to be all gates of their source.
	complete bool
	// deleted names gates that are known to have been deleted in any case.
	deleted map[string]bool
	// seq numbers the sets of this process, from 1. Zero is the set of before the
	// gates were known.
	seq uint64
	// since is the number of the set in which each gate became what it is now.
	since map[string]uint64
}

// newGateSet compiles gates and says which are in force. It comes after
// another set.
func newGateSet(before *gateSet, declared []*v1alpha1.NodeGate, complete bool, deleted map[string]bool, policy gate.KeyPolicy) *gateSet {
	set := &gateSet{
		seq:      before.seq + 1,
		since:    make(map[string]uint64, len(declared)),
		declared: make(map[string]*v1alpha1.NodeGate, len(declared)),
		keys:     make(map[string]bool, len(declared)),
		complete: complete,
		deleted:  deleted,
	}
	broken := make(map[string]error)
	for _, ng := range declared {
		g, err := signal.Compile(ng, v1alpha1.SourceCRD)
		if err != nil {
			broken[ng.Name] = err
		}
		set.gates = append(set.gates, g)
		set.declared[ng.Name] = ng
		set.keys[g.Taint.Key] = true
		set.since[ng.Name] = set.seq
		if was, ok := before.declared[ng.Name]; ok && was.UID == ng.UID && was.Generation == ng.Generation {
			set.since[ng.Name] = before.since[ng.Name]
		}
	}
	slices.SortFunc(set.gates, func(a, b gate.Gate) int { return cmp.Compare(a.Name, b.Name) })
	set.acceptance = gate.Accept(set.gates, policy)
	for name, err := range broken {
		set.acceptance[name] = gate.Acceptance{Reason: v1alpha1.ReasonInvalidSpec, Message: err.Error()}
	}
	for i := range set.gates {
		set.gates[i].Accepted = set.acceptance[set.gates[i].Name].Accepted
	}
	return set
}

// needs returns what must be observed for all gates.
func (s *gateSet) needs(sets *gate.DaemonSets) gate.Needs {
	var all gate.Needs
	for i := range s.gates {
		n := s.gates[i].Needs(sets)
		all.DaemonSetNamespaces = append(all.DaemonSetNamespaces, n.DaemonSetNamespaces...)
		all.Pods = append(all.Pods, n.Pods...)
		all.Annotations = append(all.Annotations, n.Annotations...)
	}
	slices.Sort(all.DaemonSetNamespaces)
	slices.Sort(all.Annotations)
	slices.SortFunc(all.Pods, func(a, b gate.PodQuery) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Selector, b.Selector))
	})
	all.DaemonSetNamespaces = slices.Compact(all.DaemonSetNamespaces)
	all.Annotations = slices.Compact(all.Annotations)
	all.Pods = slices.Compact(all.Pods)
	return all
}

// accepted tells whether a gate is in force.
func (s *gateSet) accepted(name string) bool { return s.acceptance[name].Accepted }

// closesAtBirth tells whether a gate is in force, and to be closed on nodes
// while they are created.
func (s *gateSet) closesAtBirth(name string) bool {
	return s.accepted(name) && !s.declared[name].Spec.Follows()
}

// gate returns a gate by name.
func (s *gateSet) gate(name string) (*gate.Gate, bool) {
	i, ok := slices.BinarySearchFunc(s.gates, name, func(g gate.Gate, name string) int { return cmp.Compare(g.Name, name) })
	if !ok {
		return nil, false
	}
	return &s.gates[i], true
}

// names returns the gates' names, sorted.
func (s *gateSet) names() []string { return slices.Sorted(maps.Keys(s.declared)) }

// list returns the gates, in no order.
func (s *gateSet) list() []*v1alpha1.NodeGate { return slices.Collect(maps.Values(s.declared)) }

// unneeded tells whether a birth parameter is known to have no gate behind it
// that closes at birth. While it is not known which gates exist, one that is not
// here is no reason to leave nodes open.
func (s *gateSet) unneeded(name string) bool {
	if _, known := s.declared[name]; known {
		return !s.closesAtBirth(name)
	}
	return s.complete || s.deleted[name]
}
