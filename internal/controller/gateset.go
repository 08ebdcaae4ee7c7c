// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"maps"
	"slices"
	"sort"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/signal"
)

// known is what the feed knows of the gates at one moment.
type known struct {
	// source is where they were declared, as records tell it.
	source string
	gates  []*v1alpha1.NodeGate
	// complete tells whether these are known to be all gates of their source.
	complete bool
	// deleted names gates that are known to have been deleted in any case.
	deleted map[string]bool
}

// gateSet is all gates as they are at one moment, compiled. It is immutable.
type gateSet struct {
	// source is where the gates were declared, as records tell it.
	source string
	// gates are sorted by name.
	gates []gate.Gate
	// declared are the NodeGates behind them, by name.
	declared map[string]*v1alpha1.NodeGate
	// acceptance says, by name, which of them are in force.
	acceptance map[string]gate.Acceptance
	// keys are the taint keys of all gates but those in dry run.
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
	// broken says, by name, why gates cannot be compiled.
	broken map[string]error
	// sources are the sources of gates that are complete, as facts have it.
	sources map[string]bool
	// parts are the gates as they can be decided about apart. Nil where that has not
	// been found out.
	parts *gate.Parts
	// part is what the gates are of the set that this one was made of (see only). Nil
	// if they are all.
	part *gate.Part
}

// untilCorrected says what becomes of a gate that cannot be compiled.
const untilCorrected = ". Until this is corrected the gate closes nothing more, and what it has closed stays closed, " +
	"but for its deadline; to open it, correct the gate or delete it"

// untilReadable says what becomes of a gate that cannot be read.
const untilReadable = ". Until this is corrected it neither opens nor closes; if it closed new nodes at birth, these go on being closed. " +
	"Apply the gate again as this version has it (and, if the definition is another version's, that first), or delete it, which opens it"

// newGateSet compiles gates and says which are in force. It comes after
// another set.
func newGateSet(before *gateSet, now known, policy gate.KeyPolicy) *gateSet {
	set := &gateSet{
		source:   now.source,
		seq:      before.seq + 1,
		since:    make(map[string]uint64, len(now.gates)),
		declared: make(map[string]*v1alpha1.NodeGate, len(now.gates)),
		keys:     make(map[string]bool, len(now.gates)),
		complete: now.complete,
		deleted:  now.deleted,
		broken:   make(map[string]error),
		sources:  map[string]bool{now.source: now.complete},
	}
	for _, ng := range now.gates {
		set.add(ng, before)
	}
	slices.SortFunc(set.gates, func(a, b gate.Gate) int { return cmp.Compare(a.Name, b.Name) })
	set.acceptance = gate.Accept(set.gates, policy)
	for name, err := range set.broken {
		until := untilCorrected
		if set.declared[name].ReadError != "" {
			until = untilReadable
		}
		set.acceptance[name] = gate.Acceptance{Reason: v1alpha1.ReasonInvalidSpec, Message: err.Error() + until}
	}
	for i := range set.gates {
		g := &set.gates[i]
		g.Accepted = set.acceptance[g.Name].Accepted
		if !policy.AllowsStamp(g.Stamp) {
			g.Stamp = "" // the whole patch that opens the gate would be denied
		}
	}
	return set
}

// add compiles a gate, unless it is what it was: gates are looked at again
// whenever a DaemonSet changes, and an expression takes a while to compile.
func (s *gateSet) add(ng *v1alpha1.NodeGate, before *gateSet) {
	g, known := before.gate(ng.Name)
	if was := before.declared[ng.Name]; known && was.UID == ng.UID && was.Generation == ng.Generation && was.ReadError == ng.ReadError && before.source == s.source {
		again := *g
		again.Stamp = ng.Spec.OpenedAtAnnotation
		s.gates, s.since[ng.Name] = append(s.gates, again), before.since[ng.Name]
		if err := before.broken[ng.Name]; err != nil {
			s.broken[ng.Name] = err
		}
	} else {
		compiled, err := signal.Compile(ng, s.source)
		if err != nil {
			s.broken[ng.Name] = err
		}
		s.gates, s.since[ng.Name] = append(s.gates, compiled), s.seq
	}
	s.declared[ng.Name] = ng
	if ng.Spec.Taint.Key == "" {
		return // it cannot even be read which
	}
	if ng.Spec.Mode == v1alpha1.ModeDryRun {
		return // nothing of it is on any node
	}
	for _, t := range ng.Spec.Taints() {
		s.keys[t.Key] = true
	}
}

