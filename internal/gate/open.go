// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// keepClosed handles a node on which the gate is closed. It updates the record to the
// node's boot and the gate's taint, and opens the gate if its signals hold.
func (d *decider) keepClosed(s *slot) {
	s.renew()
	d.noteBoot(s)
	r := s.after
	if d.tryOpen(s); s.after.State == v1alpha1.StateOpen {
		if s.after.Reason == v1alpha1.ReasonSignalsHold {
			s.verdict.Closure = d.closure(s, r)
		}
		return
	}
	if d.confirmIdle(s); s.after != nil {
		d.defendClosed(s)
	}
}

// renew starts from the existing record, updated to the gate's taint and source.
func (s *slot) renew() {
	s.renewed = *s.before
	r := &s.renewed
	r.Source = s.gate.Source
	if t := s.gate.taint(r.Reclosed); r.State == v1alpha1.StateClosed && s.gate.Accepted && s.had != t {
		r.Taint = TaintText(t)
	}
	s.after = r
}

// defendClosed restores a closed gate's taint if another writer has changed it, and
// removes the gate's other taint. It does nothing if the gate was edited, because its
// taint is then replaced anyway.
func (d *decider) defendClosed(s *slot) {
	if !s.gate.Accepted || s.had != s.gate.taint(s.after.Reclosed) {
		return
	}
	other := s.gate.taint(!s.after.Reclosed)
	d.defend(s, d.reverted(s.had) || other != s.had && d.carriesUnclaimed(other))
}

// noteBoot updates a closed gate's record to the node's boot. After a new boot, the
// earlier state of the gate's pods is no longer evidence, and earlier contention over
// the taint is over.
func (d *decider) noteBoot(s *slot) {
	r, boot := s.after, d.Node.BootID
	switch {
	case boot == "":
		return
	case r.Boot == "", r.Boot == boot:
		r.Boot = boot // it may be the first boot ID that the kubelet reports
		d.followPods(s)
		return
	case r.awaitsBoot() && !d.bootsNow() && (d.Node.Silent() || d.Node.ShuttingDown):
		return // it closed in an unproved boot, and nothing can be proved now
	case !r.awaitsBoot() || d.Boot.After != r.Boot || d.Boot.Ahead || s.gate.editedSince(r):
		// Pods may have become ready, in the old boot or in an unobserved one, without
		// opening the gate.
		r.Digest = digestAll
	default:
		// Pods may have been marked again since the digest was taken.
		r.Digest = r.Digest.withMarks(s.gate, d.Facts)
	}
	reason := v1alpha1.ReasonRebooted
	if IsBudgeted(r.Reason) && !d.bootsNow() {
		reason = v1alpha1.ReasonRebootedUnobserved // it still counts against the budget
	}
	r.Boot, r.Since, r.Reason, r.Completed, r.BootSeen = boot, d.since(), reason, "", time.Time{}
	if r.Override == "" {
		r.OverrideSince = time.Time{}
	}
	r.Fought, r.FoughtAt = 0, time.Time{}
	r.stopClock()
	d.followPods(s)
}

// awaitsBoot reports whether the gate closed because the node was expected to reboot.
// When the node reboots, the digest taken at that time is sufficient, whether the
// status of the pods or that of the node is written first.
func (r *Record) awaitsBoot() bool {
	return r.Reason == v1alpha1.ReasonNodeSilent || r.Reason == v1alpha1.ReasonNodeShutdown
}

// followPods updates such a digest if the node returned without a reboot and the gate
// stays closed: containers that start now belong to the old boot if another one
// follows. If no container starts, nothing is written. In a new boot, a digest that
// stands for all pods is replaced by one that lists them as soon as they are observed,
// except for marks that it does not stand for, because they are newer.
func (d *decider) followPods(s *slot) {
	r := s.after
	switch {
	case r.awaitsBoot() && d.Node.Reporting() && !d.Node.ShuttingDown:
		if digest, observed := s.gate.takeDigest(d.Facts); observed {
			r.Digest = digest
		}
	case r.closedForBoot() && r.Digest == digestAll:
		trust := d.trustIn(s.gate, r)
		r.Digest, _ = s.gate.takeDigestOfBoot(d.Facts, func(p *Pod) bool { return !trust.BelievesMark(p) })
	}
}

