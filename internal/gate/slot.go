// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"sort"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// slot is one gate, or a record whose gate is not known, on the node.
type slot struct {
	// gate is nil when the record's gate is not known.
	gate *Gate
	// name is the gate's name, and selected tells whether it exists and selects the
	// node.
	name     string
	selected bool
	// present tells whether the node has a record, raw is its text, and before
	// its content. Where that is what the text says, it is in parsed.
	present bool
	raw     string
	parsed  Record
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
	verdict *Verdict
}

// slots are sorted by name. One is too large to be handed about for that.
type slots []slot

func (s slots) Len() int           { return len(s) }
func (s slots) Less(i, j int) bool { return s[i].name < s[j].name }
func (s slots) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }

// readRecords pairs gates and records, in the order of the gates' names.
func (d *decider) readRecords(gates []Gate) {
	paired, optedOut := 0, d.Node.optedOut()
	for i := range gates {
		g := &gates[i]
		raw, recorded := d.Node.Records[g.Name]
		selected := !g.Broken && !optedOut && g.Selector.Matches(d.Node.Labels)
		if recorded {
			paired++
		} else if !selected || g.Mode == v1alpha1.ModeDryRun && !d.acts(g) {
			continue
		}
		d.addSlot(g, g.Name, selected, raw, recorded)
	}
	if paired < len(d.Node.Records) && !d.Part {
		for name, raw := range d.Node.Records {
			if !slices.ContainsFunc(gates, func(g Gate) bool { return g.Name == name }) {
				d.addSlot(nil, name, false, raw, true)
			}
		}
	}
	sort.Sort(&d.slots)
	d.verdicts = make([]Verdict, len(d.slots))
	for i := range d.slots {
		s := &d.slots[i]
		s.verdict = &d.verdicts[i]
		s.verdict.Gate, s.verdict.Selected = s.name, s.selected
		if s.present {
			d.readRecord(s)
		}
	}
}

func (d *decider) addSlot(g *Gate, name string, selected bool, raw string, present bool) {
	n := len(d.slots)
	d.slots = slices.Grow(d.slots, 1)[:n+1]
	s := &d.slots[n] // which is clear (see done)
	s.gate, s.name, s.selected, s.raw, s.present = g, name, selected, raw, present
}

// clockSkew is how far the clocks that write records may differ.
const clockSkew = 5 * time.Minute

// readRecord reads what the node's record says of a slot.
func (d *decider) readRecord(s *slot) {
	r := &s.parsed
	switch err := r.parse(s.raw); {
	case err != nil:
		s.damaged, s.garbled = true, true
		s.restore(d.rebuild(s.gate))
	case r.Since.After(d.since().Add(clockSkew)):
		// Written by a clock that is wrong. All else that it says stands.
		s.damaged, r.Since = true, d.since()
		s.restore(r)
	case !r.Since.IsZero() && r.Since.Before(d.Node.Created):
		s.damaged = true // from an earlier Node of this name: it says nothing of this one
	default:
		s.restore(r)
	}
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
	case d.carries(g.Taint), d.carries(g.RecloseTaint):
		r = d.closed(g, v1alpha1.ReasonAdopted, !d.carries(g.Taint))
		r.Digest, _ = g.takeDigest(d.Facts)
	case g.isNew(&d.Node, d.now):
		return nil
	default:
		r = d.opened(g, v1alpha1.ReasonAdopted)
	}
	return r
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
