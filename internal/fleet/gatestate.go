// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"slices"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// SetWaitsFor sets the signal that a closed gate waits for. For a gate that waits for
// budget, it sets the signal that requires the gate to close, or the reading of the group
// that does.
func (s *GateState) SetWaitsFor(g *gate.Gate, v *gate.Verdict) {
	if len(g.Signals) == 0 && v.After == v1alpha1.StateClosed {
		s.Reading.Reason = v1alpha1.ReadingInvalidSpec
	}
	w := v.Waiting(g.CloseWhen)
	if s.Throttled && !g.CloseWhen { // the signal that requires the gate to close
		w = slices.IndexFunc(v.Readings, func(r gate.Reading) bool { return r.State == gate.NotYet })
	}
	if w < 0 && s.Throttled && v.Group != nil {
		s.Reading = v.Group.Reading()
	}
	if w >= 0 && (v.After == v1alpha1.StateClosed || s.Throttled) {
		s.Signal, s.Reading = g.Signals[w].Name, v.Readings[w]
		// Changes of these fields need no new status.
		s.Reading.Recheck, s.Reading.Since, s.Reading.Longer, s.Reading.Alternative = time.Time{}, time.Time{}, false, false
	}
}

// SetUndecided records a signal that is unknown and may hide a reason to close. No gate
// waits for it, so nothing else reports it.
func (s *GateState) SetUndecided(g *gate.Gate, v *gate.Verdict) {
	if !g.CloseWhen || !v.Selected || v.After == v1alpha1.StateClosed {
		return
	}
	for i := range v.Readings {
		if v.Readings[i].State == gate.Unknown {
			s.undecided = "signal " + g.Signals[i].Name + ": " + v.Readings[i].Message()
			return
		}
	}
}

// SetUnwritten records that the decision was not written: the gate still has the recorded
// state. Denied, Failed and FailedLong must be set separately.
func (s *GateState) SetUnwritten(v *gate.Verdict, record string) {
	s.State = v.Before
	if record == "" { // the decided state, which SetOverride has set, does not count either
		s.own, s.ownReason = "", ""
	} else if r, err := gate.ParseRecord(record); err == nil {
		s.Reason, s.Overdue = r.Reason, r.Overdue
		s.own, s.ownReason = r.State, r.Reason
		s.underOverride = s.underOverride || r.Override != ""
	}
	if v.Opened() && !v.ClosedSince.IsZero() {
		s.Since = v.ClosedSince
	}
	s.Published = v.WasPublished
}

// SetOverride records a manual override. Budgets count the gate's own state, without the
// override. When the override ends, the gate closes again without requesting budget,
// because the budget was granted before. Closing by an override needs no budget.
func (s *GateState) SetOverride(v *gate.Verdict) {
	if o := v.Overridden; o != nil {
		s.underOverride, s.Override = true, o.State
		s.own, s.ownReason = o.Own, o.OwnReason
	}
}

// withoutOverride returns the state and reason of the gate apart from an override.
func (s *GateState) withoutOverride() (state string, reason v1alpha1.Reason) {
	if s.underOverride {
		return s.own, s.ownReason
	}
	return s.State, s.Reason
}

// lapsed reports whether the gate is open because its deadline has passed, and its
// signals have not all held since.
func (s *GateState) lapsed() bool {
	return s.State == v1alpha1.StateOpen && s.Reason == v1alpha1.ReasonDeadlinePassed
}

// LackingPods returns the nodes on which both gates are closed and lack a pod.
func (l *Ledger) LackingPods(a, b string) (nodes NameList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one, other := l.gates[a], l.gates[b]
	if one == nil || other == nil || !one.lacksPods() || !other.lacksPods() {
		return nodes
	}
	for name, n := range l.nodes {
		nodes.AddIf(n.lacksPod(one) && n.lacksPod(other), name)
	}
	return nodes
}

// lacksPods reports whether the gate lacks a pod on any node.
func (g *gateEntry) lacksPods() bool {
	return g.any(func(s *shape) bool { return s.GateState.lacksPod() })
}

// lacksPod reports whether a gate lacks a pod on the node.
func (n *nodeEntry) lacksPod(g *gateEntry) bool {
	s := n.stateOf(g)
	return s != nil && s.shape.GateState.lacksPod()
}

// lacksPod reports whether the gate is closed because a pod is missing.
func (s *GateState) lacksPod() bool { return s.State == v1alpha1.StateClosed && s.Reading.LacksPod() }

// GateStates returns the states of gates on a node, sorted by gate name, and whether the
// node has been evaluated.
func (l *Ledger) GateStates(node string) (all []GateState, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, known := l.nodes[node]
	if !known {
		return nil, false
	}
	for i := range n.states {
		all = append(all, n.states[i].GateState())
	}
	return all, true
}

// Unlisted returns the names of gates that are not in known although nodes have records
// of them, because these gates are not known to have been deleted.
func (l *Ledger) Unlisted(known map[string]*v1alpha1.NodeGate) (names NameList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, g := range l.gates {
		names.AddIf(known[name] == nil && g.hasUnlisted(), name)
	}
	return names
}

// hasUnlisted reports whether any node has a record of the gate while it is not listed.
func (g *gateEntry) hasUnlisted() bool {
	return g.any(func(s *shape) bool { return s.GateState.Unlisted })
}

// Usage is the number of a gate's nodes in a zone that are closed or being closed under
// its budget, and the number that the budget allows.
type Usage struct{ Used, Allowed int }

// Usage returns the usage by zone. It is empty until all nodes have been counted.
func (l *Ledger) Usage(gateName string) map[string]Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	zones := make(map[string]Usage)
	if !l.isCounted(gateName) {
		return zones
	}
	for key, z := range cmp.Or(l.gates[gateName], &gateEntry{}).zones {
		if key.conditions {
			continue
		}
		zones[key.zone] = Usage{Used: z.used + z.inFlight, Allowed: gate.MaxReclosed(l.terms[gateName].Budget, z.members)}
	}
	return zones
}
