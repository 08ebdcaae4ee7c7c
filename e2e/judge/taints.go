// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/facts"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// judgeUnrecordedOpenings judges a write of nodegate that removes the taint of an openWhen
// gate although no record held it, and that leaves no record of the gate (S1). If another
// writer has added the taint, the gate opens with a record, or adopts the taint.
func (t *trial) judgeUnrecordedOpenings(c *change) {
	removed := slices.DeleteFunc(slices.Clone(c.before.Spec.Taints), func(taint corev1.Taint) bool {
		return carries(c.after, taint) || holderOf(c.before, taint) != "" || t.keptOff(c, taint)
	})
	if len(removed) == 0 {
		return
	}
	for _, ng := range t.Moment(c.revision - 1).Gates() {
		owned := slices.ContainsFunc(removed, func(taint corev1.Taint) bool { return owns(ng, taint) })
		if owned && ng.Spec.Enforces() && facts.Selects(ng, c.before) {
			t.judgeOpening(c, ng.Name, record{}, record{}, false)
		}
	}
}

// keptOff reports whether a gate may keep the taint off the node: one with a record, or a
// closeWhen gate, which may not have one. Another gate with the taint need not adopt it
// first: it may not be accepted, or nodegate has not observed it yet.
func (t *trial) keptOff(c *change, taint corev1.Taint) bool {
	window := t.window(c)
	return slices.ContainsFunc(t.Names(revisions.KindNodeGate), func(id revisions.ID) bool {
		_, recorded := recordOf(c.after, id.Name)
		return slices.ContainsFunc(t.ofGate(window, c, id.Name), func(m revisions.Moment) bool {
			ng := m.Gate(id.Name)
			return ng != nil && (recorded || ng.Spec.Follows()) && ng.Spec.Enforces() && owns(ng, taint) && facts.Selects(ng, m.Node(c.name))
		})
	})
}

// judgeRecordedTaint judges the taint in the record with which nodegate closes a gate (S2). The
// record makes it the gate's taint on this node, so it must be one of those in the gate's spec. After
// the write, the node carries it: a record alone keeps no pod off.
func (t *trial) judgeRecordedTaint(c *change, gate string, before, after record) {
	if !after.closed() || before.closed() && before.Taint == after.Taint {
		return
	}
	t.checked(RuleForeign, "taints in records of closed gates")
	own := func(ng *v1alpha1.NodeGate) bool { return ng != nil && slices.Contains(ng.Spec.Taints(), after.taint()) }
	if !slices.ContainsFunc(t.specs(c, gate), own) {
		t.violation(RuleForeign, c, gate, "nodegate records taint "+after.Taint, "it is not a taint of the gate")
	}
	overridden := before.Override != "" || after.Override != ""
	if !before.closed() && !overridden && facts.TaintOn(c.after, after.taint()) == nil {
		t.violation(RuleForeign, c, gate, "nodegate records taint "+after.Taint, "the node does not carry it")
	}
}

// judgeRole judges which of its two taints a gate closes with (S4): Birth needs taint, and a gate
// that was open needs recloseTaint. While it was overridden closed, the node was not in use.
func (t *trial) judgeRole(c *change, gate string, before, after record) {
	isNew := after.Reason == v1alpha1.ReasonBirth
	if after.Override != "" || before.Override != "" || !isNew && (before.State != v1alpha1.StateOpen || after.Reason == v1alpha1.ReasonAdopted) {
		return
	}
	t.checked(RuleClosing, "taints of gates that close")
	right := func(ng *v1alpha1.NodeGate) bool {
		switch {
		case ng == nil:
			return false
		case isNew || ng.Spec.RecloseTaint == nil:
			return ng.Spec.Taint == after.taint()
		}
		return *ng.Spec.RecloseTaint == after.taint()
	}
	if !slices.ContainsFunc(t.specs(c, gate), right) {
		t.violation(RuleClosing, c, gate, "gate closes with taint "+after.Taint, "it is not the gate's taint for this node")
	}
}

// owns reports whether a taint with this key and effect is in the gate's spec.
func owns(ng *v1alpha1.NodeGate, taint corev1.Taint) bool {
	return slices.ContainsFunc(ng.Spec.Taints(), func(own v1alpha1.Taint) bool { return own.Key == taint.Key && own.Effect == taint.Effect })
}

// noteLeftTaints notes the taints that a write of nodegate leaves on the Node, although no
// record holds them any longer. A taint counts until it is removed or a record holds it
// again. If another writer removes the record, nodegate does not know whose the taint is.
func (t *trial) noteLeftTaints(c *change) {
	if c.before == nil { // another Node of the same name
		maps.DeleteFunc(t.left, func(at taintOf, _ string) bool { return at.node == c.name })
		return
	}
	for _, taint := range c.before.Spec.Taints {
		at := taintOf{c.name, taint.Key, taint.Effect}
		switch holder := holderOf(c.before, taint); {
		case !carries(c.after, taint), holderOf(c.after, taint) != "":
			delete(t.left, at)
		case c.own && holder != "":
			t.left[at] = holder
		}
	}
}

// judgeLeftTaints judges that nodegate has left no taint that does not belong to any gate
// (L).
func (t *trial) judgeLeftTaints(node *corev1.Node) {
	gates := t.Moment(t.To).Gates()
	for _, taint := range node.Spec.Taints {
		gate, left := t.left[taintOf{node.Name, taint.Key, taint.Effect}]
		owned := slices.ContainsFunc(gates, func(ng *v1alpha1.NodeGate) bool {
			return ng.Spec.Mode != v1alpha1.ModeDryRun && owns(ng, taint) && facts.Selects(ng, node)
		})
		if left && !owned {
			r, _ := recordOf(node, gate)
			t.finalViolation(node, gate, r, "nodegate has left its taint "+taint.Key+", which belongs to no gate")
		}
	}
}

// closedWrongly returns how the node's taints contradict the record of a closed gate, or "".
func closedWrongly(node *corev1.Node, ng *v1alpha1.NodeGate, r record) string {
	switch has := facts.TaintOn(node, r.taint()); {
	case !slices.Contains(ng.Spec.Taints(), r.taint()):
		return "it is closed with " + r.Taint + ", which is not its taint"
	case has == nil:
		return "its taint is missing"
	case !isRecordedValue(node, has):
		return fmt.Sprintf("its taint has value %q", has.Value)
	}
	return ""
}

// hasUnrecordedTaint reports whether the node carries one of the gate's taints with which, according
// to the records, no gate is closed.
func hasUnrecordedTaint(node *corev1.Node, ng *v1alpha1.NodeGate) bool {
	return slices.ContainsFunc(ng.Spec.Taints(), func(own v1alpha1.Taint) bool {
		return facts.TaintOn(node, own) != nil && holderOf(node, own.Core()) == ""
	})
}

// isRecordedValue reports whether a closed gate has the taint with its value, according to its
// record. Gates that share a taint may have different values.
func isRecordedValue(node *corev1.Node, taint *corev1.Taint) bool {
	return slices.ContainsFunc(recordsOf(node), func(gate string) bool {
		r, _ := recordOf(node, gate)
		return r.closed() && r.taint() == v1alpha1.TaintOf(*taint)
	})
}
