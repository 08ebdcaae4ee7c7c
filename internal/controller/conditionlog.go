// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/nodegate/nodegate/internal/gateset"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A gate that no object stands behind has no status to be read. What its
// conditions would say is told by the log, one line for each change, and, as
// for every gate, by nodegate_gate_condition.

// logConditions logs which conditions of a gate have changed: their status or
// reason. Messages change with every count.
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
			r.log.Info("gate condition is gone", "gate", gateName, "condition", before[i].Type)
		}
	}
}

// logUnlisted logs which gates are not known although nodes have records of
// them that must be kept: those of another source, or of one that cannot be
// read.
func (r *reporter) logUnlisted(set *gateset.Set) {
	names := r.ledger.Unlisted(set.Declared)
	r.metrics.Strangers.Set(float64(names.Count))
	switch told := names.String(); {
	case told == r.unlisted:
		return
	case names.Count > 0:
		r.log.Info("gates are not known, keeping what they closed", "gates", told, "source", set.Source, "complete", set.Complete)
	default:
		r.log.Info("nothing is kept of unknown gates any more")
	}
	r.unlisted = names.String()
}
