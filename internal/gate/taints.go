// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// decision puts the slots' outcomes together.
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
	out.Changes = retainted || len(out.Records) > 0 || len(out.Withdrawn) > 0
	return out
}

// record returns the slot's record as it should stand on the node, and whether
// that differs from what stands there.
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

// taints returns the node's taints as they should be, and whether that differs
// from what is there. A taint belongs to the gates if a closed one claims it,
// if the gate is open, or if the gate's record says that it put it there.
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

// findPlaces finds where the node's taints stand.
func (d *decider) findPlaces() {
	for i := range d.Node.Taints {
		t := &d.Node.Taints[i]
		d.places[TaintID{t.Key, t.Effect}] = i
	}
	d.holders = slices.Grow(d.holders, len(d.Node.Taints))[:len(d.Node.Taints)]
}

// place returns the index of the node's taint with a key and effect, or -1.
func (d *decider) place(key string, effect corev1.TaintEffect) int {
	if i, known := d.places[TaintID{key, effect}]; known && i < len(d.Node.Taints) {
		return i
	}
	return -1
}

// carries tells whether the node carries a taint, with any value.
func (d *decider) carries(t v1alpha1.Taint) bool { return d.place(t.Key, t.Effect) >= 0 }

// holder returns a slot that wants a taint with a key and effect on the node, or
// nil.
func (d *decider) holder(key string, effect corev1.TaintEffect) *slot {
	if i, known := d.places[TaintID{key, effect}]; known {
		return d.holders[i]
	}
	return nil
}

// findHolders finds, for each taint that is wanted on the node, a slot that wants
// it: an accepted gate's, if there is one.
func (d *decider) findHolders() {
	for i := range d.slots {
		s := &d.slots[i]
		if !s.claims() {
			continue
		}
		t := s.claimed()
		id := TaintID{t.Key, t.Effect}
		i, known := d.places[id]
		if !known {
			i = len(d.holders)
			d.places[id], d.holders = i, append(d.holders, nil)
		}
		if first := d.holders[i]; first == nil || !first.gate.Accepted {
			d.holders[i] = s
		}
	}
}

// claims tells whether the slot wants its taint on the node.
func (s *slot) claims() bool {
	return s.after != nil && s.after.tainted() && !s.leave && !s.keep
}

// claimed is the taint that a slot which claims one wants. Only a gate that is
// accepted puts its own there; another one keeps what it has.
func (s *slot) claimed() v1alpha1.Taint {
	if s.gate.Accepted {
		return s.gate.taint(s.after.Reclosed)
	}
	return s.had
}

// accounted tells whether a gate's record accounts for a taint with
// this key and effect.
func (d *decider) accounted(t v1alpha1.Taint) bool {
	for i := range d.slots {
		if had := &d.slots[i].had; had.Key == t.Key && had.Effect == t.Effect {
			return true
		}
	}
	return false
}

// surplus tells whether a taint that no closed gate claims is a gate's, and so
// is to go.
func (d *decider) surplus(t corev1.Taint) bool {
	surplus, left, undoes := false, false, false
	for i := range d.slots {
		s := &d.slots[i]
		if !s.concerns(t) {
			continue
		}
		if s.keep || s.leave && s.after.tainted() && s.accounts(t) {
			return false
		}
		lapses := !s.leave && s.accounts(t) // it is no other writer's to fight for
		surplus, left, undoes = true, left || s.leave, undoes || s.undoes || lapses
	}
	// Of several open gates that fight for it, each waits by its own record: they
	// would hardly ever be ready all at the same time.
	return surplus && (!left || undoes)
}

// concerns tells whether a taint is the slot's: put there by it, or one of its
// gate's, whoever put it there. A slot that is kept holds on to nothing but what
// it put there: another gate's taint must not stay because of it.
func (s *slot) concerns(t corev1.Taint) bool {
	if s.accounts(t) {
		return true
	}
	return !s.keep && s.gate != nil && s.gate.Accepted && (s.after != nil || s.lifts) && s.gate.owns(t.Key, t.Effect)
}

// accounts tells whether the slot's record tells of a taint with this key and
// effect.
func (s *slot) accounts(t corev1.Taint) bool {
	return s.had.Key == t.Key && s.had.Effect == t.Effect
}

// newTaint returns the taint as it is put on a node.
func (d *decider) newTaint(t v1alpha1.Taint) corev1.Taint {
	taint := corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}
	if t.Effect == corev1.TaintEffectNoExecute {
		// Tolerations of limited time count from here.
		taint.TimeAdded = &metav1.Time{Time: d.now}
	}
	return taint
}
