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
	out := Decision{Recheck: d.recheck, Verdicts: make([]Verdict, len(d.slots))}
	for i := range d.slots {
		s := &d.slots[i]
		out.Verdicts[i] = s.verdict
		if s.keep {
			continue
		}
		if raw, changed := s.record(); changed {
			if out.Records == nil {
				out.Records = make(map[string]string)
			}
			out.Records[s.verdict.Gate] = raw
		}
	}
	var retainted bool
	out.Taints, retainted = d.taints()
	out.Changes = retainted || len(out.Records) > 0
	return out
}

// record returns the slot's record as it should stand on the node, and whether
// that differs from what stands there.
func (s *slot) record() (string, bool) {
	if s.after == nil {
		return "", s.raw != ""
	}
	if s.raw != "" && !s.damaged && *s.before == *s.after {
		return "", false
	}
	raw := s.after.String()
	return raw, raw != s.raw
}

// taints returns the node's taints as they should be, and whether that differs
// from what is there. A taint belongs to the gates if a closed one claims it,
// if the gate is open, or if the gate's record says that it put it there.
func (d *decider) taints() ([]corev1.Taint, bool) {
	taints := make([]corev1.Taint, 0, len(d.Node.Taints)+1)
	changed := false
	for _, t := range d.Node.Taints {
		want, claimed := d.claim(t.Key, t.Effect)
		switch {
		case claimed && want.Value != t.Value:
			t.Value = want.Value
			taints, changed = append(taints, t), true
		case !claimed && d.surplus(t):
			changed = true
		default:
			taints = append(taints, t)
		}
	}
	for i := range d.slots {
		if t, ok := d.slots[i].claims(); ok && !has(taints, t) {
			taints, changed = append(taints, d.newTaint(t)), true
		}
	}
	return taints, changed
}

// claims returns the taint that the slot wants on the node.
func (s *slot) claims() (v1alpha1.Taint, bool) {
	if s.after == nil || s.after.State != v1alpha1.StateClosed || s.leave || s.keep {
		return v1alpha1.Taint{}, false
	}
	return parseTaint(s.after.Taint)
}

// claim returns the taint that some closed gate wants on the node. Where an
// accepted and another gate want different values, the accepted one has it.
func (d *decider) claim(key string, effect corev1.TaintEffect) (v1alpha1.Taint, bool) {
	var found v1alpha1.Taint
	ok := false
	for i := range d.slots {
		s := &d.slots[i]
		t, wants := s.claims()
		if !wants || t.Key != key || t.Effect != effect {
			continue
		}
		if !ok || s.gate.Accepted {
			found, ok = t, true
		}
		if s.gate.Accepted {
			break
		}
	}
	return found, ok
}

// claimed tells whether the record of a closed gate accounts for a taint with
// this key and effect.
func (d *decider) claimed(t v1alpha1.Taint) bool {
	return slices.ContainsFunc(d.slots, func(s slot) bool {
		if s.before == nil || s.before.State != v1alpha1.StateClosed {
			return false
		}
		claimed, ok := parseTaint(s.before.Taint)
		return ok && claimed.Key == t.Key && claimed.Effect == t.Effect
	})
}

// surplus tells whether a taint that no closed gate claims is a gate's, and so
// is to go.
func (d *decider) surplus(t corev1.Taint) bool {
	surplus := false
	for i := range d.slots {
		s := &d.slots[i]
		if !s.concerns(t) {
			continue
		}
		if s.keep || s.leave {
			return false
		}
		surplus = true
	}
	return surplus
}

// concerns tells whether a taint is the slot's: put there by it, or the taint
// of an open gate, whoever put it there.
func (s *slot) concerns(t corev1.Taint) bool {
	same := func(own v1alpha1.Taint) bool { return own.Key == t.Key && own.Effect == t.Effect }
	if s.before != nil && s.before.State == v1alpha1.StateClosed {
		if own, ok := parseTaint(s.before.Taint); ok && same(own) {
			return true
		}
	}
	return s.gate != nil && s.gate.Accepted && s.after != nil && same(s.gate.Taint)
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

func has(taints []corev1.Taint, t v1alpha1.Taint) bool {
	return slices.ContainsFunc(taints, func(have corev1.Taint) bool {
		return have.Key == t.Key && have.Effect == t.Effect
	})
}
