// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Decide says what should be on a node, given the gates, the facts about the
// node, and the time. It considers all gates together, because they may share
// taints and are written in one patch. The gates' names are unique; their order
// does not matter.
//
// What a gate would do on the node if it were switched to Enforce now is what
// Decide says of it in DryRun, with no shadow.
func Decide(gates []Gate, f *Facts, now time.Time) Decision {
	d := newDecider(f, now)
	defer d.done()
	d.decide(gates)
	out := d.decision()
	if anyInDryRun(gates) {
		d.tryOut(gates, &out)
	} else {
		out.Settled = d.settled()
	}
	return out
}

func (d *decider) decide(gates []Gate) {
	d.blocked = d.Node.blocked()
	d.lasting = d.Transient.Lasting(d.Node.Taints)
	d.findPlaces()
	d.readRecords(gates)
	d.readOverrides(gates)
	d.settleOrphans()
	for i := range d.slots {
		s := &d.slots[i]
		d.decideGate(s)
		d.putUnder(s)
		d.release(s)
	}
	for i := range d.slots {
		d.lift(&d.slots[i])
	}
	d.findHolders()
	d.sayWhoHolds()
}

// decider carries one decision from step to step.
type decider struct {
	*Facts
	*workspace
	now     time.Time
	recheck time.Time
	// blocked says why no signal can open a gate at present.
	blocked v1alpha1.ReadingReason
	// lasting are the node's taints that do not come and go by themselves.
	lasting []corev1.Taint
	// withdrawn and ignored are overrides, by gate, with what is to be said of them.
	withdrawn, ignored map[string]string
	// verdicts are the slots', in their order, and readings is memory for all gates
	// at once: a node may be under many, and this is the path that everything waits
	// for.
	verdicts []Verdict
	readings []Reading
	// supposed are gates in dry run that are decided about as if they acted.
	supposed map[string]bool
}

// workspace is what a decision needs while it is made. Nothing in it outlives the
// decision, so that the next one uses it again: with many gates it is most of what
// would otherwise be garbage.
type workspace struct {
	slots slots
	// places number taints: those on the node, in its order, and after them those
	// that a slot wants there. holders are, by place, a slot that wants the taint;
	// nil where none does.
	places  map[TaintID]int
	holders []*slot
}

var workspaces = sync.Pool{New: func() any { return &workspace{places: make(map[TaintID]int)} }}

func newDecider(f *Facts, now time.Time) decider {
	return decider{Facts: f, now: now, workspace: workspaces.Get().(*workspace)}
}

// done gives the workspace back, empty: it holds on to no gate and no node.
func (d *decider) done() {
	clear(d.slots)
	clear(d.places)
	clear(d.holders)
	d.slots, d.holders = d.slots[:0], d.holders[:0]
	workspaces.Put(d.workspace)
}

// since is the time of what happens now, as records tell it: never earlier than
// the Node itself, whatever the clocks say, or the record would look like one of
// an earlier Node.
func (d *decider) since() time.Time {
	if d.now.Before(d.Node.Created) {
		return d.Node.Created
	}
	return d.now
}

// frozen tells whether the slot concerns a taint that may not be touched. All
// of a node's gates are written in one patch: one forbidden taint in it would
// have the whole patch refused.
func (d *decider) frozen(s *slot) bool {
	switch g := s.gate; {
	case d.Allowed == nil:
		return false
	case g == nil:
	case g.Mode == v1alpha1.ModeDryRun: // which touches nothing but what it had
		if d.acts(g) {
			return false
		}
	case !d.Allowed.Allows(g.Taint), !d.Allowed.Allows(g.taint(true)) && g.Accepted:
		return true // one that is not accepted does not put its other taint there
	}
	return s.had.Key != "" && !d.Allowed.Allows(s.had)
}

// decideGate decides about one known gate.
func (d *decider) decideGate(s *slot) {
	switch {
	case s.gate == nil, d.suspended(s):
		return
	case s.gate.Broken, d.frozen(s):
		s.hold()
		d.ignore(s, "its taint may not be touched at present, see the gate's condition Accepted")
		return
	case !s.selected:
		s.verdict.Reason = v1alpha1.ReasonNotSelected
		if d.Node.optedOut() {
			s.verdict.Reason = v1alpha1.ReasonOptedOut
		}
		if s.before != nil {
			s.verdict.ClosedSince = s.before.taintedSince(&d.Node)
		}
		return
	}
	d.heed(s)
	switch {
	case s.gate.CloseWhen:
		d.follow(s)
	case s.before == nil:
		d.admit(s)
	case s.before.State == v1alpha1.StateClosed:
		d.keepClosed(s)
	default:
		d.keepOpen(s)
	}
	d.tell(s)
}

