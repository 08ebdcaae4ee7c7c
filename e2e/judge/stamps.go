// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/facts"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// judgeStamps judges the annotations in which gates record when they opened (openedAtAnnotation).
// A write of nodegate that opens such a gate writes the time, unless the administrator has not
// allowed the annotation, and no other write does (S2).
func (t *trial) judgeStamps(c *change) {
	opening := make(map[string]bool) // whether a gate with this annotation opens
	for _, id := range t.Names(revisions.KindNodeGate) {
		specs := t.specs(c, id.Name)
		opens, adopts := t.opensHere(c, id.Name, specs)
		for _, ng := range specs {
			if ng != nil && ng.Spec.OpenedAtAnnotation != "" {
				opening[ng.Spec.OpenedAtAnnotation] = opening[ng.Spec.OpenedAtAnnotation] || opens || adopts
			}
		}
		if key := stampOf(specs); key != "" && opens {
			t.judgeStamp(c, id.Name, key)
		}
	}
	for key, opens := range opening {
		was, had := c.before.Annotations[key]
		is, has := c.after.Annotations[key]
		if (was != is || had != has) && !opens {
			t.violation(RuleForeign, c, "", "nodegate writes annotation "+key, "no gate with this openedAtAnnotation opens")
		}
	}
}

// stampOf returns the annotation that every one of a gate's specs requires, or "".
func stampOf(specs []*v1alpha1.NodeGate) (key string) {
	for i, ng := range specs {
		if ng == nil || !ng.Spec.Enforces() || i > 0 && ng.Spec.OpenedAtAnnotation != key {
			return ""
		}
		accepted := meta.FindStatusCondition(ng.Status.Conditions, v1alpha1.ConditionAccepted)
		if key = ng.Spec.OpenedAtAnnotation; accepted == nil || accepted.Status != metav1.ConditionTrue || accepted.Reason == v1alpha1.ReasonStampNotAllowed {
			return ""
		}
	}
	return key
}

// opensHere reports whether a write opens a gate on a node on which it was closed, and whether it
// adopts the gate's taint on the node and opens at once. A node that ceases to be a member does
// not count.
func (t *trial) opensHere(c *change, gate string, specs []*v1alpha1.NodeGate) (opens, adopts bool) {
	before, _ := recordOf(c.before, gate)
	after, recorded := recordOf(c.after, gate)
	if was, taken := t.takenOver(c, gate, after); before.State == "" && taken {
		before = was
	}
	if after.closed() {
		return false, false
	}
	if before.closed() {
		follows := !slices.ContainsFunc(specs, func(ng *v1alpha1.NodeGate) bool { return ng == nil || !ng.Spec.Follows() })
		return recorded || follows && t.reasonToLeave(c, gate) == "", false
	}
	carried := func(ng *v1alpha1.NodeGate) bool { return ng != nil && facts.CarriesAny(c.before, ng) }
	return false, recorded && before.State == "" && slices.ContainsFunc(specs, carried)
}

// judgeStamp judges the time that a write which opens the gate has in its annotation.
func (t *trial) judgeStamp(c *change, gate, key string) {
	t.checked(RuleForeign, "openings with an openedAtAnnotation")
	text, exists := c.after.Annotations[key]
	seconds, err := strconv.ParseInt(text, 10, 64)
	why := ""
	switch at := time.Unix(seconds, 0); {
	case !exists:
		why = "is missing"
	case err != nil || !t.isTimeOf(c, at):
		why = fmt.Sprintf("is %q, which is not the time of the opening", text)
	}
	if why != "" {
		t.violation(RuleForeign, c, gate, "gate opens", "its openedAtAnnotation %s %s", key, why)
	}
}

// isTimeOf reports whether nodegate may have decided on a write at a time. Times may be truncated
// to seconds, and clocks may differ by one.
func (t *trial) isTimeOf(c *change, at time.Time) bool {
	return !at.Before(t.Earliest(c.revision).Add(-t.Lag-2*time.Second)) && !at.After(t.Latest(c.revision).Add(time.Second))
}
