// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/facts"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// birthPolicy is the name of the MutatingAdmissionPolicy that closes gates on new
// Nodes, and of its binding.
const birthPolicy = "nodegate-birth"

// activeAfter is the longest time that an API server may need to apply a policy, or
// a change of its parameter.
const activeAfter = 2 * time.Second

// judgeBirth judges the creation of a Node (S3). In the Node's first revision, every
// gate that selects it and has been in force for activeAfter must be closed.
func (t *trial) judgeBirth(c *change) {
	since := t.Earliest(c.revision).Add(-activeAfter)
	window := t.Relevant(c.name, since, c.revision)
	for _, ng := range t.Moment(c.revision - 1).Gates() {
		if !facts.Selects(ng, c.after) || !t.inForceAtBirth(window, ng) {
			continue
		}
		t.checked(RuleBirth, "gates in force on nodes that were created")
		r, recorded := recordOf(c.after, ng.Name)
		switch {
		case facts.TaintOn(c.after, ng.Spec.Taint) == nil:
			t.violation(RuleBirth, c, ng.Name, "node is created ungated", "the gate was in force and selects it, but the taint %s is missing", ng.Spec.Taint.Key)
		case !recorded || !r.closed() || r.Reason != v1alpha1.ReasonBirth:
			t.violation(RuleBirth, c, ng.Name, "node is created without a record", "the record has state %q and reason %q", r.State, r.Reason)
		}
	}
}

// inForceAtBirth reports whether, in all of these revisions, the gate was Ready with
// the same spec and the birth policy and its binding existed.
func (t *trial) inForceAtBirth(window []int64, gate *v1alpha1.NodeGate) bool {
	for _, revision := range window {
		m := t.Moment(revision)
		ng := m.Gate(gate.Name)
		if ng == nil || ng.UID != gate.UID || ng.Generation != gate.Generation || ng.Spec.Follows() || !ng.Spec.Enforces() ||
			!hasCondition(ng, v1alpha1.ConditionReady, metav1.ConditionTrue) || !m.Exists(revisions.KindPolicy, birthPolicy) || !m.Exists(revisions.KindBinding, birthPolicy) {
			return false
		}
	}
	return len(window) > 0
}

// hasCondition reports whether a condition of the gate has this status for its current generation.
func hasCondition(ng *v1alpha1.NodeGate, condition string, status metav1.ConditionStatus) bool {
	c := meta.FindStatusCondition(ng.Status.Conditions, condition)
	return c != nil && c.Status == status && c.ObservedGeneration == ng.Generation
}

// newFor is how long after its creation a node without a record of a gate counts as
// new to the gate.
const newFor = 10 * time.Minute

// notNew returns why a node is not new to a gate, or "" if it is.
func (t *trial) notNew(c *change, ng *v1alpha1.NodeGate) string {
	age := t.Earliest(c.revision).Sub(c.before.CreationTimestamp.Time)
	switch {
	case c.before.CreationTimestamp.Before(&ng.CreationTimestamp):
		return "the Node is older than the gate"
	case age > newFor+t.Lag:
		return fmt.Sprintf("the Node is %s old", age.Round(time.Second))
	}
	return ""
}
