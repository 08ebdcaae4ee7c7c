// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"cmp"
	"slices"
	"strings"
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
	}
	return out
}

func (d *decider) decide(gates []Gate) {
	d.blocked = d.Node.blocked()
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
	// withdrawn and ignored are overrides, by gate, with what is to be said of them.
	withdrawn, ignored map[string]string
	// readings is memory for all gates at once: a node may be under many, and this
	// is the path that everything waits for.
	readings []Reading
	// supposed are gates in dry run that are decided about as if they acted.
	supposed map[string]bool
}

// workspace is what a decision needs while it is made. Nothing in it outlives the
// decision, so that the next one uses it again: with many gates it is most of what
// would otherwise be garbage.
type workspace struct {
	slots   []slot
	records []Record
}

var workspaces = sync.Pool{New: func() any { return new(workspace) }}

func newDecider(f *Facts, now time.Time) decider {
	return decider{Facts: f, now: now, workspace: workspaces.Get().(*workspace)}
}

// done gives the workspace back, empty: it holds on to no gate and no node.
func (d *decider) done() {
	clear(d.slots)
	clear(d.records)
	d.slots, d.records = d.slots[:0], d.records[:0]
	workspaces.Put(d.workspace)
}

// slot is one gate, or a record whose gate is not known, on the node.
type slot struct {
	// gate is nil when the record's gate is not known.
	gate *Gate
	// present tells whether the node has a record, raw is its text, and before
	// its content.
	present bool
	raw     string
	before  *Record
	// damaged records cannot be read, or are older than the Node; before is then
	// not what they say.
	damaged bool
	// garbled records cannot be read at all: nobody knows what they say.
	garbled bool
	// had is the taint that the record accounts for: of a closed gate, or of one
	// that a person has closed.
	had v1alpha1.Taint
	masking
	// after is the record as it should be; nil for none. Where it begins with
	// what is there, it is renewed.
	after   *Record
	renewed Record
	// keep leaves everything that concerns the slot as it is.
	keep bool
	// leave leaves the taint alone, because another writer fights for it; undoes
	// undoes what that one did.
	leave, undoes bool
	// lifts keeps an open gate's taint off the node, with or without a record.
	lifts bool
	// says is what the signals of an openWhen gate come to.
	says    State
	verdict Verdict
}

// readRecords pairs gates and records, in the order of the gates' names.
func (d *decider) readRecords(gates []Gate) {
	d.slots = slices.Grow(d.slots, len(d.Node.Records)+2) // what is no member has no record, as a rule
	d.records = slices.Grow(d.records, len(d.Node.Records))
	paired, optedOut := 0, d.Node.optedOut()
	for i := range gates {
		g := &gates[i]
		_, recorded := d.Node.Records[g.Name]
		selected := !g.Broken && !optedOut && g.Selector.Matches(d.Node.Labels)
		if recorded {
			paired++
		} else if !selected || g.Mode == v1alpha1.ModeDryRun && !d.acts(g) {
			continue
		}
		d.slots = append(d.slots, d.newSlot(g, g.Name, selected))
	}
	if paired < len(d.Node.Records) {
		for name := range d.Node.Records {
			if !slices.ContainsFunc(d.slots, func(s slot) bool { return s.verdict.Gate == name }) {
				d.slots = append(d.slots, d.newSlot(nil, name, false))
			}
		}
	}
	slices.SortFunc(d.slots, func(a, b slot) int { return cmp.Compare(a.verdict.Gate, b.verdict.Gate) })
}

// clockSkew is how far the clocks that write records may differ.
const clockSkew = 5 * time.Minute

func (d *decider) newSlot(g *Gate, name string, selected bool) slot {
	s := slot{gate: g, verdict: Verdict{Gate: name, Selected: selected}}
	if s.raw, s.present = d.Node.Records[name]; !s.present {
		return s
	}
	switch r, err := ParseRecord(s.raw); {
	case err != nil:
		s.damaged, s.garbled = true, true
		s.restore(d.rebuild(g))
	case r.Since.After(d.since().Add(clockSkew)):
		// Written by a clock that is wrong. All else that it says stands.
		s.damaged, r.Since = true, d.since()
		s.restore(d.room(r))
	case !r.Since.IsZero() && r.Since.Before(d.Node.Created):
		s.damaged = true // from an earlier Node of this name: it says nothing of this one
	default:
		s.restore(d.room(r))
	}
	return s
}

// room keeps a record where the others are.
func (d *decider) room(r Record) *Record {
	d.records = append(d.records, r)
	return &d.records[len(d.records)-1]
}

// newReadings returns room for a gate's readings.
func (d *decider) newReadings(n int) []Reading {
	if len(d.readings) < n {
		total := 0
		for i := range d.slots {
			if g := d.slots[i].gate; g != nil {
				total += len(g.Signals)
			}
		}
		d.readings = make([]Reading, max(n, total))
	}
	room := d.readings[:n:n]
	d.readings = d.readings[n:]
	return room
}

