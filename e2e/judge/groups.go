// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/facts"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// A gate with openTogether opens on a fit node when enough nodes of its group are fit. The
// judge bounds their number: fitIn counts nodes that may have been fit at some time in the
// window, and certainly counts those that were fit at every time.

// groupOf returns the nodes of a node's group in a moment, without the node itself. The name
// is empty if the node has no group.
func groupOf(m revisions.Moment, ng *v1alpha1.NodeGate, node *corev1.Node) (name string, others []*corev1.Node) {
	key := ng.Spec.OpenTogether.LabelKey
	if name = node.Labels[key]; name == "" {
		return "", nil
	}
	for _, other := range m.AllNodes() {
		if other.Name != node.Name && other.Labels[key] == name && facts.Selects(ng, other) {
			others = append(others, other)
		}
	}
	return name, others
}

// neededIn returns how many nodes of a group must be fit. It is zero if that is unknown.
func neededIn(ng *v1alpha1.NodeGate, nodes []*corev1.Node) int {
	t := ng.Spec.OpenTogether
	if t.AtLeast.Type == intstr.Int {
		return t.AtLeast.IntValue()
	}
	size := 0
	for _, node := range nodes {
		if n, err := strconv.Atoi(node.Labels[t.SizeLabelKey]); err == nil && n >= 1 && n <= 5000 {
			size = max(size, n)
		}
	}
	needed, err := intstr.GetScaledValueFromIntOrPercent(&t.AtLeast, size, true)
	if err != nil {
		return 0
	}
	return needed
}

// fitness returns whether a node is fit in a moment: holds, notYet, or otherwise that this
// is not certain.
func (t *trial) fitness(m revisions.Moment, ng *v1alpha1.NodeGate, node *corev1.Node, now time.Time) reading {
	r, recorded := recordOf(node, ng.Name)
	o, inForce := facts.OverrideOf(node, ng.Name, now) // a record does not name an override to its own state
	switch {
	case r.Override == v1alpha1.StateClosed, inForce && o.State == v1alpha1.StateClosed:
		return notYet
	case r.Override == v1alpha1.StateOpen, inForce && o.State == v1alpha1.StateOpen:
		return holds
	case recorded && (r.closed() || r.Reason == v1alpha1.ReasonDeadlinePassed):
		result, _ := t.reads(m, node.Name, ng, now)
		if timing := ng.Spec.Timing; result == holds && timing.MinClosedSeconds+timing.OpenAfterSeconds > 0 {
			return unknown
		}
		return result
	case !recorded && facts.TaintOn(node, ng.Spec.Taint) != nil: // about to be adopted
		return unknown
	}
	return holds
}

// fitIn returns how many other nodes of a node's group were fit at some time in the window
// before a change (possible), and how many of the last ones were fit at each (certain).
func (t *trial) fitIn(c *change, ng *v1alpha1.NodeGate, others []*corev1.Node) (possible, certain int) {
	since, now := t.Earliest(c.revision).Add(-t.Lag), t.Latest(c.revision)
	for _, other := range others {
		ever, always := false, true
		for _, revision := range t.Relevant(other.Name, since, c.revision) {
			m := t.Moment(revision)
			node := m.Node(other.Name)
			if node == nil {
				always = false
				continue
			}
			fit := t.fitness(m, ng, node, now)
			inGroup := node.Labels[ng.Spec.OpenTogether.LabelKey] == other.Labels[ng.Spec.OpenTogether.LabelKey]
			ever = ever || fit != notYet && inGroup
			always = always && fit == holds && inGroup
		}
		if ever {
			possible++
		}
		if always {
			certain++
		}
	}
	return possible, certain
}

// unjustifiedByGroup returns why the node's group does not let a gate open that its signals
// open, or "" if it does.
func (t *trial) unjustifiedByGroup(c *change, gate string, before record) string {
	if before.State == v1alpha1.StateOpen && before.Reason != v1alpha1.ReasonDeadlinePassed { // it stays open in a new boot
		return ""
	}
	return whyNone(t.specs(c, gate), func(ng *v1alpha1.NodeGate) string {
		if ng == nil || ng.Spec.OpenTogether == nil || before.returned(c.before) && !ng.Spec.ClosesTogether() {
			return ""
		}
		t.checked(RuleOpening, "openings with a group")
		return t.incomplete(c, ng)
	})
}

