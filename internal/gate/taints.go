// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// decision assembles the decision from the slots.
func (d *decider) decision() Decision {
	out := Decision{Recheck: d.recheck, Verdicts: d.verdicts}
	for i := range d.slots {
		s := &d.slots[i]
		if s.keep {
			continue
		}
		if raw, changed := s.record(); changed {
			if out.Records == nil {
				out.Records = make(map[string]string)
			}
			out.Records[s.name] = raw
		}
	}
	out.Withdrawn, out.Ignored = d.withdrawn, d.ignored
	out.Stamps = d.stamps()
	var retainted bool
	out.Taints, retainted = d.taints()
	if retainted || len(out.Records) > 0 {
		d.addDependencies(&out)
	}
	out.Changes = retainted || len(out.Records) > 0 || len(out.Withdrawn) > 0
	return out
}

// addDependencies adds the other records and taints that the decision depends on: another
// replica may have closed a gate that shares a taint that this decision removes, or may
// have removed a taint that this decision shares.
func (d *decider) addDependencies(out *Decision) {
	for i := range d.slots {
		s := &d.slots[i]
		_, written := out.Records[s.name]
		for j := range d.Node.Taints {
			switch t := &d.Node.Taints[j]; {
			case !written:
				if n := len(out.DependsOn); s.shares(t) && !carriesTaint(out.Taints, t) && (n == 0 || out.DependsOn[n-1] != s.name) {
					out.DependsOn = append(out.DependsOn, s.name)
				}
			case s.claims() && (s.before == nil || !s.before.tainted()) && s.claimed().Key == t.Key && s.claimed().Effect == t.Effect:
				out.Carried = append(out.Carried, *t)
			}
		}
	}
}

// shares reports whether a taint may belong to the slot, whatever the node's labels
// are.
func (s *slot) shares(t *corev1.Taint) bool {
	return s.had.Key == t.Key && s.had.Effect == t.Effect || s.gate != nil && s.gate.Accepted && s.gate.owns(t.Key, t.Effect)
}

func carriesTaint(taints []corev1.Taint, t *corev1.Taint) bool {
	for i := range taints {
		if taints[i].Key == t.Key && taints[i].Effect == t.Effect {
			return true
		}
	}
	return false
}

// record returns the desired text of the slot's record, and whether it differs from the
// current one.
func (s *slot) record() (string, bool) {
	if s.after == nil {
		return "", s.present
	}
	if s.present && !s.damaged && s.before != nil && *s.before == *s.after {
		return "", false
	}
	raw := s.after.String()
	return raw, raw != s.raw
}

// taints returns the desired list of the node's taints, and whether it differs from the
// current one. A taint belongs to the gates if a closed gate claims it, if the gate is
// open, or if the gate's record accounts for it.
func (d *decider) taints() ([]corev1.Taint, bool) {
	taints := make([]corev1.Taint, 0, len(d.holders))
	changed := false
	for _, t := range d.Node.Taints {
		switch s := d.holder(t.Key, t.Effect); {
		case s == nil && d.surplus(t):
			changed = true
			continue
		case s != nil && s.gate.Accepted && s.claimed().Value != t.Value:
			t.Value, changed = s.claimed().Value, true
		}
		taints = append(taints, t)
	}
	for _, s := range d.holders[len(d.Node.Taints):] {
		if s.gate.Accepted {
			taints, changed = append(taints, d.newTaint(s.claimed())), true
		}
	}
	return taints, changed
}

// indexTaints creates the index of the node's taints.
func (d *decider) indexTaints() {
	for i := range d.Node.Taints {
		t := &d.Node.Taints[i]
		d.indexes[TaintID{t.Key, t.Effect}] = i
	}
	d.holders = slices.Grow(d.holders, len(d.Node.Taints))[:len(d.Node.Taints)]
}

// taintIndex returns the index of the node's taint with the given key and effect, or
// -1.
func (d *decider) taintIndex(key string, effect corev1.TaintEffect) int {
	if i, known := d.indexes[TaintID{key, effect}]; known && i < len(d.Node.Taints) {
		return i
	}
	return -1
}

// carries reports whether the node carries the taint, with any value.
func (d *decider) carries(t v1alpha1.Taint) bool { return d.taintIndex(t.Key, t.Effect) >= 0 }

// holder returns a slot that wants a taint with the given key and effect on the node,
// or nil.
func (d *decider) holder(key string, effect corev1.TaintEffect) *slot {
	if i, known := d.indexes[TaintID{key, effect}]; known {
		return d.holders[i]
	}
	return nil
}

// findHolders determines, for each taint that is wanted on the node, a slot that wants
// it, preferably that of an accepted gate.
func (d *decider) findHolders() {
	for i := range d.slots {
		s := &d.slots[i]
		if !s.claims() {
			continue
		}
		t := s.claimed()
		id := TaintID{t.Key, t.Effect}
		i, known := d.indexes[id]
		if !known {
			i = len(d.holders)
			d.indexes[id], d.holders = i, append(d.holders, nil)
		}
		if first := d.holders[i]; first == nil || !first.gate.Accepted {
			d.holders[i] = s
		}
	}
}

// claims reports whether the slot wants its taint on the node.
func (s *slot) claims() bool {
	return s.after != nil && s.after.tainted() && !s.leave && !s.keep
}

// claimed returns the taint that the slot wants. Only an accepted gate adds its current
// taint; another gate keeps the one that it has.
func (s *slot) claimed() v1alpha1.Taint {
	if s.gate.Accepted {
		return s.gate.taint(s.after.Reclosed)
	}
	return s.had
}

// accounted reports whether a gate's record accounts for a taint with this key and
// effect.
func (d *decider) accounted(t v1alpha1.Taint) bool {
	for i := range d.slots {
		if had := &d.slots[i].had; had.Key == t.Key && had.Effect == t.Effect {
			return true
		}
	}
	return false
}

// surplus reports whether a taint that no closed gate claims belongs to a gate and must
// therefore be removed.
func (d *decider) surplus(t corev1.Taint) bool {
	surplus, left, restores := false, false, false
	for i := range d.slots {
		s := &d.slots[i]
		if !s.concerns(t) {
			continue
		}
		if s.keep || s.leave && s.after.tainted() && s.accounts(t) {
			return false
		}
		lapses := !s.leave && s.accounts(t) // no other writer contends for it
		surplus, left, restores = true, left || s.leave, restores || s.restores || lapses
	}
	// Several open gates that contend for the taint have separate waiting times, which
	// would hardly ever end at the same time. One of them is sufficient.
	return surplus && (!left || restores)
}

// concerns reports whether a taint belongs to the slot: its record accounts for it, or
// it is a taint of its gate, regardless of its writer. A slot that keeps its state holds
// on to the recorded taint only, so that it does not keep another gate's taint on the
// node.
func (s *slot) concerns(t corev1.Taint) bool {
	if s.accounts(t) {
		return true
	}
	return !s.keep && s.gate != nil && s.gate.Accepted && (s.after != nil || s.removes) && s.gate.owns(t.Key, t.Effect)
}

// accounts reports whether the slot's record accounts for a taint with this key and
// effect.
func (s *slot) accounts(t corev1.Taint) bool {
	return s.had.Key == t.Key && s.had.Effect == t.Effect
}

// newTaint returns the taint as it is added to a node.
func (d *decider) newTaint(t v1alpha1.Taint) corev1.Taint {
	taint := corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}
	if t.Effect == corev1.TaintEffectNoExecute {
		// tolerationSeconds counts from this time.
		taint.TimeAdded = &metav1.Time{Time: d.now}
	}
	return taint
}
