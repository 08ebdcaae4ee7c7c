// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/telemetry"
)

// Events of transitions. All gates that one write opens on a node are one Event, and all
// gates that it closes are another. There are never more Events than transitions, or than
// two per write.

// transitions collects the transitions of a node's gates in one write.
type transitions struct {
	opened, closed []string
	// gates has the gates that opened or closed. If there is only one, it is the related
	// object of the Event.
	gates []string
}

// add adds a verdict that was carried out. An opening by deadline has an Event of its
// own, and a gate that was never open has none.
func (t *transitions) add(g *gate.Gate, v *gate.Verdict, now time.Time) {
	switch {
	case v.Opened() && !v.PassedDeadline:
		held := ""
		if !v.ClosedSince.IsZero() {
			held = fmt.Sprintf(" after %s", max(now.Sub(v.ClosedSince), 0).Round(time.Second))
		}
		t.opened = append(t.opened, fmt.Sprintf("%s%s (%s)", v.Gate, held, reasonText(g, v)))
	case v.Closed() && !v.WasNeverOpen():
		t.closed = append(t.closed, fmt.Sprintf("%s (%s)", v.Gate, reasonText(g, v)))
	default:
		return
	}
	t.gates = append(t.gates, v.Gate)
}

// reportTransitions records the Events of a node's transitions.
func (c *Controller) reportTransitions(set *gateset.Set, n *gate.Node, t *transitions) {
	var related *corev1.ObjectReference
	if len(t.gates) == 1 {
		related = telemetry.GateReference(set.Object(t.gates[0]))
	}
	if len(t.opened) > 0 {
		c.events.Normal(n, related, v1alpha1.EventGateOpened, v1alpha1.EventActionOpen, countOf(t.opened)+" opened: "+strings.Join(t.opened, ", "))
	}
	if len(t.closed) > 0 {
		c.events.Normal(n, related, v1alpha1.EventGateClosed, v1alpha1.EventActionClose, countOf(t.closed)+" closed: "+strings.Join(t.closed, ", "))
	}
}

func countOf(names []string) string {
	if len(names) == 1 {
		return "gate"
	}
	return fmt.Sprintf("%d gates", len(names))
}

// reasonTextMax limits the length of the explanation why one gate opened or closed.
const reasonTextMax = 300

// reasonText explains why a gate opened or closed: the reason and, if signals or a user
// caused it, the messages of the signals or the reason of the override. The gate is nil if
// it is unlisted.
func reasonText(g *gate.Gate, v *gate.Verdict) string {
	why := ""
	switch o := v.Overridden; {
	case o != nil && o.State != "":
		why = fmt.Sprintf("until %s: %s", o.Until.UTC().Format(time.RFC3339), o.Because)
	case g == nil:
	case v.Reason == v1alpha1.ReasonGroupIncomplete && v.Group != nil:
		why = v.Group.String()
	case v.Reason == v1alpha1.ReasonRegression, v.Reason == v1alpha1.ReasonSignalsCleared:
		why = readingsText(g, v, gate.NotYet)
	case v.Reason == v1alpha1.ReasonSignalsHold && g.CloseWhen:
		why = readingsText(g, v, gate.Holds)
	}
	if why == "" {
		return string(v.Reason)
	}
	return fmt.Sprintf("%s: %s", v.Reason, gate.Clip(why, reasonTextMax))
}

// readingsText describes a gate's signals that are in a state.
func readingsText(g *gate.Gate, v *gate.Verdict, in gate.State) string {
	var all []string
	for i := range v.Readings {
		if r := &v.Readings[i]; r.State == in {
			all = append(all, fmt.Sprintf("signal %s: %s", g.Signals[i].Name, r.Message()))
		}
	}
	return strings.Join(all, "; ")
}

// conditionEvents maps conditions to Events: one when a condition indicates a problem,
// and one when the problem has ended.
var conditionEvents = []struct {
	condition       string
	problem         metav1.ConditionStatus
	event, resolved string
	message         string // of the Event resolved, if the condition has been removed
	initially       bool   // also recorded if the condition has never been different
	aboutNodes      bool   // about changes of nodes; not recorded for a dry run
}{
	{v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.EventNotAccepted, v1alpha1.EventAccepted, "", true, false},
	// A new gate needs a moment to become ready.
	{v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.EventNotReady, v1alpha1.EventReady, "", false, false},
	{v1alpha1.ConditionOverdue, metav1.ConditionTrue, v1alpha1.EventOverdue, v1alpha1.EventNotOverdue, "no node is past the deadline anymore", true, true},
	{v1alpha1.ConditionThrottled, metav1.ConditionTrue, v1alpha1.EventThrottled, v1alpha1.EventNotThrottled, "closing does not wait for budget anymore", true, true},
	{v1alpha1.ConditionContended, metav1.ConditionTrue, v1alpha1.EventContended, v1alpha1.EventNotContended, "no other writer reverts the taint anymore", true, true},
}

// recordConditionEvents records Events about conditions of a gate that have changed, after
// they were written. It ignores changes of messages, which change with every count.
func (r *reporter) recordConditionEvents(ng *v1alpha1.NodeGate, before, now []metav1.Condition) {
	for _, e := range conditionEvents {
		if e.aboutNodes && ng.Spec.Mode == v1alpha1.ModeDryRun {
			continue
		}
		was, is := meta.FindStatusCondition(before, e.condition), meta.FindStatusCondition(now, e.condition)
		hadProblem, hasProblem := was != nil && was.Status == e.problem, is != nil && is.Status == e.problem
		switch {
		case hasProblem && !hadProblem && (was != nil || e.initially):
			r.events.Gate(ng, corev1.EventTypeWarning, e.event, conditionText(is, ""))
		case !hasProblem && hadProblem:
			r.events.Gate(ng, corev1.EventTypeNormal, e.resolved, conditionText(is, e.message))
		}
	}
}

// conditionText describes a condition, or returns otherwise if there is no condition.
func conditionText(c *metav1.Condition, otherwise string) string {
	if c == nil {
		return otherwise
	}
	if c.Reason == c.Type {
		return c.Message
	}
	return fmt.Sprintf("%s: %s", c.Reason, cmp.Or(c.Message, otherwise))
}
