// SPDX-License-Identifier: Apache-2.0

package gate

import "github.com/nodegate/nodegate/api/v1alpha1"

// Following.
//
// A closeWhen gate is closed while all of its signals hold, and open as soon as one of
// them does not hold. It turns a condition into a taint and back. It applies to every
// node that it selects, so membership, birth, boots and evidence have no meaning for
// it. It follows what the API reports, however old: that a node is unreachable,
// shutting down or being set up may be exactly what the gate closes for, and must not
// prevent it from opening.
//
// A node on which the gate is open needs no record, so a healthy fleet is never written
// to. The record of a closed gate is removed together with its taint. A record of an
// open gate exists only to count writes of another writer, or because a user opened the
// gate. A record left by another gate or an earlier spec is kept, because removing it
// is not worth a write.

// follow handles a closeWhen gate.
func (d *decider) follow(s *slot) {
	all := d.presumeGone(s.gate, d.read(s, d.input(s, &Record{}, Trust{}, false)))
	switch {
	case s.before == nil || s.before.State == v1alpha1.StateOpen:
		d.followOpen(s, all)
	case d.mustStartOver(s, all):
		d.startOver(s, all)
	case s.gate.Manual:
		d.awaitManualOpen(s, all)
	default:
		d.followClosed(s, all)
	}
	s.setRecordless()
	isOpen := s.after == nil || s.after.State == v1alpha1.StateOpen
	s.removes = isOpen && all == NotYet && s.gate.Accepted && !d.spares(s.gate)
	if !isOpen && all == NotYet && s.gate.Manual {
		s.verdict.Blocked = v1alpha1.ReadingReopenedByHand
	}
}

// setRecordless completes the verdict of a closeWhen gate that has no record: every
// node that it selects is a member, and the gate is open there, unless it is not
// accepted.
func (s *slot) setRecordless() {
	switch {
	case s.after != nil:
	case s.gate.Accepted:
		s.verdict.After = v1alpha1.StateOpen
	case s.verdict.Before == "":
		s.verdict.NonMember = v1alpha1.NonMemberNotAccepted
	}
}

// followClosed handles a closed gate that opens automatically.
func (d *decider) followClosed(s *slot, all State) {
	soaked := d.soaked(s, s.before, all)
	if all == NotYet && !d.tooSoon(s, s.before, soaked) {
		s.verdict.ClosedSince = s.before.closedSince(&d.Node)
		s.verdict.Reason = v1alpha1.ReasonSignalsCleared
		if s.gate.detaches() && !d.Node.Silent() {
			s.verdict.Reason = v1alpha1.ReasonNodeReturned
		}
		return
	}
	s.renew()
	d.defendClosed(s)
}

// awaitManualOpen handles a closed gate that a user opens by removing the taint. The
// gate then opens regardless of its signals, which the user is expected to have
// checked.
func (d *decider) awaitManualOpen(s *slot, all State) {
	if s.isOverriddenOpen() || d.carries(s.had) {
		s.renew()
		return
	}
	s.verdict.ClosedSince = s.before.closedSince(&d.Node)
	s.verdict.Reason = v1alpha1.ReasonOpenedByHand
	if all != NotYet { // otherwise it would close immediately
		s.after = d.opened(s.gate, v1alpha1.ReasonOpenedByHand)
	}
}

// followOpen handles a node on which the gate is open.
func (d *decider) followOpen(s *slot, all State) {
	if s.before != nil {
		s.renew()
	}
	if !s.gate.Accepted {
		return
	}
	s.verdict.Before = v1alpha1.StateOpen // every selected node is a member
	if d.carriesUnclaimed(s.gate.Taint) {
		d.adopt(s, all)
		return
	}
	manual := s.gate.Manual && s.before != nil && s.before.Reason == v1alpha1.ReasonOpenedByHand
	switch {
	case all == NotYet && manual:
		s.after = nil // it may close again
	case all != Holds || manual:
	case !d.Granted[s.gate.Name]:
		s.verdict.Wants = WantBudget
	default:
		s.after = d.closed(s.gate, v1alpha1.ReasonSignalsHold, false)
	}
}

// adopt handles a node that carries the taint although no gate added it. A user may
// have added it, or another tool that this gate replaces. The node is already closed,
// so nothing changes on it and no budget is needed. If a signal does not hold, the
// taint is removed; otherwise, the last taints of a replaced tool would stay forever.
func (d *decider) adopt(s *slot, all State) {
	switch {
	case all == Holds:
		// Like every closing for this reason, it counts against the budget.
		s.after = d.closed(s.gate, v1alpha1.ReasonSignalsHold, false)
	case d.spares(s.gate):
		s.after = nil // earlier contention is over
	case all == Unknown, s.gate.Manual:
		s.after = d.closed(s.gate, v1alpha1.ReasonAdopted, false)
	}
}

// removeUnclaimed removes a taint that no gate accounts for from a node on which
// closeWhen gates are open. Another writer may add it again, so one of the gates keeps
// a record to count that. It runs after all gates have been decided, because one of
// them may claim the taint.
func (d *decider) removeUnclaimed(s *slot) {
	g := s.gate
	if g == nil || !g.CloseWhen || g.Manual || !g.Accepted || s.keep || s.verdict.After != v1alpha1.StateOpen {
		return
	}
	reverted := s.removes && d.carriesUnclaimed(g.Taint) && !d.keptByOther(s)
	if reverted && s.after == nil {
		if s.before == nil {
			s.verdict.Before = "" // the node is closed, but not by a gate
		}
		s.after = d.opened(g, v1alpha1.ReasonSignalsCleared)
		d.setOutcome(s)
	}
	if s.after != nil {
		d.defend(s, reverted)
	}
}

// keptByOther reports whether another gate that has a record claims the slot's taint,
// or keeps it off the node. If several gates would remove the taint, the first of them
// keeps the record.
func (d *decider) keptByOther(s *slot) bool {
	passed := false
	for i := range d.slots {
		o := &d.slots[i]
		passed = passed || o == s
		if o == s || o.keep || o.after == nil || o.gate == nil || !o.gate.Accepted {
			continue
		}
		if !o.gate.owns(s.gate.Taint.Key, s.gate.Taint.Effect) {
			continue
		}
		if isLater := passed && o.gate.CloseWhen && o.after.State == v1alpha1.StateOpen; !isLater {
			return true
		}
	}
	return false
}
