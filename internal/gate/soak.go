// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Soaking.
//
// A gate may want its signals to have said for a while what opens it. For how
// long they have is known in two ways, and neither will do alone. The API tells
// it, for most signals, whatever becomes of the controller; but in times of the
// node's clock, which may be wrong. The controller sees it, by the one clock that
// it waits by; but it does not remember beyond its own end.
//
// So what was seen to begin counts from when it was seen. What was not counts
// from the time that the API tells, with an allowance for clocks that differ, or
// where it tells none from when it was first seen. A restart makes the wait longer
// by that allowance at most, or has it begin again, but never shortens it.

// Steady is what is remembered of signals that say what opens a gate. Its zero
// value remembers that they do not.
type Steady struct {
	// Since is when they were first seen to.
	Since time.Time
	// Told is since when they did by what the API told then, as far as it did. If
	// later it tells a later time, there was a break.
	Told time.Time
	// Begun is true if they were seen not to before.
	Begun bool
}

// soaked says when the signals of a closed gate, of which the record is given,
// will have said for long enough what opens it. It is zero where they do not, or
// need not have for any time. What is not known, or is old because the node is
// silent, is neither counted nor held against them.
func (d *decider) soaked(s *slot, r *Record, says State) time.Time {
	g, v := s.gate, s.verdict
	opens := Holds
	if g.CloseWhen {
		opens = NotYet
	}
	switch {
	case g.OpenAfter == 0, says == Unknown, !g.CloseWhen && (d.Node.Silent() || d.Node.ShuttingDown):
		return time.Time{}
	case says != opens:
		v.Steady = &Steady{}
		return time.Time{}
	}
	told, resumed, complete := toldSince(v.Readings, opens)
	was, remembered := d.Steady[g.Name]
	is := was
	switch {
	case !remembered, resumed.After(was.Told) && !was.Since.IsZero(): // or it was broken off unseen
		is = Steady{Since: d.now, Told: resumed}
	case was.Since.IsZero():
		is = Steady{Since: d.now, Told: resumed, Begun: true}
	}
	v.Steady = &is
	if r.sameBootAsDigest(&d.Node) {
		return time.Time{} // the node is back, and is what it was before
	}
	start := is.Since
	if complete && !is.Begun {
		start = earliest(start, told.Add(HeartbeatSkew))
	}
	if r.Reason == v1alpha1.ReasonRebooted || r.Reason == v1alpha1.ReasonSignalsHold {
		start = latest(start, r.closedSince(&d.Node)) // what was before says nothing
	}
	return latest(start, d.Node.Created).Add(g.OpenAfter)
}

// toldSince is since when the readings have come to what opens a gate, as the API
// tells: since the last of them held or, for a closeWhen gate, since the first of
// them did not. It is false where the API does not tell of all that matters. The
// second time is the same without those that may have said so for longer: they say
// nothing of a break.
func toldSince(readings []Reading, opens State) (told, resumed time.Time, complete bool) {
	complete = opens == Holds
	for i := range readings {
		switch r := &readings[i]; {
		case r.State != opens:
		case opens == Holds:
			told, complete = latest(told, r.Since), complete && !r.Since.IsZero()
			if !r.Longer {
				resumed = latest(resumed, r.Since)
			}
		case !r.Since.IsZero():
			told, complete = earliest(told, r.Since), true
			resumed = told
		}
	}
	return told, resumed, complete
}

// latest returns the later of two times.
func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
