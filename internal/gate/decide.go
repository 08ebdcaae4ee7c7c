// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Decide returns the desired state of a node, given the gates, the facts about the
// node, and the current time. It considers all gates together, because gates may share
// taints and are written in one patch. The names of the gates must be unique; their
// order does not matter.
//
// For a gate in DryRun without a shadow, the result is what the gate would do on the
// node if it were switched to Enforce now.
func Decide(gates []Gate, f *Facts, now time.Time) Decision {
	out := decideOnce(gates, f, now, nil)
	for held := (map[string]bool)(nil); ; {
		found := ring(gates, f, &out, func(f *Facts) Decision { return decideOnce(gates, f, now, held) })
		if found == nil {
			return out
		}
		maps.Copy(found, held)
		held = found
		out = decideOnce(gates, f, now, held)
	}
}

// decideOnce is Decide with a given set of gates that keep their state because they
// contradict each other.
func decideOnce(gates []Gate, f *Facts, now time.Time, ring map[string]bool) Decision {
	d := newDecider(f, now)
	defer d.done()
	d.ring = ring
	d.decide(gates)
	out := d.decision()
	d.conditions(gates, &out)
	if anyInDryRun(gates) {
		d.addDryRun(gates, &out)
	} else {
		out.Settled = d.settled() && len(ring) == 0
	}
	return out
}

func (d *decider) decide(gates []Gate) {
	d.blocked = d.Node.blocked()
	d.indexTaints()
	d.readRecords(gates)
	d.lasting = d.findLasting()
	d.readOverrides(gates)
	d.settleOrphans()
	for i := range d.slots {
		s := &d.slots[i]
		d.decideGate(s)
		d.applyOverride(s)
		d.openReturned(s)
		d.setFit(s)
	}
	for i := range d.slots {
		d.removeUnclaimed(&d.slots[i])
	}
	d.findHolders()
	d.setHeldBy()
}

// decider holds the state of one decision.
type decider struct {
	*Facts
	*workspace
	now     time.Time
	recheck time.Time
	again   bool
	// blocked is the reason why no signal can open a gate at present.
	blocked v1alpha1.ReadingReason
	// lasting contains the node's taints that are not transient.
	lasting []corev1.Taint
	// withdrawn and ignored contain overrides, by gate, with the reason.
	withdrawn, ignored map[string]string
	// verdicts are those of the slots, in the same order. readings is memory for the
	// readings of all gates. It is allocated once, because a node may be under many
	// gates and this is the hot path.
	verdicts []Verdict
	readings []Reading
	// supposed contains the gates in dry run that are evaluated as if they acted.
	supposed map[string]bool
	// ring contains the gates that keep their state because they contradict each other.
	ring map[string]bool
	// broken contains the gates that are broken, whatever they select.
	broken []*Gate
}

// workspace is memory that is used only while a decision is made. It is reused by the
// next decision, because with many gates it would be most of the garbage.
type workspace struct {
	slots slots
	// indexes numbers taints: first those on the node, in the node's order, then those
	// that a slot wants on the node. holders contains, for each of these taints, a slot
	// that wants it, or nil. owned contains the ownership of those on the node, in the
	// same order.
	indexes map[TaintID]int
	holders []*slot
	owned   []ownership
}

var workspaces = sync.Pool{New: func() any { return &workspace{indexes: make(map[TaintID]int)} }}

func newDecider(f *Facts, now time.Time) decider {
	return decider{Facts: f, now: now, workspace: workspaces.Get().(*workspace)}
}

// done clears the workspace, so that it references no gate and no node, and returns it
// to the pool.
func (d *decider) done() {
	clear(d.slots)
	clear(d.indexes)
	clear(d.holders)
	clear(d.owned)
	d.slots, d.holders, d.owned = d.slots[:0], d.holders[:0], d.owned[:0]
	workspaces.Put(d.workspace)
}

// since returns the current time as it is written to records. It is never earlier than
// the Node's creation, even if the clocks differ; otherwise the record would appear to
// belong to a former Node.
func (d *decider) since() time.Time { return Latest(d.now, d.Node.Created) }

