// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// keepOpen decides about a node on which the gate is open: whether it closes
// again.
func (d *decider) keepOpen(s *slot) {
	s.renew()
	if !s.gate.Accepted {
		return
	}
	if reason := d.recloses(s); reason != "" {
		s.after = d.closed(s.gate, reason, true)
		switch reason {
		case v1alpha1.ReasonRegression: // which is no question of boots
		case v1alpha1.ReasonRebooted:
			s.after.Digest, _ = s.gate.takeDigestOfBoot(d.Facts)
		default:
			s.after.Digest, _ = s.gate.takeDigest(d.Facts)
			s.after.Overdue = s.before.Reason == v1alpha1.ReasonDeadlinePassed
		}
		d.tryOpen(s) // what holds whatever the boot does not flicker
		return
	}
	d.rememberBoot(s)
	d.outlive(s)
	d.defend(s, d.carriesOwn(s.gate))
}

// recloses says why an open gate closes again, or nothing.
//
// Silence and shutdown close before the node comes back, because by then it
// would be too late: core lifts its own taints within milliseconds of the
// first status of a new boot.
func (d *decider) recloses(s *slot) v1alpha1.Reason {
	g, r, n := s.gate, s.after, &d.Node
	switch {
	case g.Reclose == v1alpha1.RecloseNever:
		return ""
	case r.Boot != "" && n.BootID != "" && r.Boot != n.BootID:
		return v1alpha1.ReasonRebooted
	case n.ShuttingDown:
		return v1alpha1.ReasonNodeShutdown
	case n.Silent():
		if d.silenceCloses(g) {
			return v1alpha1.ReasonNodeSilent
		}
		return ""
	case g.Reclose == v1alpha1.RecloseOnRegression && r.Reason != v1alpha1.ReasonDeadlinePassed:
		return d.regression(s)
	}
	return ""
}

// silenceSettles is how long a node must have been silent before that closes
// its gates, where the zone is large enough to be partitioned. Kubernetes' node
// lifecycle controller looks at all nodes every 5 seconds and marks one after
// the other: only then is it known whether one node fell silent or a zone.
const silenceSettles = 5 * time.Second

// silenceCloses tells whether a silent node's gate closes. Silence is no proof
// of death: it evicts nobody, and a partition of the network must not become a
// storm. What it would put there is what counts, whatever was there at birth.
func (d *decider) silenceCloses(g *Gate) bool {
	if g.taint(true).Effect == corev1.TaintEffectNoExecute || d.Zone.Partitioned() {
		return false
	}
	ready, _ := d.Node.Condition(string(corev1.NodeReady))
	wait := ready.Transition.Add(silenceSettles).Sub(d.now)
	// A longer wait means that the clocks differ: better too early than never.
	if d.Zone.Nodes < partitionMinNodes || wait <= 0 || wait > silenceSettles {
		return true
	}
	d.recheckAt(d.now.Add(wait))
	return false
}

// rememberBoot keeps an open record's boot fit for a later comparison.
func (d *decider) rememberBoot(s *slot) {
	r := s.after
	switch {
	case s.gate.Reclose == v1alpha1.RecloseNever:
		if r.Boot != "" && d.Node.BootID != "" && r.Boot != d.Node.BootID {
			r.Boot = ""
		}
	case r.Boot == "":
		r.Boot = d.Node.BootID
	}
}

// regression says whether an open gate closes because a signal has stopped
// holding for long enough. Unknown signals neither start nor stop the wait. What
// a rollout excuses is timed apart, or it would use up the patience with others.
func (d *decider) regression(s *slot) v1alpha1.Reason {
	if d.evaluate(s, s.after) {
		return ""
	}
	g, v := s.gate, s.verdict
	lost, rollout := d.LostSince[g.Name], d.RolloutSince[g.Name]
	var due time.Time
	for _, reading := range v.Readings {
		switch {
		case reading.State != NotYet:
		// A DaemonSet calls its rollout finished when the last new pod is there. Until
		// that pod is ready too, it is a rollout still.
		case reading.Rollout, lost.IsZero() && !rollout.IsZero() && reading.ofPod():
			since := d.lostSince(reading, rollout)
			v.RolloutSince = earliest(v.RolloutSince, since)
			due = earliest(due, since.Add(g.RolloutGrace))
		default:
			since := d.lostSince(reading, lost)
			v.LostSince = earliest(v.LostSince, since)
			due = earliest(due, since.Add(g.CloseAfter))
		}
	}
	if anyUnknown(v.Readings) {
		v.LostSince, v.RolloutSince = earliest(v.LostSince, lost), earliest(v.RolloutSince, rollout)
	}
	switch {
	case due.IsZero():
		return ""
	case d.now.Before(due):
		d.recheckAt(due)
		return ""
	case !d.Granted[g.Name]:
		v.Wants = WantBudget
		return ""
	}
	return v1alpha1.ReasonRegression
}

// lostSince is since when a reading has not held: what was seen first, or what
// the API tells, if that is earlier. Time before the node's own return does
// not count: while a node is silent, core marks its pods as not ready.
func (d *decider) lostSince(reading Reading, seen time.Time) time.Time {
	since := d.now
	if !seen.IsZero() && seen.Before(since) {
		since = seen
	}
	told := reading.Since
	if told.IsZero() {
		return since
	}
	if ready, ok := d.Node.Condition(string(corev1.NodeReady)); ok && told.Before(ready.Transition) {
		told = ready.Transition
	}
	if told.Before(since) {
		since = told
	}
	return since
}

// earliest returns the earlier of two times of which either may be missing.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func anyUnknown(readings []Reading) bool {
	return slices.ContainsFunc(readings, func(r Reading) bool { return r.State == Unknown })
}
