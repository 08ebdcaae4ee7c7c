// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Conditions.
//
// A gate can publish on the Node that its deadline has passed, so that a remediation
// controller replaces the node. The type of the condition contains the gate's name, so it
// belongs to one gate like a record does, and nothing else has to be stored: a condition
// whose gate has no reason for it is removed, whether the gate still exists or not.
//
// The condition is in the Node's status, which the patch of taints and records cannot
// change. It therefore needs a second write, which follows when the record shows that the
// deadline has passed. That write tests the record: the API server rejects it if the gate
// has opened in the meantime.
//
// To publish is to have a machine destroyed. It needs a grant, like closing under a
// budget, and is never done on uncertain facts. To remove the condition needs neither.

// conditionMessageMax limits the length of a condition's message, in bytes.
const conditionMessageMax = 1024

// conditionType returns the type of the condition of a gate.
func conditionType(gateName string) string { return v1alpha1.DeadlineConditionPrefix + gateName }

// conditions adds to a decision the conditions to be written and removed.
func (d *decider) conditions(gates []Gate, out *Decision) {
	present := d.Node.published()
	for i := range d.slots {
		s := &d.slots[i]
		if len(present) == 0 && (s.gate == nil || !s.gate.Deadline.Publish) {
			continue
		}
		status, exists := present[s.name]
		delete(present, s.name)
		s.verdict.WasPublished = status == corev1.ConditionTrue
		d.condition(s, exists, out)
	}
	out.Recheck, out.Again = d.recheck, d.again
	for name := range present { // the gate has no record, and does not select the node or does not exist
		if !d.Part || hasGate(gates, name) {
			put(&out.Conditions, name, nil)
		}
	}
}

// condition adds the condition of a slot to a decision. exists reports whether the node has it,
// with any status.
func (d *decider) condition(s *slot, exists bool, out *Decision) {
	v := s.verdict
	v.Published = v.WasPublished
	switch d.publication(s) {
	case publishes:
		v.Published = v.WasPublished || d.Granted[s.name] && v.Wants == ""
		switch {
		case v.Published && !v.WasPublished:
			put(&out.Conditions, s.name, d.newCondition(s))
		case !v.Published && v.Wants == "": // else the other want comes first
			v.Wants = WantCondition
		}
	case withdraws:
		if v.Published = false; exists {
			put(&out.Conditions, s.name, nil)
		}
	}
}

// publication is what a gate requires of its condition.
type publication int

const (
	keepsCondition publication = iota // neither can be decided at present
	publishes
	withdraws
)

// publication returns what a slot requires of its condition.
func (d *decider) publication(s *slot) publication {
	g := s.gate
	switch {
	case g == nil && s.keep, g != nil && g.Broken:
		return keepsCondition
	case g == nil, !d.acts(g), !g.Deadline.Publish, !s.selected:
		return withdraws
	case s.keep, !g.Accepted: // such as while expressions are compiled
		return keepsCondition
	case s.after == nil || s.after.State != v1alpha1.StateClosed || !s.after.Overdue || s.isOverriddenOpen():
		return withdraws
	case s.fit: // it waits only for its group or for a user, and must not be replaced
		return withdraws
	case !s.before.isOverdue():
		d.again = true // when the record has been written
		return keepsCondition
	case d.blocked != "", anyUnseen(s.verdict.Readings):
		return keepsCondition
	case d.Loading:
		d.recheckAt(d.now.Add(loadingRecheck))
		return keepsCondition
	}
	return publishes
}

// isOverdue reports whether the record shows that the deadline has passed. It may be nil.
func (r *Record) isOverdue() bool { return r != nil && r.Overdue }

// published returns the statuses of the conditions of gates, by gate. It is nil if there
// are none.
func (n *Node) published() map[string]corev1.ConditionStatus {
	var all map[string]corev1.ConditionStatus
	for i := range n.Conditions {
		if name, ours := strings.CutPrefix(n.Conditions[i].Type, v1alpha1.DeadlineConditionPrefix); ours {
			put(&all, name, n.Conditions[i].Status)
		}
	}
	return all
}

// newCondition returns the condition of an overdue gate.
func (d *decider) newCondition(s *slot) *corev1.NodeCondition {
	now := metav1.NewTime(d.now)
	return &corev1.NodeCondition{
		Type: corev1.NodeConditionType(conditionType(s.name)), Status: corev1.ConditionTrue,
		Reason: string(v1alpha1.ReasonDeadlinePassed),
		Message: Clip(fmt.Sprintf("gate %s is closed on this node and its deadline has passed; it waits for: %s",
			s.name, s.gate.WaitsFor(s.verdict)), conditionMessageMax),
		LastTransitionTime: now, LastHeartbeatTime: now,
	}
}

// WaitsFor describes everything that a closed gate waits for.
func (g *Gate) WaitsFor(v *Verdict) string {
	var all []string
	for i := range v.Readings {
		if r := &v.Readings[i]; r.State != Holds {
			all = append(all, fmt.Sprintf("signal %s: %s", g.Signals[i].Name, r.Message()))
		}
	}
	if len(g.Signals) == 0 {
		all = append(all, Reading{Reason: v1alpha1.ReadingInvalidSpec}.Message())
	}
	if o := v.Obstacle(); o.Reason != "" {
		all = append(all, o.Message())
	}
	if len(all) == 0 {
		return "its signals had not held for long enough"
	}
	return strings.Join(all, "; ")
}

func hasGate(gates []Gate, name string) bool {
	return slices.ContainsFunc(gates, func(g Gate) bool { return g.Name == name })
}

// Clip truncates a text to limit bytes.
func Clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const dots = "..."
	return strings.ToValidUTF8(text[:limit-len(dots)], "") + dots
}
