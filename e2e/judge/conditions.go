// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/facts"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// gateOf returns the gate to which a condition of a Node belongs, and whether it belongs to
// one.
func gateOf(c corev1.NodeCondition) (gate string, belongs bool) {
	return strings.CutPrefix(string(c.Type), v1alpha1.DeadlineConditionPrefix)
}

// isPublished reports whether the Node has the gate's condition with the status True, on
// which remediation controllers act.
func isPublished(node *corev1.Node, gate string) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		of, belongs := gateOf(c)
		return belongs && of == gate && c.Status == corev1.ConditionTrue
	})
}

// judgeConditions judges nodegate's changes of conditions. Foreign conditions must stay the same,
// in the same order (S2). A gate's condition may be written only if the gate publishes it and,
// according to the record, is closed and past its deadline (S2), and on no more nodes of a zone
// than the budget allows (S4). It may be removed at any time.
func (t *trial) judgeConditions(c *change) {
	gates := func(condition corev1.NodeCondition) bool { _, belongs := gateOf(condition); return belongs }
	same := func(a, b corev1.NodeCondition) bool { return equality.Semantic.DeepEqual(a, b) }
	before := slices.DeleteFunc(slices.Clone(c.before.Status.Conditions), gates)
	after := slices.DeleteFunc(slices.Clone(c.after.Status.Conditions), gates)
	if !slices.EqualFunc(before, after, same) {
		t.violation(RuleForeign, c, "", "nodegate changes foreign conditions", "they were %v and are now %v", before, after)
	}
	for _, condition := range c.after.Status.Conditions {
		gate, belongs := gateOf(condition)
		if !belongs || slices.ContainsFunc(c.before.Status.Conditions, func(old corev1.NodeCondition) bool { return same(old, condition) }) {
			continue
		}
		what := "nodegate writes condition " + string(condition.Type)
		if why := t.unpublished(c, gate, condition); why != "" {
			t.violation(RuleForeign, c, gate, what, "%s", why)
		}
		if isPublished(c.before, gate) {
			continue
		}
		t.checked(RuleClosing, "conditions under a budget")
		if n, allowed := t.budget(c, gate, isPublished); n > allowed {
			t.violation(RuleClosing, c, gate, what, "with this node, %d nodes of the zone have it, but the budget is %d", n, allowed)
		}
	}
}

// unpublished returns why nodegate may not write a gate's condition, or "".
func (t *trial) unpublished(c *change, gate string, condition corev1.NodeCondition) string {
	publishes := func(ng *v1alpha1.NodeGate) bool { return ng != nil && ng.Spec.Deadline.Publishes() }
	r, _ := recordOf(c.after, gate)
	switch {
	case condition.Status != corev1.ConditionTrue || condition.Reason != string(v1alpha1.ReasonDeadlinePassed):
		return fmt.Sprintf("its status is %s and its reason is %q", condition.Status, condition.Reason)
	case !r.closed():
		return "according to the record, the gate is not closed"
	case !r.Overdue:
		return "according to the record, the deadline has not passed"
	case !slices.ContainsFunc(t.specs(c, gate), publishes):
		return "the gate does not publish it"
	}
	return whyNone(t.window(c), func(m revisions.Moment) string { return facts.Blocked(m.Node(c.name)) })
}

// judgeFinalConditions judges that the Node finally has the conditions of exactly the gates that
// publish it (L), except that the budget may allow fewer.
func (t *trial) judgeFinalConditions(node *corev1.Node) {
	m := t.Moment(t.To)
	for _, condition := range node.Status.Conditions {
		if gate, belongs := gateOf(condition); belongs && m.Gate(gate) == nil {
			t.checked(RuleQuiet, "conditions of gates that do not exist")
			t.finalViolation(node, gate, record{}, "the gate does not exist, and the node has its condition")
		}
	}
	for _, ng := range m.Gates() {
		if t.unjudged(node, ng) == "" && (facts.Selects(ng, node) || !t.leaving(node, ng)) {
			t.judgeFinalCondition(node, ng)
		}
	}
}

func (t *trial) judgeFinalCondition(node *corev1.Node, ng *v1alpha1.NodeGate) {
	r, _ := recordOf(node, ng.Name)
	has := isPublished(node, ng.Name)
	if !ng.Spec.Deadline.Publishes() || !ng.Spec.Enforces() || !facts.Selects(ng, node) || !r.closed() || !r.Overdue {
		if has {
			t.finalViolation(node, ng.Name, r, "the node has its condition without reason")
		}
		return
	}
	t.checked(RuleQuiet, "nodes on which a gate's deadline has passed")
	// A fit node that waits only for its group has no condition.
	if !has && facts.Blocked(node) == "" && ng.Spec.OpenTogether == nil && t.admits(node, ng, isPublished) {
		t.finalViolation(node, ng.Name, r, "its deadline has passed, the budget allows its condition, and the node does not have it")
	}
}
