// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Closing idle nodes.
//
// Whether an existing node is idle is not observed continuously. It requires a list of
// all pods on the node, which is made on demand. A pod may be bound between the list
// and the write of the taint, so the node is checked once more after the gate has
// closed. Until then, the record's reason is ExistingIdle. If the node is idle, the
// reason changes to Existing. Otherwise, the gate opens and the record is removed, as
// if the node had never been closed.

// idleSettles is how long after closing the pods are listed again. A scheduler may need
// that long to observe the taint.
const idleSettles = 5 * time.Second

// closeIfIdle closes the gate on an existing node with this record, if the node is
// idle.
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

// confirmIdle checks once more whether a node that was closed because it was idle is
// idle. Pods that tolerate the taint may have been bound since and do not count. The
// taint that matters is the one that was added at that time, even if the gate specifies
// another one now.
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
