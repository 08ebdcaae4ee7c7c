// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Membership.
//
// A node is a member of an openWhen gate if it carries a record of the gate. Whether a
// node that the gate selects becomes a member depends on the following. If it does not,
// the verdict has the reason:
//
//	the node                               existingNodes   becomes
//	is new: created since the gate, at     any             a member, closed (Birth)
//	most ten minutes ago
//	carries the gate's taint               any             a member, closed (Adopted)
//	was created before the gate            Ignore          no member (CreatedBeforeGate)
//	was no longer new when the gate        Ignore          no member (NotClosedAtBirth)
//	first selected it
//	any other, signals hold                other           a member, open, at a limited rate
//	any other, a signal does not hold      Adopt           no member until they hold
//	any other, a signal does not hold      CloseIfIdle     a member, closed, under the
//	                                                       budget, once it is idle
//	any other, a signal does not hold      Close           a member, closed, under the
//	                                                       budget
//	any other, unreachable, or signals     other           no member until that changes
//	unknown
//
// A gate that is paused or not accepted gets no new members.
//
// A node ceases to be a member when the gate has not selected it for LeavesAfter.
// Labels disappear and return while the tools that set them restart, and selectors are
// edited in several steps. The taint stays during that time, and a node that is
// selected again keeps its state. The opt-out label takes effect immediately, because
// only users set it.

// LeavesAfter is how long a gate must not have selected a member before the node ceases
// to be one.
const LeavesAfter = 30 * time.Second

// leave handles a node that the gate does not select.
func (d *decider) leave(s *slot) {
	v := s.verdict
	if s.before == nil {
		v.Reason = d.whyNotSelected(s.gate)
		return
	}
	if OptOut(d.Node.Labels, s.gate.PlainOptOut) == "" && d.mayComeBack(s) {
		return
	}
	v.Reason = d.whyNotSelected(s.gate)
	v.ClosedSince = s.before.TaintedSince(&d.Node)
}

func (d *decider) whyNotSelected(g *Gate) v1alpha1.Reason {
	if OptOut(d.Node.Labels, g.PlainOptOut) != "" {
		return v1alpha1.ReasonOptedOut
	}
	return v1alpha1.ReasonNotSelected
}

// mayComeBack reports whether a member that the gate no longer selects still counts as
// one, because the gate has ceased to select it only recently. If so, the member keeps
// its state.
func (d *decider) mayComeBack(s *slot) bool {
	v, since := s.verdict, Earliest(d.LeftSince[s.gate.Name], d.now)
	v.LeftSince = since
	leaves := since.Add(LeavesAfter)
	if !d.now.Before(leaves) {
		return false
	}
	d.hold(s)
	v.Held, v.Leaves = false, leaves
	d.recheckAt(leaves)
	return true
}

// admit handles a node without a record: it is new to the gate, carries one of its
// taints, or existed before the gate.
func (d *decider) admit(s *slot) {
	g := s.gate
	switch {
	case !g.Accepted:
		s.verdict.NonMember = v1alpha1.NonMemberNotAccepted
	case g.isNew(&d.Node, d.now):
		// The taints that the node carries do not matter for the record, as in the API
		// server's birth policy, but only for what is reported.
		s.verdict.BornTainted = d.carries(g.Taint)
		d.closeAndTry(s, v1alpha1.ReasonBirth, false)
	case d.carriesOwn(g):
		d.closeAndTry(s, v1alpha1.ReasonAdopted, !d.carriesUnclaimed(g.Taint))
	case g.Existing != v1alpha1.ExistingIgnore:
		d.admitExisting(s)
	case d.Node.Created.Before(g.Created):
		s.verdict.NonMember = v1alpha1.NonMemberCreatedBeforeGate
	default:
		s.verdict.NonMember = v1alpha1.NonMemberNotClosedAtBirth
	}
}

// joins returns the record of a node that becomes a member with the gate closed. It contains what
// this replica observed of the boot: what was known of pods when it began and, if the gate needs
// that, when that was.
func (d *decider) joins(g *Gate, reason v1alpha1.Reason, reclosed bool) *Record {
	r := d.closed(g, reason, reclosed)
	r.Digest = g.takeDigestOfFormer(d.Facts)
	return d.inBootOf(g, r, r)
}

// closeAndTry makes the node a member with the gate closed. If the signals hold
// already, the node becomes a member with the gate open instead, without closing it
// first.
func (d *decider) closeAndTry(s *slot, reason v1alpha1.Reason, reclosed bool) {
	s.isNew, s.after = !reclosed, d.joins(s.gate, reason, reclosed)
	d.tryOpen(s)
}

// admitExisting handles a node that existed before the gate, if existingNodes is not
// Ignore.
func (d *decider) admitExisting(s *slot) {
	g := s.gate
	r := d.joins(g, v1alpha1.ReasonExisting, true) // the node was in use
	switch fit := d.evaluate(s, r); {
	case fit && d.Granted[g.Name]:
		s.after = d.inBootOf(g, r, d.opened(g, v1alpha1.ReasonAdopted))
	case fit:
		s.verdict.Wants, s.verdict.NonMember = WantPace, v1alpha1.NonMemberWaitsForTurn
	case s.verdict.Blocked != "":
		s.verdict.NonMember = v1alpha1.NonMemberBlocked
	case anyUnknown(s.verdict.Readings):
		s.verdict.NonMember = v1alpha1.NonMemberSignalsUnknown
	case g.Existing == v1alpha1.ExistingClose:
		d.closeUnderBudget(s, r)
	case g.Existing == v1alpha1.ExistingCloseIfIdle:
		d.closeIfIdle(s, r)
	default:
		s.verdict.NonMember = v1alpha1.NonMemberSignalsDoNotHold
	}
	switch s.verdict.Wants {
	case WantBudget:
		s.verdict.NonMember = v1alpha1.NonMemberWaitsForBudget
	case WantPods:
		s.verdict.NonMember = v1alpha1.NonMemberPodsNotListed
	case WantIdle:
		s.verdict.NonMember = v1alpha1.NonMemberNotIdle
	}
}
