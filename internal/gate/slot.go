// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// slot is a gate on the node, or a record whose gate is unknown.
type slot struct {
	// gate is nil if the record's gate is unknown.
	gate *Gate
	// name is the gate's name. selected reports whether the gate exists and selects the
	// node.
	name     string
	selected bool
	// present reports whether the node has a record, raw is its text, and before its
	// content. parsed is the storage for before if that is what the text contains.
	present bool
	raw     string
	parsed  Record
	before  *Record
	// damaged is true if the record cannot be read or is older than the Node. before is
	// then not what the text contains.
	damaged bool
	// garbled is true if the record cannot be read at all.
	garbled bool
	// had is the taint that the record accounts for: that of a gate that is closed, or
	// is overridden closed.
	had v1alpha1.Taint
	// isNew is true if the node is new to the gate: the taint that it carries, or gets as a
	// new member, is not that of a gate that closes again (see Record.Reclosed). An
	// override that keeps the gate closed does not change that.
	isNew bool
	masking
	// after is the desired record; nil for none. renewed is its storage if it starts
	// from the existing record.
	after   *Record
	renewed Record
	// keep is true if everything that concerns the slot keeps its state.
	keep bool
	// leave is true if a contended taint is left as it is for now. restores is true if
	// the change of the other writer is reverted now.
	leave, restores bool
	// removes is true if an open gate's taint is kept off the node, with or without a
	// record.
	removes bool
	// fit is true if the gate is closed and would open apart from the node's group, or if
	// its deadline opened it and its signals hold.
	fit bool
	// signals is the combined state of the signals of an openWhen gate.
	signals State
	verdict *Verdict
}

// slots is sorted by name. It implements sort.Interface because a slot is too large to
// be copied for slices.SortFunc.
type slots []slot

func (s slots) Len() int           { return len(s) }
func (s slots) Less(i, j int) bool { return s[i].name < s[j].name }
func (s slots) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }

// find returns the index of the slot with the given name, and whether there is one.
func (s slots) find(name string) (int, bool) {
	return sort.Find(len(s), func(i int) int { return strings.Compare(name, s[i].name) })
}

// readRecords creates a slot for each gate and each record, in the order of their
// names.
func (d *decider) readRecords(gates []Gate) {
	paired := 0
	for i := range gates {
		g := &gates[i]
		raw, recorded := d.Node.Records[g.Name]
		selected := g.Selects(d.Node.Labels)
		if g.Broken {
			d.broken = append(d.broken, g)
		}
		if recorded {
			paired++
		} else if !selected || g.Mode == v1alpha1.ModeDryRun && !d.acts(g) {
			continue
		}
		d.addSlot(g, g.Name, selected, raw, recorded)
	}
	if paired < len(d.Node.Records) && !d.Part {
		known := make(map[string]bool, len(gates))
		for i := range gates {
			known[gates[i].Name] = true
		}
		for name, raw := range d.Node.Records {
			if !known[name] {
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
	s := &d.slots[n] // already cleared (see done)
	s.gate, s.name, s.selected, s.raw, s.present = g, name, selected, raw, present
}

// clockSkew is the assumed maximum difference between the clocks that write records.
const clockSkew = 5 * time.Minute

// readRecord parses the record of a slot.
func (d *decider) readRecord(s *slot) {
	r := &s.parsed
	switch err := r.parse(s.raw); {
	case err != nil:
		s.damaged, s.garbled = true, true
		s.restore(d.rebuild(s.gate))
	case r.Since.After(d.since().Add(clockSkew)):
		// The clock that wrote the record was wrong. What does not depend on it is valid.
		s.damaged, r.Since = true, d.since()
		s.restore(r)
	case !r.Since.IsZero() && r.Since.Before(d.Node.Created):
		s.damaged = true // it belongs to a former Node of the same name
	default:
		s.restore(r)
	}
}

// newReadings returns memory for n readings.
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
	readings := d.readings[:n:n]
	d.readings = d.readings[n:]
	return readings
}

// restore initializes the slot from a record.
func (s *slot) restore(r *Record) {
	if s.before = r; r == nil {
		return
	}
	s.verdict.Before = r.Effective()
	s.was, s.wasSince = r.Override, r.OverrideSince
	if s.had = (v1alpha1.Taint{}); r.tainted() {
		s.had = r.RecordedTaint()
	}
	s.isNew = r.tainted() && !r.Reclosed
}

// rebuild returns a replacement for a record that cannot be read. The state follows
// from the taint. Without the taint, the gate was open, because a gate must not close
// unexpectedly; but a new node is closed in any case. It is unknown in which boot the
// gate closed, so the current state of pods is not accepted as evidence at once. A
// closeWhen gate needs no record.
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

// hold keeps the slot's state.
func (d *decider) hold(s *slot) {
	s.keep, s.after = true, s.before
	s.verdict.After = s.verdict.Before
	if s.before != nil {
		s.verdict.Held = true
		s.verdict.Reason, s.verdict.Since = s.before.Reason, s.before.TaintedSince(&d.Node)
		s.keepOverride()
	}
}
