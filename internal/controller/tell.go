// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// A gate that no object stands behind has no status to be read. What its
// conditions would say is told by the log, one line for each change, and, as
// for every gate, by nodegate_gate_condition.

// tellConditions logs which conditions of a gate have changed: their status or
// reason. Messages change with every count.
func (r *reporter) tellConditions(gateName string, before, now []metav1.Condition) {
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

// tellStrangers logs which gates are not known although nodes have records of
// them that must be kept: those of another source, or of one that cannot be
// read.
func (r *reporter) tellStrangers(set *gateSet) {
	names := r.tally.strangers(set.declared)
	r.metrics.strangers.Set(float64(names.count))
	switch told := names.String(); {
	case told == r.strangers:
		return
	case names.count > 0:
		r.log.Info("gates are not known, keeping what they closed", "gates", told, "source", set.source, "complete", set.complete)
	default:
		r.log.Info("nothing is kept of unknown gates any more")
	}
	r.strangers = names.String()
}

// conditionTypes are all that a gate may have.
var conditionTypes = []string{
	v1alpha1.ConditionReady, v1alpha1.ConditionAccepted, v1alpha1.ConditionOverdue,
	v1alpha1.ConditionThrottled, v1alpha1.ConditionContended,
}

func (m *Metrics) gateConditions(name string, conditions []metav1.Condition) {
	m.about(name, func() {
		for _, kind := range conditionTypes {
			value := 0.0
			if meta.IsStatusConditionTrue(conditions, kind) {
				value = 1
			}
			m.conditions.WithLabelValues(name, kind).Set(value)
		}
	})
}

// gatesKnown tells whether the gates are certain to be all.
func (m *Metrics) gatesKnown(complete bool) {
	value := 0.0
	if complete {
		value = 1
	}
	m.complete.Set(value)
}

// strangers names gates that are not among these, and of which records are
// kept all the same, since it is not known that they were deleted.
func (t *tally) strangers(known map[string]*v1alpha1.NodeGate) (names few) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, g := range t.gates {
		names.addIf(known[name] == nil && g.isKept(), name)
	}
	return names
}

// isKept tells whether there are records of the gate that are kept although it is
// not known.
func (g *gateTally) isKept() bool {
	for _, s := range g.shapes {
		if s.standing.stranger {
			return true
		}
	}
	return false
}
