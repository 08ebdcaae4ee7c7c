// SPDX-License-Identifier: Apache-2.0

package gate

import "github.com/nodegate/nodegate/api/v1alpha1"

// Following.
//
// A closeWhen gate is closed while all of its signals hold, and open as soon as
// one does not: condition to taint, and back. It applies to every node that it
// selects, so that membership, birth, boots and evidence mean nothing to it. It
// follows what the API tells, whatever its age: that a node is silent, shuts
// down or is being set up may be the very thing that it is to close for, and
// must not keep it from opening.
//
// A node on which it is open needs no record: a fleet that is fine is never
// written to. The record of a closed gate goes together with its taint. An open
// one is there only to remember a fight with another writer, or that a person
// opened the gate; where another gate or an earlier spec left one, it is not
// worth a write.

// follow decides about a closeWhen gate.
func (d *decider) follow(s *slot) {
	all := d.presumeGone(s.gate, d.read(s, Trust{}, false))
	switch {
	case s.before == nil || s.before.State == v1alpha1.StateOpen:
		d.followOpen(s, all)
	case d.mustStartOver(s, all):
		d.startOver(s, all)
	case s.gate.Manual:
		d.awaitHand(s, all)
	default:
		d.followClosed(s, all)
	}
	if s.after == nil && s.gate.Accepted {
		s.verdict.After = v1alpha1.StateOpen
	}
	isOpen := s.after == nil || s.after.State == v1alpha1.StateOpen
	s.lifts = isOpen && all == NotYet && s.gate.Accepted && !d.spares(s.gate)
	if !isOpen && all == NotYet && s.gate.Manual {
		s.verdict.Blocked = v1alpha1.ReadingReopenedByHand
	}
}

// followClosed decides about a closed gate that opens by itself.
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

// awaitHand decides about a closed gate that a person opens, by taking the taint
// away. What the signals say then is for a person to know.
func (d *decider) awaitHand(s *slot, all State) {
	if s.isOpenByHand() || d.carries(s.had) {
		s.renew()
		return
	}
	s.verdict.ClosedSince = s.before.closedSince(&d.Node)
	s.verdict.Reason = v1alpha1.ReasonOpenedByHand
	if all != NotYet { // or else it would close at once
		s.after = d.opened(s.gate, v1alpha1.ReasonOpenedByHand)
	}
}

// followOpen decides about a node on which the gate is open.
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
	byHand := s.gate.Manual && s.before != nil && s.before.Reason == v1alpha1.ReasonOpenedByHand
	switch {
	case all == NotYet && byHand:
		s.after = nil // armed again
	case all != Holds || byHand:
	case !d.Granted[s.gate.Name]:
		s.verdict.Wants = WantBudget
	default:
		s.after = d.closed(s.gate, v1alpha1.ReasonSignalsHold, false)
	}
}

// adopt decides about a node that carries the taint although no gate put it
// there: another tool did, of which this gate takes over, or a person. The node
// is closed, then, and nothing changes on it, which needs no budget. If the
// signals say that it is fit, the taint goes, as the last of that tool's
// taints would otherwise stay for ever.
func (d *decider) adopt(s *slot, all State) {
	switch {
	case all == Holds:
		// Like any other close for this reason, it counts against the budget.
		s.after = d.closed(s.gate, v1alpha1.ReasonSignalsHold, false)
	case d.spares(s.gate):
		s.after = nil // a fight of before is over
	case all == Unknown, s.gate.Manual:
		s.after = d.closed(s.gate, v1alpha1.ReasonAdopted, false)
	}
}

// lift keeps a taint that no gate accounts for off a node on which closeWhen
// gates are open. Whoever put it there may put it there again, so one of the
// gates that would have it away keeps a record, to remember the fight by. It
// comes after all gates are decided about, since one of them may claim the
// taint.
func (d *decider) lift(s *slot) {
	g := s.gate
	if g == nil || !g.CloseWhen || g.Manual || !g.Accepted || s.keep || s.verdict.After != v1alpha1.StateOpen {
		return
	}
	undone := s.lifts && d.carriesUnclaimed(g.Taint) && !d.keptByOther(s)
	if undone && s.after == nil {
		if s.before == nil {
			s.verdict.Before = "" // closed, though by no gate
		}
		s.after = d.opened(g, v1alpha1.ReasonSignalsCleared)
		d.tell(s)
	}
	if s.after != nil {
		d.defend(s, undone)
	}
}

// keptByOther tells whether another gate, with a record of its own, claims the
// slot's taint or keeps it off the node. Of several that would have it away the
// first remembers.
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
		if looksBack := passed && o.gate.CloseWhen && o.after.State == v1alpha1.StateOpen; !looksBack {
			return true
		}
	}
	return false
}
