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
// A paused gate keeps its state: its records and the taints that they account for do
// not change, and no node becomes a member. Only the out-of-service taint is still
// removed from a node that is reporting.
//
// A dry run is the same decision about a different node: the node as it would be if its
// gates in dry run acted. The records of these gates on that node are shadows, which
// are passed from one decision to the next (Verdict.Shadow, Facts.Shadow) instead of
// being written. Its taints are the real ones, plus those that closed gates in dry run
// would have added, minus those that open ones would have removed. Taints for which the
// records of other gates account stay.
//
// For gates that act, only the decision about the real node counts. It ignores gates in
// dry run, except that it removes the records that they had before, so that what they
// held is opened.
//
// Without a shadow, a dry run shows what would happen if the gate were switched to
// Enforce now.

// acts reports whether the gate is decided like one that acts.
func (d *decider) acts(g *Gate) bool {
	return g.Mode != v1alpha1.ModePaused && (g.Mode != v1alpha1.ModeDryRun || d.supposed[g.Name])
}

// suspended handles a gate that does not act, and reports whether the gate is such a
// gate.
func (d *decider) suspended(s *slot) bool {
	switch {
	case d.acts(s.gate):
		return false
	case s.gate.Mode == v1alpha1.ModePaused:
		d.pause(s)
		d.ignore(s, "the gate is paused")
	case d.frozen(s):
		d.hold(s)
	default:
		d.endEnforcement(s)
	}
	return true
}

// pause keeps the state of a paused gate.
func (d *decider) pause(s *slot) {
	d.hold(s)
	v := s.verdict
	switch v.Held = false; {
	case s.before == nil && s.gate.CloseWhen && s.gate.Accepted && v.Selected:
		v.Before, v.After = v1alpha1.StateOpen, v1alpha1.StateOpen // every selected node is a member
	case s.before == nil && v.Selected:
		v.NonMember = v1alpha1.NonMemberPaused
	case v.After == v1alpha1.StateClosed:
		v.Overdue, v.Blocked = s.before.Overdue, v1alpha1.ReadingPaused
	}
}

// endEnforcement opens the gate where it was closed before it entered dry run. The dry
// run starts from that state.
func (d *decider) endEnforcement(s *slot) {
	s.verdict.Reason = v1alpha1.ReasonDryRun
	if s.before != nil {
		s.verdict.ClosedSince = s.before.TaintedSince(&d.Node)
		s.verdict.Shadow = s.before.String()
	}
}

// addDryRun adds to a decision what the gates in dry run would do.
func (d *decider) addDryRun(gates []Gate, out *Decision) {
	facts, supposed := d.withDryRun(gates)
	e := newDecider(&facts, d.now)
	defer e.done()
	e.supposed, e.ring = supposed, d.ring
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
			v.Shadow = e.opened(s.gate, v.Reason).String() // the taint, which is still there, would have been removed
		}
		settled = settled && v.Shadow == d.Shadow[v.Gate]
		out.Verdicts = append(out.Verdicts, v)
		if why, ignored := e.ignored[v.Gate]; ignored {
			put(&out.Ignored, v.Gate, why)
		}
	}
	slices.SortFunc(out.Verdicts, func(a, b Verdict) int { return cmp.Compare(a.Gate, b.Gate) })
	d.recheckAt(e.recheck)
	out.Recheck, out.Again = d.recheck, d.again || !settled // no write will cause another decision
}

// shadow returns the record that the slot would have.
func (s *slot) shadow() string {
	if s.keep {
		return s.raw
	}
	if raw, changed := s.record(); changed {
		return raw
	}
	return s.raw
}

// withDryRun returns the facts as they would be if the gates in dry run had acted, and
// the names of these gates. Gates that hold something on the node are not included.
func (d *decider) withDryRun(gates []Gate) (f Facts, supposed map[string]bool) {
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
		t := r.RecordedTaint()
		isClosed := r.tainted()
		if isClosed {
			closed = append(closed, t)
		}
		n.Taints = slices.DeleteFunc(n.Taints, func(on corev1.Taint) bool {
			holds := isClosed && on.Key == t.Key && on.Effect == t.Effect
			return g.owns(on.Key, on.Effect) && !holds && !d.recorded(on.Key, on.Effect)
		})
	}
	for _, t := range closed {
		switch i := n.taint(t.Key, t.Effect); {
		case i < 0:
			n.Taints = append(n.Taints, t.Core())
		case d.reverted(t):
			n.Taints[i].Value = t.Value
		}
	}
	return f, supposed
}

// anyInDryRun reports whether any gate is in dry run.
func anyInDryRun(gates []Gate) bool {
	for i := range gates {
		if gates[i].Mode == v1alpha1.ModeDryRun {
			return true
		}
	}
	return false
}
