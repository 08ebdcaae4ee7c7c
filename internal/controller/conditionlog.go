// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/internal/gateset"
)

// A gate from a file has no object with a status. Its conditions are reported in the log,
// one line for each change, and, like those of every gate, by nodegate_gate_condition.

// logConditions logs conditions of a gate whose status or reason has changed. It ignores
// changes of messages, which change with every count.
func (r *reporter) logConditions(gateName string, before, now []metav1.Condition) {
	for i := range now {
		c := &now[i]
		was := meta.FindStatusCondition(before, c.Type)
		if was == nil || was.Status != c.Status || was.Reason != c.Reason {
			r.log.Info("gate condition changed", "gate", gateName, "condition", c.Type,
				"status", c.Status, "reason", c.Reason, "message", c.Message)
		}
	}
	for i := range before {
		if meta.FindStatusCondition(now, before[i].Type) == nil {
			r.log.Info("gate condition removed", "gate", gateName, "condition", before[i].Type)
		}
	}
}

// logUnlisted logs the unlisted gates of which nodes have records that must be kept. These
// are gates of another source, or of a source that cannot be read, or deleted gates whose taints
// are no longer allowed.
func (r *reporter) logUnlisted(set *gateset.Set) {
	names := r.ledger.Unlisted(set.Declared)
	r.metrics.UnlistedGates.Set(float64(names.Count))
	text := names.String()
	switch {
	case text == r.unlisted:
		return
	case names.Count > 0:
		r.log.Info("nodes have records of unlisted gates, keeping their taints because it is not certain that the gates were deleted, or because the taints are not in --allowed-taint-keys", "gates", text, "source", set.Source, "complete", set.Complete)
	default:
		r.log.Info("no node has records of unlisted gates anymore")
	}
	r.unlisted = text
}
