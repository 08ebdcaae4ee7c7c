// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Deadlines.
//
// The clock of a closed gate is kept in its record. It starts when the gate closes,
// restarts when a new boot is observed, and stops while the node is unreachable; the
// record accounts for that time. Pods that fail or are replaced do not affect it, nor
// do restarts of the controller. Times from the API are used only to determine when the
// node became unreachable or reachable again, and only between two times of the
// controller's own clock.
//
// A deadline passes once. The record then has Overdue set until the gate opens, the
// node reboots or the deadline is extended. A gate that its deadline opens has the
// reason DeadlinePassed until all of its signals have held once. Until then it does not
// close because its signals do not hold, and if it closes because the node is
// unreachable, it opens again when the node returns; only a new boot ends the
// exception. If the signals hold and only have to hold for longer, the gate opens with
// the reason SignalsHold instead.

// Deadline limits how long a gate waits on a node. The zero value means no limit.
type Deadline struct {
	// PodMissing is how long the gate may be closed while a required pod is missing.
	// Zero means no limit.
	PodMissing time.Duration
	// Ready is how long the gate may be closed. Zero means no limit.
	Ready time.Duration
	// Open specifies that the gate opens when its deadline has passed.
	Open bool
	// Publish specifies that a Node condition reports that the deadline has passed.
	Publish bool
}

// loadingRecheck is the delay before a deadline that has passed is evaluated again while
// feeds are loading (see Facts.Loading). The Event about the deadline and its condition name
// what the gate waits for. Signals that become known are evaluated at once; the delay is for
// those that cannot be read, and for the condition if what is loading concerns other gates.
const loadingRecheck = 10 * time.Second

func (t Deadline) isSet() bool { return t.PodMissing > 0 || t.Ready > 0 }

// LacksPod reports whether the signal does not hold because a required pod is missing
// from the node.
func (r Reading) LacksPod() bool {
	switch r.Reason {
	case v1alpha1.ReadingPodMissing, v1alpha1.ReadingPodFinished, v1alpha1.ReadingPodStatic, v1alpha1.ReadingPodNotByDaemonSet, v1alpha1.ReadingDaemonSetNotFound, v1alpha1.ReadingDaemonSetBeingDeleted, v1alpha1.ReadingDaemonSetNotEligible, v1alpha1.ReadingDaemonDoesNotTolerateGate:
		return true
	}
	return r.Lacks
}

// Unseen reports whether the signal is unknown because the objects that it depends on
// have not been observed. The cause is nodegate, not the node.
func (r Reading) Unseen() bool {
	return r.State == Unknown && (r.Blind || r.Reason == v1alpha1.ReadingNotObserved)
}

// keepClock accounts in a closed gate's record for the time that the node is
// unreachable.
func (d *decider) keepClock(s *slot) {
	r := s.after
	if !s.gate.Deadline.isSet() || s.isOverriddenOpen() {
		r.stopClock()
		return
	}
	ready, _ := d.Node.Condition(string(corev1.NodeReady))
	switch silent := d.Node.Silent(); {
	case silent && r.SilentSince.IsZero():
		r.SilentSince = within(ready.Transition, r.closedSince(&d.Node), d.since())
	case !silent && !r.SilentSince.IsZero():
		silence := within(ready.Transition, r.SilentSince, d.since()).Sub(r.SilentSince)
		r.SilentSeconds += int64((max(silence, 0) + time.Second - 1) / time.Second)
		r.SilentSince = time.Time{}
	}
}

// stopClock removes everything that a deadline has written to the record.
func (r *Record) stopClock() { r.Overdue, r.SilentSince, r.SilentSeconds = false, time.Time{}, 0 }

// within returns the time between from and to that is nearest to t.
func within(t, from, to time.Time) time.Time {
	if t.Before(from) {
		t = from
	}
	if t.After(to) {
		t = to
	}
	return t
}

// expire handles a closed gate that its signals do not open: it determines whether the
// deadline has passed, and opens the gate if the deadline specifies that.
func (d *decider) expire(s *slot) {
	t, r, v := s.gate.Deadline, s.after, s.verdict
	if !t.isSet() || s.isOverriddenOpen() {
		return
	}
	reported := r.Overdue
	if r.Overdue = d.passed(s); !r.Overdue {
		return
	}
	if !reported && d.Loading && anyUnseen(v.Readings) {
		r.Overdue = false
		d.recheckAt(d.now.Add(loadingRecheck))
		return
	}
	v.Overdue, v.PassedDeadline = true, !reported
	if !t.Open || d.blocked != "" || anyUnseen(v.Readings) {
		return
	}
	v.ClosedSince, v.Overdue = r.closedSince(&d.Node), false
	// If the gate returns from unreachability, the deadline does not pass a second
	// time.
	v.PassedDeadline = !reported || !r.awaitsBoot()
	v.Blocked, v.BlockedUntil = "", time.Time{}
	if s.signals == Holds && s.gate.Together == nil { // they only have to hold for longer
		s.after = d.inBootOf(s.gate, r, d.opened(s.gate, v1alpha1.ReasonSignalsHold))
		return
	}
	s.after = d.inBootOf(s.gate, r, d.opened(s.gate, v1alpha1.ReasonDeadlinePassed))
	if !r.sameBootAsDigest(&d.Node) {
		s.after.Digest = r.Digest
	}
}

// passed reports whether a closed gate's deadline has passed, now or before. A pod that
// is missing repeatedly for short times makes the deadline pass only once.
func (d *decider) passed(s *slot) bool {
	t, r := s.gate.Deadline, s.after
	start := r.closedSince(&d.Node).Add(time.Duration(r.SilentSeconds) * time.Second)
	until, runs := d.now, r.SilentSince.IsZero()
	if !runs {
		until = Earliest(until, r.SilentSince)
	}
	had, lacks := r.Overdue, lacksPod(s.verdict.Readings)
	if had && r.awaitsBoot() && t.Open { // it opened the gate before the node became unreachable
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
			next = Earliest(next, due)
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

// endDeadlineException ends the exception for a gate that its deadline opened, once all
// of its signals hold and the node's group is complete.
func (d *decider) endDeadlineException(s *slot) {
	r := s.after
	if r.Reason != v1alpha1.ReasonDeadlinePassed || !d.evaluate(s, r) {
		return
	}
	s.fit = true
	if s.gate.Together == nil || d.group(s.gate, s.mask != v1alpha1.StateClosed).Complete() {
		r.Reason, r.Digest = v1alpha1.ReasonSignalsHold, ""
	}
}

func lacksPod(readings []Reading) bool {
	return slices.ContainsFunc(readings, func(r Reading) bool { return r.State == NotYet && r.LacksPod() })
}

func anyUnseen(readings []Reading) bool { return slices.ContainsFunc(readings, Reading.Unseen) }