// tryOpen opens a closed gate if its signals hold and its group is complete, or if its
// deadline requires it.
func (d *decider) tryOpen(s *slot) {
	d.keepClock(s)
	opens := d.evaluate(s, s.after)
	if soaked := d.soaked(s, s.after, s.signals); !opens || d.tooSoon(s, s.after, soaked) || !d.groupOpens(s) {
		d.expire(s)
		return
	}
	s.verdict.ClosedSince = s.after.closedSince(&d.Node)
	s.after = d.inBootOf(s.gate, s.after, d.opened(s.gate, v1alpha1.ReasonSignalsHold))
}

// evaluate reads the gate's signals, given its record, and reports whether the gate may
// open.
func (d *decider) evaluate(s *slot, r *Record) bool {
	s.verdict.Blocked = d.blocked
	// An open gate's signals are read for the taint that it would add.
	s.signals = d.read(s, d.input(s, r, d.trustIn(s.gate, r), r.Reclosed || r.State == v1alpha1.StateOpen))
	d.noteRuns(s, r)
	return s.signals == Holds && s.verdict.Blocked == ""
}

// input returns what the gate's signals read, given its record. reclosed selects the
// taint that they are read for.
func (d *decider) input(s *slot, r *Record, trust Trust, reclosed bool) Input {
	return Input{
		Facts: d.Facts, Taint: s.gate.taint(reclosed), OtherTaint: s.gate.taint(!reclosed),
		Lasting: d.lasting, Completed: r.CompletedOn(&d.Node), Open: r.State == v1alpha1.StateOpen, Trust: trust, Now: d.now,
	}
}

// read reads the gate's signals and returns their combined state: Holds if all hold,
// NotYet if one does not hold, otherwise Unknown.
func (d *decider) read(s *slot, in Input) State {
	s.verdict.Readings = d.newReadings(len(s.gate.Signals))
	all := Holds
	if len(s.gate.Signals) == 0 { // the gate did not compile
		all = Unknown
	}
	for i, signal := range s.gate.Signals {
		reading := signal.Read(in)
		s.verdict.Readings[i] = reading
		d.recheckAt(reading.Recheck)
		all = all.And(reading.State)
	}
	return all
}

// blocked returns the reason why no signal can open a gate at present, or "".
func (n *Node) blocked() v1alpha1.ReadingReason {
	switch {
	case n.Silent():
		return v1alpha1.ReadingNodeSilent
	case n.ShuttingDown:
		return v1alpha1.ReadingNodeShutdown
	case beingSetUp(n.Taints):
		return v1alpha1.ReadingNodeSetup
	}
	return ""
}

// reverted reports whether another writer has removed a closed gate's taint, or has set
// a value that does not belong to any gate.
func (d *decider) reverted(t v1alpha1.Taint) bool {
	i := d.taintIndex(t.Key, t.Effect)
	if i < 0 {
		return true
	}
	own := t.Value
	if t.Value = d.Node.Taints[i].Value; t.Value == own {
		return false
	}
	for i := range d.slots {
		if d.slots[i].had == t {
			return false
		}
	}
	return true
}

// A taint that another writer has reverted is restored immediately. If that happens
// again within contentionWindow, the taint is contended: further attempts wait, for
// longer each time, to spare the API server and the pods.
const (
	contentionWindow  = 10 * time.Minute
	contentionBackoff = 10 * time.Second
	contentionMaxWait = 30 * time.Minute
)

// defend restores the gate's taint if another writer has reverted it: it adds the taint
// while the gate is closed and removes it while the gate is open.
func (d *decider) defend(s *slot, reverted bool) {
	if s.mask == "" || s.mask == s.after.State { // otherwise, see maskRecord
		d.contend(s, reverted)
	}
}

func (d *decider) contend(s *slot, reverted bool) {
	r := s.after
	wait := contentionMaxWait
	if r.Fought < 8 { // 10 s doubled seven times is 21 minutes
		wait = min(wait, contentionBackoff<<max(r.Fought-1, 0))
	}
	calm := r.FoughtAt.Add(max(contentionWindow, 2*wait))
	contended := r.Fought > 0 && d.now.Before(calm) && !r.FoughtAt.After(d.now)
	s.verdict.Contended = contended && r.Fought > 1
	if s.verdict.Contended {
		d.recheckAt(calm)
	}
	switch next := r.FoughtAt.Add(wait); {
	case !reverted:
		return
	case contended && d.now.Before(next):
		s.leave, s.verdict.Contended = true, true
		d.recheckAt(next)
	case contended:
		r.Fought, r.FoughtAt = r.Fought+1, d.now
		s.verdict.Contended = true
	default:
		r.Fought, r.FoughtAt = 1, d.now
	}
	s.restores = !s.leave
}
