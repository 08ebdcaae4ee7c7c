// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/facts"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// notAdmitted returns why a node without a record does not become a member of an openWhen gate with
// the gate open, or "" if it may. A node whose record cannot be read may have been a member.
func (t *trial) notAdmitted(c *change, gate string, before record, reason v1alpha1.Reason) string {
	text := c.before.Annotations[v1alpha1.RecordAnnotationPrefix+gate]
	if was, _ := recordOf(c.before, gate); before.State != "" || text != "" && was.State == "" {
		return ""
	}
	return whyNone(t.ofGate(t.window(c), c, gate), func(m revisions.Moment) string {
		return t.notAdmittedIn(c, m, m.Gate(gate), reason)
	})
}

func (t *trial) notAdmittedIn(c *change, m revisions.Moment, ng *v1alpha1.NodeGate, reason v1alpha1.Reason) string {
	switch {
	case ng == nil:
		return "the gate does not exist"
	case ng.Spec.Follows():
		return ""
	case !facts.Selects(ng, m.Node(c.name)):
		return "the gate does not select the node"
	case reason != v1alpha1.ReasonAdopted && !facts.CarriesAny(m.Node(c.name), ng):
		return t.notNew(c, ng)
	case reason == v1alpha1.ReasonAdopted && (ng.Spec.ExistingNodes == "" || ng.Spec.ExistingNodes == v1alpha1.ExistingIgnore):
		return "the gate ignores existing nodes"
	}
	return ""
}

// unfoundedState returns why an openWhen gate in this own state does not close for the reason, or
// "". A node that is not a member becomes one only because it is new, carries the taint, or because
// of existingNodes; only an open gate closes for what happens to a member.
func (t *trial) unfoundedState(c *change, ng *v1alpha1.NodeGate, before record, reason v1alpha1.Reason) string {
	if !before.isOf(c.before) {
		before = record{}
	}
	switch reason {
	case v1alpha1.ReasonRegression, v1alpha1.ReasonGroupIncomplete, v1alpha1.ReasonNodeSilent, v1alpha1.ReasonNodeShutdown:
		outage := reason == v1alpha1.ReasonNodeSilent || reason == v1alpha1.ReasonNodeShutdown
		if before.Reason == v1alpha1.ReasonDeadlinePassed && !outage {
			return "its deadline opened it, and its signals have not held since"
		}
	case v1alpha1.ReasonExisting, v1alpha1.ReasonExistingIdle:
		if before.State == "" || before.Reason == v1alpha1.ReasonExistingIdle {
			return ""
		}
		if before.State == v1alpha1.StateOpen {
			return "the gate was open"
		}
	default:
		return ""
	}
	switch {
	case ng.Spec.Follows(), before.State == v1alpha1.StateOpen:
		return ""
	case before.State == v1alpha1.StateClosed:
		return "the gate was closed already, for another reason"
	}
	return "the node is not a member"
}

// judgeLostRecord judges a write of nodegate that removes the record of a gate that is open apart
// from overrides (S2). An openWhen gate needs the record to close again.
func (t *trial) judgeLostRecord(c *change, gate string, before record, recorded bool) {
	if recorded || before.own().State != v1alpha1.StateOpen {
		return
	}
	t.checked(RuleForeign, "records of open gates that are removed")
	follows := func(ng *v1alpha1.NodeGate) bool { return ng != nil && ng.Spec.Follows() }
	if !before.isOf(c.before) || slices.ContainsFunc(t.specs(c, gate), follows) {
		return
	}
	why := ""
	switch t.reasonToLeave(c, gate) {
	case "":
		why = "the gate exists and selects the node"
	case v1alpha1.ReasonNotSelected:
		why = t.stillMember(c, gate)
	}
	if why != "" {
		t.violation(RuleForeign, c, gate, "nodegate removes the record of an open gate", "%s", why)
	}
}

// goneAfter is how long a node must have been unreachable before a gate detaches its volumes.
const goneAfter = time.Minute

// unfoundedDetaching returns why a gate does not detach volumes from the node, or "" if it may, or
// does not detach volumes. The patch tests that the node is unreachable.
func (t *trial) unfoundedDetaching(c *change, m revisions.Moment, ng *v1alpha1.NodeGate, reason v1alpha1.Reason) string {
	node := m.Node(c.name)
	changed := facts.ReadyChanged(node)
	isShutDown := slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == v1alpha1.TaintCloudShutdown })
	switch {
	case ng.Spec.Taint.Key != v1alpha1.TaintOutOfService:
		return ""
	case reason != v1alpha1.ReasonSignalsHold && reason != v1alpha1.ReasonOverrideEnded:
		return "a gate that detaches volumes closes only because its signals hold"
	case !facts.IsUnreachable(c.before) || !facts.IsUnreachable(node):
		return "the node's Ready condition is not Unknown"
	case isShutDown:
		return ""
	case changed.IsZero() || t.Latest(c.revision).Before(changed.Add(goneAfter)):
		return "the node has been unreachable for less than a minute"
	case t.certainlyPartitioned(c, facts.ZoneOf(node)):
		return "the node's zone may be partitioned: most of its nodes are unreachable"
	}
	return ""
}

// isRefused reports whether the gate's status shows, from Lag before a change until Lag after it,
// that the gate is not accepted.
func (t *trial) isRefused(c *change, gate string) bool {
	since, until := t.Earliest(c.revision).Add(-t.Lag), t.Latest(c.revision).Add(t.Lag)
	if t.Rewinds || t.End.Before(until) {
		return false
	}
	for _, v := range slices.Backward(t.VersionsOf(revisions.ID{Kind: revisions.KindNodeGate, Name: gate})) {
		if t.Earliest(v.Revision).After(until) {
			continue
		}
		ng, exists := v.Object.(*v1alpha1.NodeGate)
		if !exists || !hasCondition(ng, v1alpha1.ConditionAccepted, metav1.ConditionFalse) {
			return false
		}
		if t.Latest(v.Revision).Before(since) {
			return true
		}
	}
	return false
}