// tell has the verdict say what the record will.
func (d *decider) tell(s *slot) {
	if s.after != nil {
		s.verdict.After, s.verdict.Reason = s.after.State, s.after.Reason
		s.verdict.Since = s.after.closedSince(&d.Node)
	}
}

// admit decides about a node without a record: it is new to the gate, carries
// one of its taints already, or was there before the gate.
func (d *decider) admit(s *slot) {
	g := s.gate
	switch {
	case !g.Accepted:
	case g.isNew(&d.Node, d.now):
		// Whatever it carries, as the API server's own policy does.
		d.closeAndTry(s, v1alpha1.ReasonBirth, false)
	case d.carriesOwn(g):
		d.closeAndTry(s, v1alpha1.ReasonAdopted, !d.carriesUnclaimed(g.Taint))
	case g.Existing != v1alpha1.ExistingIgnore:
		d.admitExisting(s)
	}
}

// carriesUnclaimed tells whether the node carries the taint (with any value)
// and no closed gate's record accounts for it.
func (d *decider) carriesUnclaimed(t v1alpha1.Taint) bool {
	return t.Key != "" && d.carries(t) && !d.accounted(t)
}

// carriesOwn tells the same of either of the gate's taints.
func (d *decider) carriesOwn(g *Gate) bool {
	return d.carriesUnclaimed(g.Taint) || d.carriesUnclaimed(g.RecloseTaint)
}

// closeAndTry makes the node a member with the gate closed, unless the signals
// hold already: then it is a member with the gate open, and nothing flickers.
func (d *decider) closeAndTry(s *slot, reason v1alpha1.Reason, reclosed bool) {
	s.after = d.closed(s.gate, reason, reclosed)
	d.tryOpen(s)
}

// admitExisting decides about a node that was there before the gate, where
// existingNodes asks for more than to ignore it.
func (d *decider) admitExisting(s *slot) {
	g := s.gate
	r := d.closed(g, v1alpha1.ReasonExisting, true) // it was in use
	if d.evaluate(s, r) {
		s.verdict.Wants = WantPace
		if d.Granted[g.Name] {
			s.verdict.Wants = ""
			s.after = d.opened(g, v1alpha1.ReasonAdopted)
		}
		return
	}
	if s.verdict.Blocked != "" || anyUnknown(s.verdict.Readings) {
		return
	}
	switch g.Existing {
	case v1alpha1.ExistingClose:
		d.closeUnderBudget(s, r)
	case v1alpha1.ExistingCloseIfIdle:
		d.closeIfIdle(s, r)
	}
}

// closeUnderBudget closes the gate with this record, as soon as it is granted.
func (d *decider) closeUnderBudget(s *slot, r *Record) {
	if !d.Granted[s.gate.Name] {
		s.verdict.Wants = WantBudget
		return
	}
	s.after = r
}

// closed is the record of a gate that closes now, on a node that is new to it or
// on one that is not.
func (d *decider) closed(g *Gate, reason v1alpha1.Reason, reclosed bool) *Record {
	return &Record{
		State: v1alpha1.StateClosed, Since: d.since(), Reason: reason,
		Boot: d.Node.BootID, Taint: TaintText(g.taint(reclosed)), Reclosed: reclosed, Source: g.Source,
	}
}

// opened is the record of a gate that opens now. A gate that never closes
// again does not remember the boot, so that a later change of policy does not
// take a reboot of long ago for a new one.
func (d *decider) opened(g *Gate, reason v1alpha1.Reason) *Record {
	r := &Record{State: v1alpha1.StateOpen, Since: d.since(), Reason: reason, Taint: TaintText(g.Taint), Source: g.Source}
	if g.recloses() {
		r.Boot = d.Node.BootID
	}
	return r
}

// recheckAt has the decision looked at again at a time.
func (d *decider) recheckAt(at time.Time) {
	if !at.IsZero() && (d.recheck.IsZero() || at.Before(d.recheck)) {
		d.recheck = at
	}
}
