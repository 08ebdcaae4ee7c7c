// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Deadlines.
//
// A closed gate's clock is in its record: it runs from when the gate closed, anew
// from when a new boot was seen, and stands still while the node is silent, for
// which the record keeps account. What the daemon does, dies or is replaced, does
// not touch it, nor does a restart of the controller. No clock of a node is read
// but to tell when it spoke again, and that only between two times of our own.
//
// A deadline passes once: the record says so, Overdue, until the gate opens, the
// node reboots or the deadline is edited to be longer. What opens by a deadline
// is open for that reason, DeadlinePassed, until its signals have all held once:
// so long it does not close for their not holding, and silence alone does not end
// it either, but only a new boot. Where they hold, and only had to for longer, that
// is the reason already.

// Deadline bounds how long a gate waits on a node. Its zero value does not.
type Deadline struct {
	// PodMissing is how long a gate may have been closed while a required pod is
	// missing; zero for as long as it likes.
	PodMissing time.Duration
	// Ready is how long a gate may have been closed.
	Ready time.Duration
	// Open opens a gate of which the deadline has passed.
	Open bool
}

func (t Deadline) isSet() bool { return t.PodMissing > 0 || t.Ready > 0 }

// LacksPod tells whether the signal does not hold because a required pod is
// missing from the node.
func (r Reading) LacksPod() bool {
	switch r.Reason {
	case v1alpha1.ReadingPodMissing, v1alpha1.ReadingDaemonSetNotFound, v1alpha1.ReadingDaemonSetNotEligible, v1alpha1.ReadingDaemonDoesNotTolerateGate:
		return true
	}
	return r.Lacks
}

// Unseen tells whether the signal is unknown because what it looks at has not
// been observed: the fault is ours, and not the node's.
func (r Reading) Unseen() bool {
	return r.State == Unknown && (r.Blind || r.Reason == v1alpha1.ReadingNotObserved)
}

// keepClock keeps account of silence in a closed gate's record.
func (d *decider) keepClock(s *slot) {
	r := s.after
	if !s.gate.Deadline.isSet() || s.isOpenByHand() {
		r.stopClock()
		return
	}
	ready, _ := d.Node.Condition(string(corev1.NodeReady))
	switch silent := d.Node.Silent(); {
	case silent && r.SilentSince.IsZero():
		r.SilentSince = within(ready.Transition, r.waitsSince(&d.Node), d.since())
	case !silent && !r.SilentSince.IsZero():
		silence := within(ready.Transition, r.SilentSince, d.since()).Sub(r.SilentSince)
		r.SilentSeconds += int64((max(silence, 0) + time.Second - 1) / time.Second)
		r.SilentSince = time.Time{}
	}
}

// waitsSince is when a closed gate's clock started. At birth that is the same
// whether the API server closed it or the controller, a little later.
func (r *Record) waitsSince(n *Node) time.Time {
	if r.Reason == v1alpha1.ReasonBirth {
		return n.Created
	}
	return r.closedSince(n)
}

// stopClock forgets all that a deadline has written.
func (r *Record) stopClock() { r.Overdue, r.SilentSince, r.SilentSeconds = false, time.Time{}, 0 }

// within is the time between two others that is nearest to it.
func within(t, from, to time.Time) time.Time {
	if t.Before(from) {
		t = from
	}
	if t.After(to) {
		t = to
	}
	return t
}

// expire decides about a closed gate that its signals do not open: whether its
// deadline has passed, and what then.
func (d *decider) expire(s *slot) {
	t, r, v := s.gate.Deadline, s.after, s.verdict
	if !t.isSet() || s.isOpenByHand() {
		return
	}
	told := r.Overdue
	if r.Overdue = d.passed(s); !r.Overdue {
		return
	}
	v.Overdue, v.PassedDeadline = true, !told
	if !t.Open || d.blocked != "" || anyUnseen(v.Readings) {
		return
	}
	v.ClosedSince, v.Overdue = r.closedSince(&d.Node), false
	// It does not open a second time for the deadline to pass, but back from silence.
	v.PassedDeadline = !told || !r.awaitsBoot()
	v.Blocked, v.BlockedUntil = "", time.Time{}
	if s.says == Holds { // and only had to for longer
		s.after = d.opened(s.gate, v1alpha1.ReasonSignalsHold)
		return
	}
	s.after = d.opened(s.gate, v1alpha1.ReasonDeadlinePassed)
	if !r.sameBootAsDigest(&d.Node) {
		s.after.Digest = r.Digest
	}
}

// passed tells whether a closed gate's deadline has passed, or had before. A pod
// that is missing for a moment, again and again, makes it pass once.
func (d *decider) passed(s *slot) bool {
	t, r := s.gate.Deadline, s.after
	start := r.waitsSince(&d.Node).Add(time.Duration(r.SilentSeconds) * time.Second)
	until, runs := d.now, r.SilentSince.IsZero()
	if !runs {
		until = earliest(until, r.SilentSince)
	}
	had, lacks := r.Overdue, lacksPod(s.verdict.Readings)
	if had && r.awaitsBoot() { // from before the silence
		return true
	}
	var next time.Time
	for _, limit := range []struct {
		after   time.Duration
		applies bool
	}{{t.Ready, true}, {t.PodMissing, lacks || had}} {
		switch due := start.Add(limit.after); {
		case limit.after == 0 || !limit.applies:
		case until.Before(due):
			next = earliest(next, due)
		default:
			return true
		}
	}
	if runs {
		s.verdict.Due = next
		d.recheckAt(next)
	}
	return false
}

// outlive ends the exception for a gate that its deadline opened, once its signals
// have all held.
func (d *decider) outlive(s *slot) {
	if r := s.after; r.Reason == v1alpha1.ReasonDeadlinePassed && d.evaluate(s, r) {
		r.Reason, r.Digest = v1alpha1.ReasonSignalsHold, ""
	}
}

func lacksPod(readings []Reading) bool {
	for i := range readings {
		if readings[i].State == NotYet && readings[i].LacksPod() {
			return true
		}
	}
	return false
}

func anyUnseen(readings []Reading) bool {
	for i := range readings {
		if readings[i].Unseen() {
			return true
		}
	}
	return false
}