// frozen reports whether the slot involves a taint that must not be changed. All gates
// of a node are written in one patch, and a single forbidden taint would cause the API
// server to reject the whole patch.
func (d *decider) frozen(s *slot) bool {
	switch g := s.gate; {
	case d.Allowed == nil:
		return false
	case g == nil:
	case g.Mode == v1alpha1.ModeDryRun: // it changes only taints that it added before
		if d.acts(g) {
			return false
		}
	case !d.Allowed.Allows(g.Taint), !d.Allowed.Allows(g.taint(true)) && g.Accepted:
		return true // a gate that is not accepted does not add its other taint
	}
	return s.had.Key != "" && !d.Allowed.Allows(s.had)
}

// decideGate decides about one gate.
func (d *decider) decideGate(s *slot) {
	switch {
	case s.gate == nil, d.suspended(s):
		return
	case s.gate.Broken, d.frozen(s):
		d.hold(s)
		d.ignore(s, "its taint must not be changed at present; see the gate's condition Accepted")
		return
	case !s.selected:
		d.leave(s)
		return
	}
	if d.holdRing(s) {
		d.ignore(s, "the gate keeps its state on this node, because it contradicts another gate")
		return
	}
	d.takeOverride(s)
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
	d.setOutcome(s)
}

// setOutcome copies the outcome from the record to the verdict.
func (d *decider) setOutcome(s *slot) {
	if s.after != nil {
		s.verdict.After, s.verdict.Reason = s.after.State, s.after.Reason
		s.verdict.Since = s.after.closedSince(&d.Node)
		s.verdict.staysInBoot = s.staysInBoot()
	}
}

// staysInBoot reports whether the gate stays open, and its record changes from one boot to
// another.
func (s *slot) staysInBoot() bool {
	b, a := s.before, s.after
	return b != nil && b.State == v1alpha1.StateOpen && a.State == v1alpha1.StateOpen && b.Boot != "" && a.Boot != "" && b.Boot != a.Boot
}

// carriesUnclaimed reports whether the node carries the taint, with any value, and no
// closed gate's record accounts for it.
func (d *decider) carriesUnclaimed(t v1alpha1.Taint) bool {
	return t.Key != "" && d.carries(t) && !d.accounted(t)
}

// carriesOwn reports whether carriesUnclaimed is true of one of the gate's taints.
func (d *decider) carriesOwn(g *Gate) bool {
	return d.carriesUnclaimed(g.Taint) || d.carriesUnclaimed(g.RecloseTaint)
}

// closeUnderBudget closes the gate with this record if budget has been granted, and
// requests it otherwise.
func (d *decider) closeUnderBudget(s *slot, r *Record) {
	if !d.Granted[s.gate.Name] {
		s.verdict.Wants = WantBudget
		return
	}
	s.after = r
}

// closed returns the record of a gate that closes now. reclosed is true if the node is
// not new to the gate.
func (d *decider) closed(g *Gate, reason v1alpha1.Reason, reclosed bool) *Record {
	return &Record{
		State: v1alpha1.StateClosed, Since: d.since(), Reason: reason,
		Boot: d.Node.BootID, Taint: TaintText(g.taint(reclosed)), Reclosed: reclosed, Source: g.Source,
	}
}

// opened returns the record of a gate that opens now. The record of a gate that never
// closes again omits the boot, so that a later change of its policy does not treat an
// old reboot as a new one.
func (d *decider) opened(g *Gate, reason v1alpha1.Reason) *Record {
	r := &Record{State: v1alpha1.StateOpen, Since: d.since(), Reason: reason, Taint: TaintText(g.Taint), Source: g.Source}
	if g.recloses() {
		r.Boot = d.Node.BootID
	}
	return r
}

// recheckAt requests that the decision is repeated at the given time or earlier.
func (d *decider) recheckAt(at time.Time) { d.recheck = Earliest(d.recheck, at) }
