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
			put(&out.Records, s.name, raw)
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
		if _, written := out.Records[s.name]; !written {
			if d.sharesRemoved(s) {
				out.DependsOn = append(out.DependsOn, s.name)
			}
			continue
		}
		if s.claims() && (s.before == nil || !s.before.tainted()) {
			if at := d.taintIndex(s.claimed().Key, s.claimed().Effect); at >= 0 {
				out.Carried = append(out.Carried, d.Node.Taints[at])
			}
		}
	}
}

// sharesRemoved reports whether a taint that the decision removes may belong to the slot,
// whatever the node's labels are.
func (d *decider) sharesRemoved(s *slot) bool {
	for _, at := range d.taintsOf(s) {
		if at < 0 || !d.owned[at].removed {
			continue
		}
		if t := &d.Node.Taints[at]; s.accounts(t) || s.gate.Accepted {
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
	d.findOwners()
	taints := make([]corev1.Taint, 0, len(d.holders))
	changed := false
	for i, t := range d.Node.Taints {
		switch s := d.holder(t.Key, t.Effect); {
		case s == nil && d.surplus(i):
			changed, d.owned[i].removed = true, true
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
	d.owned = slices.Grow(d.owned, len(d.Node.Taints))[:len(d.Node.Taints)]
}

// findLasting marks the taints for which records account, and returns the other ones that
// are not transient.
func (d *decider) findLasting() []corev1.Taint {
	for i := range d.slots {
		if at := d.taintIndex(d.slots[i].had.Key, d.slots[i].had.Effect); at >= 0 {
			d.owned[at].recorded = true
		}
	}
	var lasting []corev1.Taint
	for i := range d.Node.Taints {
		if t := &d.Node.Taints[i]; !d.owned[i].recorded && !d.Transient.Is(t.Key) {
			lasting = append(lasting, *t)
		}
	}
	return lasting
}

// taintIndex returns the index of the node's taint with the given key and effect, or
// -1.
func (d *decider) taintIndex(key string, effect corev1.TaintEffect) int {
	if key == "" { // most slots have at most one taint
		return -1
	}
	if i, known := d.indexes[TaintID{key, effect}]; known && i < len(d.Node.Taints) {
		return i
	}
	return -1
}

// recorded reports whether a record with which the decision starts accounts for a taint of
// the node with this key and effect.
func (d *decider) recorded(key string, effect corev1.TaintEffect) bool {
	at := d.taintIndex(key, effect)
	return at >= 0 && d.owned[at].recorded
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

// ownership combines what the slots want that a taint of the node belongs to.
type ownership struct {
	// recorded is true if a record with which the decision starts accounts for the taint.
	recorded bool
	// any is true if the taint belongs to a slot, and kept if one of them keeps it.
	any, kept bool
	// left is true if a slot leaves the taint for now, because it is contended. restores
	// is true if another slot removes it nevertheless.
	left, restores bool
	// removed is true if the decision removes the taint.
	removed bool
}

// findOwners determines the ownership of each taint of the node. It visits each slot's
// taints rather than each taint's slots: a kubelet may register with thousands of taints
// and records, and comparing each with each would take seconds.
func (d *decider) findOwners() {
	for i := range d.slots {
		s := &d.slots[i]
		for _, at := range d.taintsOf(s) {
			if at >= 0 && s.concerns(&d.Node.Taints[at]) {
				d.owned[at].add(s, s.accounts(&d.Node.Taints[at]))
			}
		}
	}
}

// taintsOf returns the indexes of the node's taints that the slot's record or gate names,
// with -1 for each that is not on the node. An index may occur twice.
func (d *decider) taintsOf(s *slot) [3]int {
	at := [3]int{d.taintIndex(s.had.Key, s.had.Effect), -1, -1}
	if g := s.gate; g != nil {
		at[1], at[2] = d.taintIndex(g.Taint.Key, g.Taint.Effect), d.taintIndex(g.RecloseTaint.Key, g.RecloseTaint.Effect)
	}
	return at
}

// add adds a slot that the taint belongs to. accounts reports whether the slot's record
// accounts for it.
func (o *ownership) add(s *slot, accounts bool) {
	if s.keep || s.leave && s.after.tainted() && accounts {
		o.kept = true
		return
	}
	lapses := !s.leave && accounts // no other writer contends for it
	o.any, o.left, o.restores = true, o.left || s.leave, o.restores || s.restores || lapses
}

// surplus reports whether a taint of the node that no closed gate claims belongs to a
// gate and must therefore be removed.
func (d *decider) surplus(i int) bool {
	o := &d.owned[i]
	// Several open gates that contend for the taint have separate waiting times, which
	// would hardly ever end at the same time. One of them is sufficient.
	return o.any && !o.kept && (!o.left || o.restores)
}

// concerns reports whether a taint belongs to the slot: its record accounts for it, or
// it is a taint of its gate, regardless of its writer. A slot that keeps its state holds
// on to the recorded taint only, so that it does not keep another gate's taint on the
// node.
func (s *slot) concerns(t *corev1.Taint) bool {
	if s.accounts(t) {
		return true
	}
	return !s.keep && s.gate != nil && s.gate.Accepted && (s.after != nil || s.removes) && s.gate.owns(t.Key, t.Effect)
}

// accounts reports whether the slot's record accounts for a taint with this key and
// effect.
func (s *slot) accounts(t *corev1.Taint) bool {
	return s.had.Key == t.Key && s.had.Effect == t.Effect
}

// newTaint returns the taint as it is added to a node.
func (d *decider) newTaint(t v1alpha1.Taint) corev1.Taint {
	taint := t.Core()
	if t.Effect == corev1.TaintEffectNoExecute {
		// tolerationSeconds counts from this time.
		taint.TimeAdded = &metav1.Time{Time: d.now}
	}
	return taint
}
