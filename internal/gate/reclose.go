// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// keepOpen decides about a node on which the gate is open: whether it closes
// again.
func (d *decider) keepOpen(s *slot) {
	r := *s.before
	s.after = &r
	if !s.gate.Accepted {
		return
	}
	if reason := d.recloses(s); reason != "" {
		s.after = d.closed(s.gate, reason)
		s.after.Digest = s.gate.takeDigest(d.Facts)
		return
	}
	d.rememberBoot(s)
	d.defend(s, d.Node.taint(s.gate.Taint.Key, s.gate.Taint.Effect) >= 0 && !d.claimed(s.gate.Taint))
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
		// Silence is no proof of death: it evicts nobody, and a partition of the
		// network must not become a storm.
		if g.Taint.Effect == corev1.TaintEffectNoExecute || d.Zone.Partitioned() {
			return ""
		}
		return v1alpha1.ReasonNodeSilent
	case g.Reclose == v1alpha1.RecloseOnRegression:
		return d.regression(s)
	}
	return ""
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
// holding for long enough. Unknown signals neither start nor stop the wait.
func (d *decider) regression(s *slot) v1alpha1.Reason {
	if d.evaluate(s, *s.after) {
		return ""
	}
	seen := d.LostSince[s.gate.Name]
	due, unknown := time.Time{}, false
	for _, reading := range s.verdict.Readings {
		switch reading.State {
		case Unknown:
			unknown = true
		case NotYet:
			since := d.lostSince(reading, seen)
			s.verdict.LostSince = earliest(s.verdict.LostSince, since)
			due = earliest(due, since.Add(s.gate.patience(reading)))
		}
	}
	switch {
	case due.IsZero():
		if unknown {
			s.verdict.LostSince = seen
		}
		return ""
	case d.now.Before(due):
		d.recheckAt(due)
		return ""
	case !d.Granted[s.gate.Name]:
		s.verdict.Wants = WantBudget
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

// patience is how long a signal may stop holding before the gate closes.
func (g *Gate) patience(reading Reading) time.Duration {
	if reading.Rollout {
		return g.RolloutGrace
	}
	return g.CloseAfter
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
