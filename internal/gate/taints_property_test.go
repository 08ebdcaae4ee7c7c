// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// isSurplus is surplus without an index: it asks every slot about the taint.
func isSurplus(d *decider, t *corev1.Taint) bool {
	surplus, left, restores := false, false, false
	for i := range d.slots {
		s := &d.slots[i]
		if !s.concerns(t) {
			continue
		}
		if s.keep || s.leave && s.after.tainted() && s.accounts(t) {
			return false
		}
		surplus, left = true, left || s.leave
		restores = restores || s.restores || !s.leave && s.accounts(t)
	}
	return surplus && (!left || restores)
}

// dependencies is addDependencies without an index: it asks every slot about every taint.
func dependencies(d *decider, out *Decision) (dependsOn []string, carried []corev1.Taint) {
	for i := range d.slots {
		s := &d.slots[i]
		_, written := out.Records[s.name]
		for _, t := range d.Node.Taints {
			same := func(other corev1.Taint) bool { return other.Key == t.Key && other.Effect == t.Effect }
			shares := s.accounts(&t) || s.gate != nil && s.gate.Accepted && s.gate.owns(t.Key, t.Effect)
			switch {
			case !written && shares && !slices.ContainsFunc(out.Taints, same) && !slices.Contains(dependsOn, s.name):
				dependsOn = append(dependsOn, s.name)
			case written && s.claims() && (s.before == nil || !s.before.tainted()) && s.claimed().Key == t.Key && s.claimed().Effect == t.Effect:
				carried = append(carried, t)
			}
		}
	}
	return dependsOn, carried
}

// isStray reports whether a taint of the node may belong to a gate that no longer exists,
// without an index.
func isStray(d *decider, t *corev1.Taint) bool {
	explains := func(s slot) bool {
		return s.accounts(t) || s.gate != nil && s.gate.Accepted && s.selected && d.acts(s.gate) && s.gate.owns(t.Key, t.Effect)
	}
	return d.Allowed.Allows(v1alpha1.Taint{Key: t.Key, Effect: t.Effect}) && !slices.ContainsFunc(d.slots, explains) &&
		!strings.HasPrefix(t.Key, v1alpha1.CoreTaintPrefix)
}

// The indexes of taints do not change a decision: in any state of a node, each taint is
// treated as if every slot were asked about it.
func TestTaintIndexes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawChaos(t)
		d := newDecider(&c.facts, c.now)
		defer d.done()
		d.decide(c.gates)
		stray := slices.ContainsFunc(d.Node.Taints, func(taint corev1.Taint) bool { return isStray(&d, &taint) })
		if got := d.carriesStray(); got != stray {
			t.Errorf("the node carries a stray taint: %v, want %v: %v", got, stray, d.Node.Taints)
		}
		out := d.decision()
		for i := range d.Node.Taints {
			if got, want := d.surplus(i), isSurplus(&d, &d.Node.Taints[i]); got != want {
				t.Errorf("taint %v is surplus: %v, want %v", d.Node.Taints[i], got, want)
			}
		}
		dependsOn, carried := dependencies(&d, &out)
		if !slices.Equal(out.DependsOn, dependsOn) || !slices.Equal(out.Carried, carried) {
			t.Errorf("the decision depends on %v and %v, want %v and %v", out.DependsOn, out.Carried, dependsOn, carried)
		}
	})
}