// needs returns what must be observed for all gates.
func (s *gateSet) needs(sets *gate.DaemonSets) gate.Needs {
	var all gate.Needs
	for i := range s.gates {
		all.Add(s.gates[i].Needs(sets))
	}
	slices.Sort(all.DaemonSetNamespaces)
	slices.Sort(all.Annotations)
	slices.Sort(all.Resources)
	slices.Sort(all.NodeInfo)
	slices.Sort(all.ResourceSlices)
	slices.SortFunc(all.Pods, func(a, b gate.PodQuery) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Selector, b.Selector), cmp.Compare(a.Annotation, b.Annotation))
	})
	all.DaemonSetNamespaces = slices.Compact(all.DaemonSetNamespaces)
	all.Annotations = slices.Compact(all.Annotations)
	all.Resources = slices.Compact(all.Resources)
	all.NodeInfo = slices.Compact(all.NodeInfo)
	all.ResourceSlices = slices.Compact(all.ResourceSlices)
	all.Pods = slices.Compact(all.Pods)
	return all
}

// only returns the set with no other gates to decide about than a part of them.
func (s *gateSet) only(part gate.Part) *gateSet {
	some := *s
	some.gates, some.part = part.Gates, &part
	return &some
}

// scope tells which gates a decision about the set covers; nil for all.
func (s *gateSet) scope() func(gate string) bool {
	if s.part == nil {
		return nil
	}
	return s.covers
}

// covers tells whether a gate, known or not, is among those to decide about.
func (s *gateSet) covers(name string) bool {
	if s.part == nil {
		return true
	}
	_, is := s.gate(name)
	return is
}

// accepted tells whether a gate is in force.
func (s *gateSet) accepted(name string) bool { return s.acceptance[name].Accepted }

// closesAtBirth tells whether a gate is in force, and to be closed on nodes
// while they are created.
func (s *gateSet) closesAtBirth(name string) bool {
	return s.accepted(name) && mayCloseAtBirth(&s.declared[name].Spec)
}

// mayCloseAtBirth tells whether a gate is one that closes at birth, if it is
// accepted.
func mayCloseAtBirth(spec *v1alpha1.NodeGateSpec) bool { return spec.Enforces() && !spec.Follows() }

// queues tells whether a verdict that wants budget stands in line for it. A node
// that was there before the gate and is closed if it is idle does not: it has to
// be looked at anew when its turn comes, which would keep nodes waiting that are
// known to be unfit. Such nodes share what is left when nobody is in line.
func (s *gateSet) queues(v *gate.Verdict) bool {
	g, known := s.gate(v.Gate)
	return known && v.Wants == gate.WantBudget && (v.Before != "" || g.Existing != v1alpha1.ExistingCloseIfIdle)
}

// terms returns the gates' budgets.
func (s *gateSet) terms() map[string]terms {
	all := make(map[string]terms, len(s.declared))
	for name, ng := range s.declared {
		all[name] = terms{budget: ng.Spec.Budget.MaxReclosed, since: s.since[name]}
	}
	return all
}

// minds tells whether something is to be done about pods that bypass a gate.
func (s *gateSet) minds(name string) bool {
	ng, known := s.declared[name]
	return known && ng.Spec.Enforces() && (ng.Spec.BypassedPods == v1alpha1.BypassedReport || ng.Spec.BypassedPods == v1alpha1.BypassedEvict)
}

// gate returns a gate by name.
func (s *gateSet) gate(name string) (*gate.Gate, bool) {
	i, ok := sort.Find(len(s.gates), func(i int) int { return cmp.Compare(name, s.gates[i].Name) })
	if !ok {
		return nil, false
	}
	return &s.gates[i], true
}

// names returns the gates' names, sorted.
func (s *gateSet) names() []string { return slices.Sorted(maps.Keys(s.declared)) }

// signals returns the names of the gates' signals, by gate.
func (s *gateSet) signals() map[string][]string {
	all := make(map[string][]string, len(s.declared))
	for name, ng := range s.declared {
		all[name] = make([]string, 0, len(ng.Spec.OpenWhen)+len(ng.Spec.CloseWhen))
		for _, signal := range slices.Concat(ng.Spec.OpenWhen, ng.Spec.CloseWhen) {
			all[name] = append(all[name], signal.Name)
		}
	}
	return all
}

// list returns the gates, in no order.
func (s *gateSet) list() []*v1alpha1.NodeGate { return slices.Collect(maps.Values(s.declared)) }

// unneeded tells whether a birth parameter is known to have no gate behind it
// that closes at birth. While it is not known which gates exist, one that is not
// here, or cannot be read, is no reason to leave nodes open.
func (s *gateSet) unneeded(name string) bool {
	if ng, known := s.declared[name]; known {
		return ng.ReadError == "" && !s.closesAtBirth(name)
	}
	return s.complete || s.deleted[name]
}
