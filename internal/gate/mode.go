// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Modes.
//
// A paused gate is left as it stands: its records, and the taints that they tell
// of, stay where they are, and nothing joins it. Only out-of-service goes from a
// node that speaks, as always.
//
// A dry run is the same decision about another node: the node as it would be if
// its gates in dry run acted. That node's records of these gates are shadows,
// handed from decision to decision (Verdict.Shadow, Facts.Shadow) instead of
// being written; its taints are the real ones, with those that a closed gate
// would have put there, and without those that an open one would have taken away.
// Whatever is decided about that node, of the gates that act only what was decided
// about the real one counts, which knows nothing of gates in dry run: but for
// their records of before, which it gives up, so that what they held is opened.
//
// With no shadow, a dry run says what would happen if the gate were switched to
// Enforce now.

// acts tells whether the gate is decided about like one that acts.
func (d *decider) acts(g *Gate) bool {
	return g.Mode != v1alpha1.ModePaused && (g.Mode != v1alpha1.ModeDryRun || d.supposed[g.Name])
}

// suspended decides about a gate that does not act, and tells whether it is one.
func (d *decider) suspended(s *slot) bool {
	switch {
	case d.acts(s.gate):
		return false
	case s.gate.Mode == v1alpha1.ModePaused:
		d.pause(s)
		d.ignore(s, "the gate is paused")
	case d.frozen(s):
		s.hold()
	default:
		d.letGo(s)
	}
	return true
}

// pause leaves a gate as it stands.
func (d *decider) pause(s *slot) {
	s.hold()
	v := s.verdict
	switch v.Held = false; {
	case s.before == nil && s.gate.CloseWhen && s.gate.Accepted && v.Selected:
		v.Before, v.After = v1alpha1.StateOpen, v1alpha1.StateOpen // every selected node is a member
	case v.After == v1alpha1.StateClosed:
		v.Since, v.Overdue = s.before.taintedSince(&d.Node), s.before.Overdue
		v.Blocked = v1alpha1.ReadingPaused
	}
}

// letGo opens what a gate held before it came to be in dry run. The dry run goes
// on from there.
func (d *decider) letGo(s *slot) {
	s.verdict.Reason = v1alpha1.ReasonDryRun
	if s.before != nil {
		s.verdict.ClosedSince = s.before.taintedSince(&d.Node)
		s.verdict.Shadow = s.before.String()
	}
}

// tryOut adds to a decision what the gates in dry run would do.
func (d *decider) tryOut(gates []Gate, out *Decision) {
	facts, supposed := d.suppose(gates)
	e := newDecider(&facts, d.now)
	defer e.done()
	e.supposed = supposed
	e.decide(gates)
	settled := true
	for i := range e.slots {
		s := &e.slots[i]
		if s.gate == nil || !supposed[s.gate.Name] {
			continue
		}
		v := *s.verdict
		v.DryRun, v.Closure, v.Shadow = true, nil, s.shadow()
		if v.Opened() && v.Shadow == "" && s.gate.CloseWhen && d.carriesOwn(s.gate) {
			v.Shadow = e.opened(s.gate, v.Reason).String() // the taint, which is there still, would be gone
		}
		settled = settled && v.Shadow == d.Shadow[v.Gate]
		out.Verdicts = append(out.Verdicts, v)
		if why, ignored := e.ignored[v.Gate]; ignored {
			note(&out.Ignored, v.Gate, why)
		}
	}
	slices.SortFunc(out.Verdicts, func(a, b Verdict) int { return cmp.Compare(a.Gate, b.Gate) })
	d.recheckAt(e.recheck)
	if !settled { // no write will have the node decided about again
		d.recheckAt(d.now)
	}
	out.Recheck = d.recheck
}

// shadow is the record as it would stand.
func (s *slot) shadow() string {
	if s.keep {
		return s.raw
	}
	if raw, changed := s.record(); changed {
		return raw
	}
	return s.raw
}

// suppose returns the facts as they would be if the gates in dry run had acted,
// and names these gates: those that hold nothing on the node.
func (d *decider) suppose(gates []Gate) (f Facts, supposed map[string]bool) {
	f, supposed = *d.Facts, make(map[string]bool, 1)
	n := &f.Node
	n.Taints, n.Records = slices.Clone(n.Taints), make(map[string]string, len(n.Records)+len(f.Shadow))
	maps.Copy(n.Records, d.Node.Records)
	keys := make(map[string]bool, len(f.Transient.GateKeys)+1)
	maps.Copy(keys, f.Transient.GateKeys)
	f.Transient.GateKeys = keys
	var closed []v1alpha1.Taint
	for i := range gates {
		g := &gates[i]
		if _, held := d.Node.Records[g.Name]; held || g.Mode != v1alpha1.ModeDryRun {
			continue
		}
		supposed[g.Name] = true
		for _, t := range g.Taints() {
			keys[t.Key] = true
		}
		raw, known := f.Shadow[g.Name]
		if !known {
			continue
		}
		n.Records[g.Name] = raw
		r, err := ParseRecord(raw)
		if err != nil {
			continue
		}
		t, _ := parseTaint(r.Taint)
		isClosed := r.tainted()
		if isClosed {
			closed = append(closed, t)
		}
		n.Taints = slices.DeleteFunc(n.Taints, func(on corev1.Taint) bool {
			holds := isClosed && on.Key == t.Key && on.Effect == t.Effect
			return g.owns(on.Key, on.Effect) && !holds
		})
	}
	for _, t := range closed {
		switch i := n.taint(t.Key, t.Effect); {
		case i < 0:
			n.Taints = append(n.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
		case d.undone(t):
			n.Taints[i].Value = t.Value
		}
	}
	return f, supposed
}

// anyInDryRun tells whether there is anything to try out.
func anyInDryRun(gates []Gate) bool {
	for i := range gates {
		if gates[i].Mode == v1alpha1.ModeDryRun {
			return true
		}
	}
	return false
}
