// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// tooSoon tells whether a gate that its signals would open, and that stands as
// the record says, has not been closed for long enough, or whether they have not
// said so for long enough: not before the time that is given.
func (d *decider) tooSoon(s *slot, r *Record, soaked time.Time) bool {
	reason, until := v1alpha1.ReadingOpenAfter, soaked
	if from, held := r.closedFrom(&d.Node); held && s.gate.MinClosed > 0 && !from.Add(s.gate.MinClosed).Before(until) {
		reason, until = v1alpha1.ReadingMinClosed, from.Add(s.gate.MinClosed)
	}
	if !d.now.Before(until) {
		return false
	}
	s.verdict.Blocked, s.verdict.BlockedUntil = reason, until
	d.recheckAt(until)
	return true
}

// closedFrom is from when on a gate's least time of being closed counts: what
// the API tells, so that a restart makes no difference. It is false where there
// is no such time, because waiting would be good for nothing. Of a taint that the
// node carried already it is not known for how long; and a node that is back from
// silence or an announced shutdown without a reboot is what it was before.
func (r *Record) closedFrom(n *Node) (time.Time, bool) {
	switch {
	case r.Reason == v1alpha1.ReasonAdopted, r.sameBootAsDigest(n):
		return time.Time{}, false
	case r.Reason == v1alpha1.ReasonBirth:
		return n.Created, true // the same, whether the API server closed it or we did
	}
	return r.closedSince(n), true
}
