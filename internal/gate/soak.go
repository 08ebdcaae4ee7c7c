// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Soaking.
//
// A gate may require its signals to have been in the state that opens it for some time
// (openAfterSeconds). There are two sources for that time, and neither is sufficient.
// For most signals, the API reports it, independently of the controller, but by the
// node's clock, which may be wrong. The controller observes it by its own clock, but
// forgets it when it stops.
//
// So if the controller observed the beginning, the time starts then. Otherwise, it
// starts at the time that the API reports, plus an allowance for clock skew, or at the
// first observation if the API reports no time. A restart extends the wait by at most
// that allowance, or starts it again, but never shortens it.

// Steady is what is remembered about signals that are in the state that opens a gate.
// The zero value means that they are not.
type Steady struct {
	// Since is the time since which the state counts: when it was first observed, or
	// earlier if the API reports that.
	Since time.Time
	// Reported is the time since which the signals had the state according to the API, as
	// far as the API reports it. If the API later reports a later time, the state may
	// have been interrupted. If each of several signals had the state, this is the time
	// of the last of them: the state continues while one of them keeps it.
	Reported time.Time
	// NotBefore is the time before which the state did not begin, by the controller's
	// clock. Zero if the controller did not observe that.
	NotBefore time.Time
	// Unknown is true while it is unknown whether the signals have the state.
	Unknown bool
}

// soaked returns the time at which the signals of a closed gate with this record will
// have been in the state that opens it for long enough. It is zero if they are not in
// that state, or need not be for any time. If signals are unknown for some time because they
// have not been observed, or outdated because the node is unreachable, that interrupts the
// time unless the API reports afterwards that the state was not interrupted. A stale
// heartbeat always interrupts it: nothing has confirmed the state.
func (d *decider) soaked(s *slot, r *Record, state State) time.Time {
	g, v := s.gate, s.verdict
	was, remembered := d.Steady[g.Name]
	opens := Holds
	if g.CloseWhen {
		opens = NotYet
	}
	switch {
	case g.OpenAfter == 0:
		return time.Time{}
	case d.outdated(g), state == Unknown && !anyUnconfirmed(v.Readings):
		if remembered {
			v.Steady = &Steady{Since: was.Since, Reported: was.Reported, NotBefore: was.NotBefore, Unknown: true}
		}
		return time.Time{}
	case state != opens:
		v.Steady = &Steady{}
		return time.Time{}
	}
	api := reported(v.Readings, opens)
	is := Steady{Since: d.now, Reported: Latest(api.resumed, api.newest)}
	if remembered {
		is = was.next(api, is)
	}
	if api.complete {
		is.Since = Latest(is.NotBefore, Earliest(is.Since, api.since.Add(HeartbeatSkew)))
	}
	v.Steady = &is
	if r.sameBootAsDigest(&d.Node) {
		return time.Time{} // the node has returned unchanged
	}
	return d.soaksFrom(r, is.Since).Add(g.OpenAfter)
}

// next returns what is remembered about signals that have the state, given what the API
// reports and what would be remembered if nothing was.
func (s Steady) next(api report, fresh Steady) Steady {
	resumed := api.resumed.After(s.Reported)
	switch {
	case s.Since.IsZero(), resumed && api.exact: // it began after the last observation
		fresh.NotBefore = fresh.Since
		return fresh
	case resumed, s.Unknown && (!api.complete || api.since.After(s.Reported)):
		fresh.NotBefore = s.NotBefore // another signal may have had the state meanwhile
		return fresh
	}
	s.Unknown, s.Reported = false, Latest(s.Reported, fresh.Reported)
	return s
}

// outdated reports whether the signals of the gate are outdated, because the node does not
// report or is shutting down. A closeWhen gate follows them in any case.
func (d *decider) outdated(g *Gate) bool {
	return !g.CloseWhen && (d.Node.Silent() || d.Node.ShuttingDown)
}

// soaksFrom returns the time from which the time counts, given since when the signals have had
// the state: time before the Node was created does not count, nor does time before the gate
// closed because of a boot or because its signals held.
func (d *decider) soaksFrom(r *Record, start time.Time) time.Time {
	if r.closedForBoot() || r.Reason == v1alpha1.ReasonSignalsHold {
		start = Latest(start, r.closedSince(&d.Node))
	}
	return Latest(start, d.Node.Created)
}

// anyUnconfirmed reports whether a signal, or one of its alternatives, is unknown because of
// what the node reports, such as a heartbeat that is too old.
func anyUnconfirmed(readings []Reading) bool {
	return slices.ContainsFunc(readings, func(r Reading) bool {
		return r.State == Unknown && !r.Unseen() && (r.Reason == v1alpha1.ReadingStaleHeartbeat || r.Reason == v1alpha1.ReadingNoneHolds)
	})
}

// report is what the API reports about signals that are in the state that opens a gate.
type report struct {
	// since is the time since which they have been in that state: since the last of them
	// started to hold or, for a closeWhen gate, since the first of them stopped holding.
	since time.Time
	// resumed is the same time without the readings that may have had the state for
	// longer, because they do not show an interruption.
	resumed time.Time
	// newest is the time since which all signals of a closeWhen gate that are in that
	// state have been in it. Any of them is sufficient.
	newest time.Time
	// complete is true if the API reports all relevant times.
	complete bool
	// exact is true if each signal is necessary for the state. Otherwise, a later time
	// may be that of another signal, whose state overlapped.
	exact bool
}

// reported returns what the API reports about the readings that are in the state that
// opens a gate.
func reported(readings []Reading, opens State) report {
	if opens == NotYet {
		return reportedClear(readings)
	}
	api := report{complete: true, exact: true}
	for i := range readings {
		r := &readings[i]
		api.exact = api.exact && !r.Alternative
		if r.State != Holds {
			continue
		}
		api.since, api.complete = Latest(api.since, r.Since), api.complete && !r.Since.IsZero()
		if !r.Longer {
			api.resumed = Latest(api.resumed, r.Since)
		}
	}
	return api
}

// reportedClear is reported for a closeWhen gate.
func reportedClear(readings []Reading) report {
	api := report{exact: len(readings) == 1 && !readings[0].Alternative}
	longer := false
	for i := range readings {
		switch r := &readings[i]; {
		case r.State != NotYet:
		case r.Since.IsZero():
			longer = true
		default:
			api.since, api.newest, api.complete = Earliest(api.since, r.Since), Latest(api.newest, r.Since), true
		}
	}
	if !longer {
		api.resumed = api.since
	}
	return api
}
