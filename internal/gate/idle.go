// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Closing idle nodes.
//
// Whether an existing node is idle is not observed: it takes a list of all of
// its pods, made for the occasion. Between the list and the taint a pod may
// have been bound, so that the node is looked at once more after it was closed.
// That it still has to be is in the record: its reason is ExistingIdle until
// then. If the node turns out to be idle, the reason becomes Existing; if not,
// the gate opens and the record goes, and the node is as if it had never been
// closed.

// idleSettles is how long after the closing the pods are looked at again: a
// scheduler may need that long to hear of a taint.
const idleSettles = 5 * time.Second

// closeIfIdle decides about an existing node that the gate closes with this
// record, if it is idle.
func (d *decider) closeIfIdle(s *slot, r *Record) {
	switch {
	case d.AllPods == nil:
		s.verdict.Wants = WantPods
	case slices.ContainsFunc(d.AllPods.Pods, func(p BoundPod) bool { return p.isWorkload() }):
		s.verdict.Wants = WantIdle
	default:
		r.Reason = v1alpha1.ReasonExistingIdle
		if d.closeUnderBudget(s, r); s.after != nil {
			d.recheckAt(r.Since.Add(idleSettles))
		}
	}
}

// confirmIdle looks once more whether a node that was closed because it was idle
// is. Pods that tolerate the taint may have come since, and do not count: the taint
// that was put there then, even if the gate has another one by now.
func (d *decider) confirmIdle(s *slot) {
	g := s.gate
	if s.after.Reason != v1alpha1.ReasonExistingIdle || g.Existing != v1alpha1.ExistingCloseIfIdle || !g.Accepted {
		return
	}
	due := s.after.closedSince(&d.Node).Add(idleSettles)
	switch {
	case d.now.Before(due):
		d.recheckAt(due)
	case d.AllPods == nil, d.AllPods.At.Before(due):
		s.verdict.Wants = WantPods
	case slices.ContainsFunc(d.AllPods.Pods, func(p BoundPod) bool { return p.isWorkload() && !p.Tolerates(s.had) }):
		s.verdict.ClosedSince = s.after.closedSince(&d.Node)
		s.verdict.Reason = v1alpha1.ReasonNotIdle
		s.after = nil
	default:
		s.after.Reason = v1alpha1.ReasonExisting
	}
}
