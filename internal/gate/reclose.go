// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// keepOpen handles a node on which the gate is open: it determines whether the gate
// closes again.
func (d *decider) keepOpen(s *slot) {
	s.renew()
	if !s.gate.Accepted {
		return
	}
	reason := d.recloses(s)
	if reason == "" {
		reason = d.groupLost(s)
	}
	if reason != "" {
		s.after = d.inBootOf(s.gate, s.after, d.closed(s.gate, reason, !s.isNew))
		switch reason {
		case v1alpha1.ReasonRegression, v1alpha1.ReasonGroupIncomplete: // boots do not matter
		case v1alpha1.ReasonRebooted, v1alpha1.ReasonRebootedUnobserved:
			s.after.Completed = ""
			s.after.Digest, _ = s.gate.takeDigestOfBoot(d.Facts, everyPod)
		default:
			s.after.Digest, _ = s.gate.takeDigest(d.Facts)
			s.after.Overdue = s.before.Reason == v1alpha1.ReasonDeadlinePassed
			if d.hasBooted(s.before) { // nothing has been proved in the current boot
				s.after.Boot, s.after.BootSeen = s.before.Boot, s.before.BootSeen
			}
		}
		d.tryOpen(s) // signals that hold in any boot keep the gate open without closing it first
		return
	}
	d.rememberBoot(s)
	d.endDeadlineException(s)
	d.defend(s, d.carriesOwn(s.gate))
}

// recloses returns the reason why an open gate closes again, or "".
//
// Unreachability and shutdown close the gate before the node returns, because later
// would be too late: Kubernetes removes its own taints within milliseconds of the first
// status of a new boot.
func (d *decider) recloses(s *slot) v1alpha1.Reason {
	g, r, n := s.gate, s.after, &d.Node
	switch {
	case g.Reclose == v1alpha1.RecloseNever:
		return ""
	case d.hasBooted(r) && d.bootsNow():
		return v1alpha1.ReasonRebooted
	case n.ShuttingDown:
		return v1alpha1.ReasonNodeShutdown
	case n.Silent():
		if d.silenceCloses(g) {
			return v1alpha1.ReasonNodeSilent
		}
		return ""
	case d.hasBooted(r):
		return d.rebootedUnobserved(s)
	case g.Reclose == v1alpha1.RecloseOnRegression && r.Reason != v1alpha1.ReasonDeadlinePassed:
		return d.regression(s)
	}
	return ""
}

// silenceSettles is how long a node must have been unreachable before its gates close,
// if its zone is large enough to be partitioned. Kubernetes' node lifecycle controller
// checks all nodes every 5 seconds and marks one after another. Only then is it clear
// whether a single node or a whole zone is unreachable.
const silenceSettles = 5 * time.Second

// silenceCloses reports whether the gate closes on an unreachable node. An unreachable
// node is not necessarily dead: closing must not evict pods, and a network partition
// must not cause a storm of writes. The effect that matters is that of the taint that
// the gate would add now, not the one that it added at birth.
func (d *decider) silenceCloses(g *Gate) bool {
	if g.taint(true).Effect == corev1.TaintEffectNoExecute || d.Zone.Partitioned() {
		return false
	}
	ready, _ := d.Node.Condition(string(corev1.NodeReady))
	since := ready.Transition
	switch {
	case d.SilentSince.After(d.now): // it was observed after the decision began
		since = d.now
	case !d.SilentSince.IsZero():
		since = d.SilentSince
	}
	wait := since.Add(silenceSettles).Sub(d.now)
	// A longer wait means that the clocks differ. It is better to close too early than
	// never.
	if d.Zone.Nodes < partitionMinNodes || wait <= 0 || wait > silenceSettles {
		return true
	}
	d.recheckAt(d.now.Add(wait))
	return false
}

// rememberBoot keeps the boot in an open gate's record usable for later comparison. A gate that
// never closes again needs none. If its reclosePolicy is changed in the first minute after a
// reboot, and the node becomes unreachable in that minute, readiness from before the boot counts.
func (d *decider) rememberBoot(s *slot) {
	r := s.after
	switch {
	case s.gate.Reclose == v1alpha1.RecloseNever:
		if r.Boot != "" && d.Node.BootID != "" && r.Boot != d.Node.BootID {
			r.Boot, r.Completed = "", ""
		}
	case r.Boot == "":
		r.Boot = d.Node.BootID
	}
}

