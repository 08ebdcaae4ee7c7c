// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// keepClosed decides about a node on which the gate is closed: its record is
// brought up to the node's boot and the gate's taint, and the gate opens if
// its signals hold.
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

// renew begins with the record that there is, brought up to the gate's taint
// and source.
func (s *slot) renew() {
	s.renewed = *s.before
	r := &s.renewed
	r.Source = s.gate.Source
	if t := s.gate.taint(r.Reclosed); r.State == v1alpha1.StateClosed && s.gate.Accepted && s.had != t {
		r.Taint = TaintText(t)
	}
	s.after = r
}

// defendClosed puts a closed gate's taint right, and keeps its other one off, but
// where the gate was edited: then the taint is another one anyway.
func (d *decider) defendClosed(s *slot) {
	if !s.gate.Accepted || s.had != s.gate.taint(s.after.Reclosed) {
		return
	}
	other := s.gate.taint(!s.after.Reclosed)
	d.defend(s, d.undone(s.had) || other != s.had && d.carriesUnclaimed(other))
}

// noteBoot brings a closed gate's record up to the node's boot. What the
// gate's pods were known to be before the new boot proves nothing any more.
func (d *decider) noteBoot(s *slot) {
	r, boot := s.after, d.Node.BootID
	switch {
	case boot == "":
		return
	case r.Boot == "", r.Boot == boot:
		r.Boot = boot // perhaps the first that the kubelet tells of
		d.followPods(s)
		return
	case !r.awaitsBoot():
		// Pods may have come up in the old boot without opening the gate.
		r.Digest = digestAll
	}
	r.Boot, r.Since, r.Reason = boot, d.since(), v1alpha1.ReasonRebooted
	if r.Override == "" {
		r.OverrideSince = time.Time{}
	}
	r.stopClock()
	d.followPods(s)
}

// awaitsBoot tells whether the gate closed because the node seemed about to
// reboot. The digest that was taken then is all that is needed when it does, be
// the pods' or the node's status written first.
func (r *Record) awaitsBoot() bool {
	return r.Reason == v1alpha1.ReasonNodeSilent || r.Reason == v1alpha1.ReasonNodeShutdown
}

// followPods keeps such a digest up to date where the node came back without a
// reboot and the gate stays closed: containers that start now belong to the old
// boot should another one follow. Where none starts, nothing is written. In a new
// boot, a digest that stands for all pods gives way to one that names them, as
// soon as they are observed.
func (d *decider) followPods(s *slot) {
	r := s.after
	switch {
	case r.awaitsBoot() && d.Node.Reporting() && !d.Node.ShuttingDown:
		if digest, observed := s.gate.takeDigest(d.Facts); observed {
			r.Digest = digest
		}
	case r.Reason == v1alpha1.ReasonRebooted && r.Digest == digestAll:
		r.Digest, _ = s.gate.takeDigestOfBoot(d.Facts)
	}
}

// tryOpen opens a closed gate if its signals hold, or its deadline says so.
func (d *decider) tryOpen(s *slot) {
	d.keepClock(s)
	opens := d.evaluate(s, s.after)
	if soaked := d.soaked(s, s.after, s.says); !opens || d.tooSoon(s, s.after, soaked) {
		d.expire(s)
		return
	}
	s.verdict.ClosedSince = s.after.closedSince(&d.Node)
	s.after = d.opened(s.gate, v1alpha1.ReasonSignalsHold)
}

// evaluate reads the gate's signals in the light of its record, and tells
// whether the gate may open.
func (d *decider) evaluate(s *slot, r *Record) bool {
	s.verdict.Blocked = d.blocked
	// An open gate's signals are read for what it would put there.
	s.says = d.read(s, trustIn(r, &d.Node), r.Reclosed || r.State == v1alpha1.StateOpen)
	return s.says == Holds && s.verdict.Blocked == ""
}

// read reads the gate's signals, which has closed again or not, and says what they
// come to: all hold, one does not, or it is not known.
func (d *decider) read(s *slot, trust Trust, reclosed bool) State {
	s.verdict.Readings = d.newReadings(len(s.gate.Signals))
	in := Input{
		Facts: d.Facts, Taint: s.gate.taint(reclosed), OtherTaint: s.gate.taint(!reclosed),
		Lasting: d.lasting, Trust: trust, Now: d.now,
	}
	all := Holds
	if len(s.gate.Signals) == 0 { // a gate that did not compile has none
		all = Unknown
	}
	for i, signal := range s.gate.Signals {
		reading := signal.Read(in)
		s.verdict.Readings[i] = reading
		d.recheckAt(reading.Recheck)
		switch {
		case reading.State == NotYet, all == NotYet:
			all = NotYet
		case reading.State == Unknown:
			all = Unknown
		}
	}
	return all
}

// blocked says why no signal can open a gate at present.
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

// undone tells whether another writer has taken a closed gate's taint away, or
// has given it a value that is no gate's.
func (d *decider) undone(t v1alpha1.Taint) bool {
	i := d.place(t.Key, t.Effect)
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

// A taint that another writer has undone is put right at once. When that
// happens again within fightWindow, the two are fighting: the next attempts
// wait, ever longer, so that neither the API server nor the pods suffer.
const (
	fightWindow  = 10 * time.Minute
	fightBackoff = 10 * time.Second
	fightMaxWait = 30 * time.Minute
)

// defend puts the gate's taint right where another writer has undone it: put
// back while closed, taken away while open.
func (d *decider) defend(s *slot, undone bool) {
	if s.mask == "" || s.mask == s.after.State { // or else see cover
		d.fight(s, undone)
	}
}

func (d *decider) fight(s *slot, undone bool) {
	r := s.after
	wait := fightMaxWait
	if r.Fought < 8 { // 10 s doubled seven times is 21 minutes
		wait = min(wait, fightBackoff<<max(r.Fought-1, 0))
	}
	calm := r.FoughtAt.Add(max(fightWindow, 2*wait))
	fighting := r.Fought > 0 && d.now.Before(calm) && !r.FoughtAt.After(d.now)
	s.verdict.Contended = fighting && r.Fought > 1
	if s.verdict.Contended {
		d.recheckAt(calm)
	}
	switch next := r.FoughtAt.Add(wait); {
	case !undone:
		return
	case fighting && d.now.Before(next):
		s.leave, s.verdict.Contended = true, true
		d.recheckAt(next)
	case fighting:
		r.Fought, r.FoughtAt = r.Fought+1, d.now
		s.verdict.Contended = true
	default:
		r.Fought, r.FoughtAt = 1, d.now
	}
	s.undoes = !s.leave
}
