// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"maps"
	"slices"
	"strings"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Rings.
//
// Signals can read taints and annotations, and gates write both, so gates can
// contradict each other: for example, one gate closes while the taint of a second gate
// is absent, and the second gate closes while the taint of the first is present. Each
// gate then causes the other to revert its change, endlessly, and each step is a write.
//
// Decide therefore simulates the consequences of a decision, assuming that nothing else
// changes. If the simulation does not reach a stable state, the gates that keep opening
// and closing keep their state on this node instead, and are reported. They act again
// as soon as a simulation reaches a stable state because the node or the gates have
// changed.

// ring returns the gates that would open and close each other on the node endlessly if
// the decision were applied, or nil. decide returns the decision for the given facts.
func ring(gates []Gate, f *Facts, d *Decision, decide func(*Facts) Decision) map[string]bool {
	if !slices.ContainsFunc(gates, mayOscillate) || !f.moves(d) {
		return nil
	}
	next, step := f.after(d), Decision{}
	next.Granted = make(map[string]bool, len(gates)) // each step may be granted budget
	for i := range gates {
		next.Granted[gates[i].Name] = true
	}
	steps := 2*len(gates) + 2 // enough for each gate to close and to open
	for range steps {
		if step = decide(&next); !next.moves(&step) {
			return nil
		}
		next = next.after(&step)
	}
	found := make(map[string]bool)
	for range steps {
		step = decide(&next)
		for i := range step.Verdicts {
			if v := &step.Verdicts[i]; v.Opened() || v.Closed() {
				found[v.Gate] = true
			}
		}
		next = next.after(&step)
	}
	if len(found) == 0 {
		return nil
	}
	return found
}

// mayOscillate reports whether the gate's own or other gates' writes can make it open
// and close repeatedly without time passing.
func mayOscillate(g Gate) bool {
	return g.ReadsWrites && (g.CloseWhen || g.Reclose == v1alpha1.RecloseOnRegression && g.CloseAfter == 0)
}

// moves reports whether the decision changes anything: the node, or the shadow of a dry
// run.
func (f *Facts) moves(d *Decision) bool {
	return d.Changes || slices.ContainsFunc(d.Verdicts, func(v Verdict) bool { return v.DryRun && v.Shadow != f.Shadow[v.Gate] })
}

// after returns the facts after the decision has been applied.
func (f *Facts) after(d *Decision) Facts {
	out := *f
	n := &out.Node
	n.Taints = d.Taints
	n.Records, n.Annotations = maps.Clone(n.Records), maps.Clone(n.Annotations)
	for name, raw := range d.Records {
		change(&n.Records, name, raw)
		change(&n.Annotations, v1alpha1.RecordAnnotationPrefix+name, raw)
	}
	for key, value := range d.Stamps {
		change(&n.Annotations, key, value)
	}
	n.Overrides = maps.Clone(n.Overrides)
	for name := range d.Withdrawn {
		delete(n.Overrides, name)
	}
	out.Shadow = maps.Clone(f.Shadow)
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.DryRun {
			change(&out.Shadow, v.Gate, v.Shadow)
		}
	}
	return out
}

// change sets a key in a map, which may be nil, or removes it if the value is empty.
func change(m *map[string]string, key, value string) {
	if value == "" {
		delete(*m, key)
	} else {
		put(m, key, value)
	}
}

// holdRing keeps the state of a gate that is part of a ring, and reports whether it is.
// It returns false for a gate that the node is about to become a member of.
func (d *decider) holdRing(s *slot) bool {
	if !d.ring[s.name] || s.before == nil && !s.gate.CloseWhen {
		return false
	}
	d.hold(s)
	v := s.verdict
	v.Held, v.Ring = false, strings.Join(slices.Sorted(maps.Keys(d.ring)), ", ")
	if s.before == nil {
		v.Before, v.After = v1alpha1.StateOpen, v1alpha1.StateOpen // every selected node is a member
	}
	return true
}