// Lost is what is remembered about a signal of an open gate that does not hold. Each
// signal has its own wait. The zero value means that the signal holds.
type Lost struct {
	// Since is the time since which the signal has not held. It covers signals for which
	// the API has no time.
	Since time.Time
	// Rollout is true if the signal does not hold only because of a rollout.
	Rollout bool
}

// ClosesAfter returns how long a signal must be lost before the gate closes.
func (g *Gate) ClosesAfter(l Lost) time.Duration {
	if l.Rollout {
		return g.RolloutGrace
	}
	return g.CloseAfter
}

// RegressesAt returns the time from which an open gate with this verdict closes because
// of its signals, if they do not change. Zero if there is no such time.
func (g *Gate) RegressesAt(v *Verdict) (at time.Time) {
	for i, lost := range v.Lost {
		if v.Readings[i].State == NotYet {
			at = Earliest(at, lost.Since.Add(g.ClosesAfter(lost)))
		}
	}
	return at
}

// regression returns ReasonRegression if an open gate closes because a signal has not
// held for long enough, and "" otherwise.
func (d *decider) regression(s *slot) v1alpha1.Reason {
	if d.evaluate(s, s.after) {
		return ""
	}
	g, v := s.gate, s.verdict
	v.Lost = d.nextLost(d.Lost[g.Name], v.Readings)
	due := g.RegressesAt(v)
	if due.IsZero() {
		return ""
	}
	return d.closesUnderBudget(s, due, v1alpha1.ReasonRegression)
}

// nextLost returns what is remembered next about the signals of an open gate, given what
// was remembered about them. It is nil if nothing has to be remembered.
func (d *decider) nextLost(before []Lost, readings []Reading) []Lost {
	var all []Lost
	for i, reading := range readings {
		var was Lost
		if len(before) == len(readings) { // otherwise, the gate was edited
			was = before[i]
		}
		is := d.nextLostOf(reading, was)
		if is.Since.IsZero() {
			continue
		}
		if all == nil {
			all = make([]Lost, len(readings))
		}
		all[i] = is
	}
	return all
}

// nextLostOf is nextLost for one signal. Unknown neither starts nor stops the wait. The
// time that a rollout excuses is measured separately, so that it does not count towards
// CloseAfter.
func (d *decider) nextLostOf(reading Reading, was Lost) Lost {
	switch reading.State {
	case Holds:
		return Lost{}
	case Unknown:
		return was
	}
	// A DaemonSet reports its rollout as complete when the last new pod exists. The
	// rollout still counts as in progress until that pod is ready as well.
	rollout := reading.Rollout || was.Rollout && reading.ofPod()
	if rollout != was.Rollout {
		was.Since = time.Time{}
	}
	return Lost{Since: d.lostSince(reading, was.Since), Rollout: rollout}
}

// closesUnderBudget returns the reason if an open gate closes: not before it is due, and only
// with a grant. Otherwise, it returns "", and the decision is repeated or asks for a grant.
func (d *decider) closesUnderBudget(s *slot, due time.Time, reason v1alpha1.Reason) v1alpha1.Reason {
	switch {
	case d.now.Before(due):
		d.recheckAt(due)
		return ""
	case !d.Granted[s.gate.Name]:
		s.verdict.Wants = WantBudget
		return ""
	}
	return reason
}

// lostSince returns the time since which a reading has not held: the time at which that
// was first observed, or the time from the API if that is earlier. Time before the node
// became Ready again does not count: while a node is unreachable, Kubernetes marks its
// pods as not ready.
func (d *decider) lostSince(reading Reading, seen time.Time) time.Time {
	since := Earliest(d.now, seen)
	if reading.Since.IsZero() {
		return since
	}
	ready, _ := d.Node.Condition(string(corev1.NodeReady))
	return Earliest(since, Latest(reading.Since, ready.Transition))
}

func anyUnknown(readings []Reading) bool {
	return slices.ContainsFunc(readings, func(r Reading) bool { return r.State == Unknown })
}