// incomplete returns why a node's group cannot have been complete for nodegate, or "" if it
// can.
func (t *trial) incomplete(c *change, ng *v1alpha1.NodeGate) string {
	return whyNone(t.window(c), func(m revisions.Moment) string {
		node := m.Node(c.name)
		name, others := groupOf(m, ng, node)
		needed := neededIn(ng, append(others, node))
		possible, _ := t.fitIn(c, ng, others)
		switch {
		case name == "":
			return "the node has no group"
		case needed == 0:
			return "the size of the node's group is unknown"
		case possible+1 < needed:
			return fmt.Sprintf("in group %s, at most %d nodes are fit, of at least %d", name, possible+1, needed)
		}
		return ""
	})
}

// unfoundedByGroup is unfounded for a group that is incomplete.
func (t *trial) unfoundedByGroup(c *change, m revisions.Moment, ng *v1alpha1.NodeGate) string {
	if !ng.Spec.ClosesTogether() {
		return "the gate's spec does not close it for this reason"
	}
	return t.certainlyComplete(c, m, ng)
}

// certainlyComplete returns why a node's group was complete in the whole window, or "" if it
// may have been incomplete.
func (t *trial) certainlyComplete(c *change, m revisions.Moment, ng *v1alpha1.NodeGate) string {
	node := m.Node(c.name)
	name, others := groupOf(m, ng, node)
	_, certain := t.fitIn(c, ng, others)
	if o, inForce := facts.OverrideOf(node, ng.Name, t.Earliest(c.revision)); !inForce || o.State != v1alpha1.StateClosed {
		certain++ // the node itself
	}
	if needed := neededIn(ng, append(others, node)); name != "" && (needed == 0 || certain < needed) {
		return ""
	}
	return fmt.Sprintf("group %q is complete: %d nodes are fit", name, certain)
}

// finallyComplete returns whether the group of a node that is fit is complete in the final
// state. It is neither holds nor notYet if that is not certain.
func (t *trial) finallyComplete(node *corev1.Node, ng *v1alpha1.NodeGate) reading {
	m := t.Moment(t.To)
	name, others := groupOf(m, ng, node)
	needed := neededIn(ng, append(others, node))
	if name == "" || needed == 0 {
		return notYet
	}
	fit, uncertain := 1, 0
	for _, other := range others {
		_, _, steady := t.steady(other, ng, t.Quiet)
		switch f := t.fitness(m, ng, other, t.End); {
		case !steady || f != holds && f != notYet:
			uncertain++
		case f == holds:
			fit++
		}
	}
	switch {
	case fit >= needed:
		return holds
	case fit+uncertain < needed:
		return notYet
	}
	return unknown
}

// judgeFinalGroup judges a node on which a gate with openTogether is closed, and whose
// signals hold.
func (t *trial) judgeFinalGroup(node *corev1.Node, ng *v1alpha1.NodeGate, r record) {
	t.checked(RuleQuiet, "nodes that wait for their group")
	switch t.finallyComplete(node, ng) {
	case holds:
		t.finalViolation(node, ng.Name, r, "all signals have held for long enough, and the group is complete")
	case notYet:
	default:
		t.notJudged(RuleQuiet, "nodes whose group may be complete")
	}
}

// judgeFinalLoss judges a node on which a gate with closeTogether is open: if its group has
// been incomplete for long enough, it closes as far as the budget allows.
func (t *trial) judgeFinalLoss(node *corev1.Node, ng *v1alpha1.NodeGate, r record) {
	if !ng.Spec.ClosesTogether() || r.Reason == v1alpha1.ReasonDeadlinePassed || t.finallyComplete(node, ng) != notYet {
		return
	}
	m := t.Moment(t.To)
	name, others := groupOf(m, ng, node)
	if name == "" || neededIn(ng, append(others, node)) == 0 {
		return // unknown, so the gate stays open
	}
	wait := t.Quiet + secondsOr(ng.Spec.Timing.CloseAfterSeconds, 120)
	for _, other := range others {
		if _, _, steady := t.steady(other, ng, wait); !steady {
			return
		}
	}
	t.checked(RuleQuiet, "open nodes of incomplete groups")
	if t.hasBudget(node, ng) {
		t.finalViolation(node, ng.Name, r, "the group is incomplete, and there is budget")
	}
}
