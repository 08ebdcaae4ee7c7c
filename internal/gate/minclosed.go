// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// tooSoon reports whether a gate with this record must stay closed although its signals
// would open it, because it has not been closed for long enough or its signals have not
// been in that state for long enough, which they will have been at the time soaked.
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

// closedFrom returns the time at which a gate's minimum closed time starts. The time
// comes from the API, so that restarts do not affect it. The result is false if the
// minimum does not apply: it is unknown how long a taint has been there that the node
// already carried, and a node that returned without a reboot, after it was unreachable
// or announced its shutdown, is unchanged.
func (r *Record) closedFrom(n *Node) (time.Time, bool) {
	switch {
	case r.Reason == v1alpha1.ReasonAdopted, r.sameBootAsDigest(n):
		return time.Time{}, false
	case r.Reason == v1alpha1.ReasonBirth:
		return n.Created, true // the same, whether the API server or the controller closed it
	}
	return r.closedSince(n), true
}