// restore takes up what a record says.
func (s *slot) restore(r *Record) {
	if s.before = r; r == nil {
		return
	}
	s.verdict.Before = r.effective()
	s.was, s.wasSince = r.Override, r.OverrideSince
	if s.had = (v1alpha1.Taint{}); r.tainted() {
		s.had, _ = parseTaint(r.Taint)
	}
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

// rebuild stands in for a record that cannot be read. The taint tells the
// state; without it the gate was open, for nothing is closed by surprise, unless
// the node is so new that it is closed in any case. It is not known in which
// boot the gate closed, so nothing that pods show now is believed at once. A
// gate that follows its signals has no need of the past.
func (d *decider) rebuild(g *Gate) *Record {
	r := &Record{State: v1alpha1.StateOpen, Since: d.since(), Reason: v1alpha1.ReasonAdopted, Source: v1alpha1.SourceCRD}
	switch {
	case g == nil:
	case g.CloseWhen:
		return nil
	case d.Node.carries(g.Taint), d.Node.carries(g.RecloseTaint):
		r = d.closed(g, v1alpha1.ReasonAdopted, !d.Node.carries(g.Taint))
		r.Digest, _ = g.takeDigest(d.Facts)
	case g.isNew(&d.Node, d.now):
		return nil
	default:
		r = d.opened(g, v1alpha1.ReasonAdopted)
	}
	return r
}

// settleOrphans deals with records whose gate is not known. If their source is
// complete, the gate was deleted: another gate with the same taint takes the
// record over (so that renaming a gate opens nothing), or it is dropped.
func (d *decider) settleOrphans() {
	for i := range d.slots {
		s := &d.slots[i]
		switch {
		case s.gate != nil:
		case s.before != nil && !d.DeletedGates[s.verdict.Gate] && !d.CompleteSources[cmp.Or(s.before.Source, v1alpha1.SourceCRD)]:
			s.hold()
		case d.frozen(s), s.garbled && slices.ContainsFunc(d.Node.Taints, d.isNobodys):
			s.hold()
		default:
			s.verdict.Reason = v1alpha1.ReasonGateDeleted
			if s.before != nil {
				d.takeOver(s)
				s.verdict.ClosedSince = s.before.taintedSince(&d.Node)
			}
		}
	}
}

// isNobodys tells whether a taint may have been put there by a gate that nobody
// knows any more: nodegate may have, and no known gate will see to it. A garbled
// record is kept beside it, and goes when somebody has taken the taint off: it is
// all that tells of where the taint may be from.
func (d *decider) isNobodys(t corev1.Taint) bool {
	if d.AllowedKeys != nil && !d.AllowedKeys[t.Key] || strings.HasPrefix(t.Key, v1alpha1.CoreTaintPrefix) {
		return false
	}
	return !slices.ContainsFunc(d.slots, func(s slot) bool {
		g := s.gate
		return s.accounts(t) || g != nil && g.Accepted && s.verdict.Selected && d.acts(g) && g.owns(t.Key, t.Effect)
	})
}

// hold keeps the slot as it is.
func (s *slot) hold() {
	s.keep, s.after = true, s.before
	s.verdict.After = s.verdict.Before
	if s.before != nil {
		s.verdict.Held = true
		s.verdict.Reason, s.verdict.Since = s.before.Reason, s.before.Since
	}
}

// takeOver hands a deleted gate's record to the first accepted gate that
// selects the node, has the same taint, and has no record of its own. Where the
// taint has another role in that gate, it stays what it is.
func (d *decider) takeOver(orphan *slot) {
	for i := range d.slots {
		s := &d.slots[i]
		if s.gate == nil || !s.gate.Accepted || !s.verdict.Selected || s.before != nil || !d.acts(s.gate) {
			continue
		}
		if reclosed, own := s.gate.role(orphan.before); own {
			if d.frozen(s) { // it may not write a record at present
				orphan.hold()
				return
			}
			r := *orphan.before
			r.Reclosed = reclosed && r.tainted()
			if r.awaitsBoot() || r.Reason == v1alpha1.ReasonRebooted && d.now.Before(r.Since.Add(provenAfter)) {
				r.Digest = digestAll // it names the pods of the deleted gate's signals
			}
			s.restore(&r)
			orphan.verdict.Before = "" // nothing opens by this
			return
		}
	}
}

// frozen tells whether the slot concerns a taint that may not be touched. All
// of a node's gates are written in one patch: one forbidden taint in it would
// have the whole patch refused.
func (d *decider) frozen(s *slot) bool {
	switch g := s.gate; {
	case d.AllowedKeys == nil:
		return false
	case g == nil:
	case g.Mode == v1alpha1.ModeDryRun: // which touches nothing but what it had
		if d.acts(g) {
			return false
		}
	case !d.AllowedKeys[g.Taint.Key], !d.AllowedKeys[g.taint(true).Key] && g.Accepted:
		return true // one that is not accepted does not put its other taint there
	}
	return s.had.Key != "" && !d.AllowedKeys[s.had.Key]
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
	case !s.verdict.Selected:
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
	return d.Node.carries(t) && !d.accounted(t)
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
	if d.evaluate(s, *r) {
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
