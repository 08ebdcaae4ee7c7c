// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"fmt"
	"strings"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// anyOf holds when one of its alternatives holds. While none does and one is
// unknown, it is unknown: that one may hold.
type anyOf []gate.NamedSignal

func newAnyOf(specs []v1alpha1.NamedSource) (gate.Signal, error) {
	s := make(anyOf, 0, len(specs))
	for i := range specs {
		alternative, err := compile(&specs[i].SignalSource)
		if err != nil {
			return nil, fmt.Errorf("compiling alternative %s: %w", specs[i].Name, err)
		}
		s = append(s, gate.NamedSignal{Name: specs[i].Name, Signal: alternative})
	}
	return s, nil
}

// Read implements gate.Signal. Of several that hold, the one that has done so
// for longest is told: another that comes to hold changes nothing.
func (s anyOf) Read(in gate.Input) gate.Reading {
	var room [8]gate.Reading // as many as the schema allows
	readings := room[:0]
	holds, state := -1, gate.NotYet
	for i := range s {
		r := s[i].Read(in)
		readings = append(readings, r)
		switch r.State {
		case gate.Holds:
			holds = i
		case gate.Unknown:
			state = gate.Unknown
		}
	}
	if holds < 0 {
		return s.none(state, readings)
	}
	told := readings[holds]
	for i := range readings {
		if i != holds {
			told = longest(told, readings[i])
		}
	}
	return told
}

// longest combines two readings of which one holds and one will do: it is the one
// that has for longer, as far as the API tells. When it has to be read again is when
// time alone may change that: what does not hold yet and is waited for comes to hold
// later than what does, but what is unknown may turn out to have held for long.
func longest(a, b gate.Reading) gate.Reading {
	earlier := !b.Since.IsZero() && (a.Since.IsZero() || b.Since.Before(a.Since))
	if a.State != gate.Holds || b.State == gate.Holds && earlier {
		a, b = b, a
	}
	switch {
	case b.State == gate.Holds && (b.Since.IsZero() || b.Longer):
		a.Longer, a.Recheck = true, earliest(a.Recheck, b.Recheck)
	case b.State == gate.Unknown:
		a.Recheck = earliest(a.Recheck, b.Recheck)
	}
	return a
}

// none is what anyOf reads while no alternative holds: since the last of them
// ceased to, if that is known of all. It is excused while one is.
func (s anyOf) none(state gate.State, readings []gate.Reading) gate.Reading {
	r := gate.Reading{State: state, Reason: v1alpha1.ReadingNoneHolds}
	var told strings.Builder
	told.Grow(64 * len(readings)) // most texts are no longer
	known := true
	r.Lacks = true
	for i := range readings {
		if i > 0 {
			told.WriteString("; ")
		}
		told.WriteString(s[i].Name)
		told.WriteString(": ")
		told.WriteString(readings[i].Message())
		r.Recheck = earliest(r.Recheck, readings[i].Recheck)
		r.Rollout = r.Rollout || readings[i].Rollout
		r.Lacks = r.Lacks && readings[i].LacksPod()
		r.Blind = r.Blind || readings[i].Unseen()
		r.Since = latest(r.Since, readings[i].Since)
		known = known && !readings[i].Since.IsZero()
	}
	if !known {
		r.Since = time.Time{}
	}
	r.Subject = told.String()
	return r
}

// Evidence implements gate.Signal.
func (s anyOf) Evidence(f *gate.Facts) ([]gate.Pod, bool) {
	var all []gate.Pod
	for i := range s {
		pods, observed := s[i].Evidence(f)
		if !observed {
			return nil, false
		}
		all = append(all, pods...)
	}
	return all, true
}

// ProvesBoot implements gate.Signal. An alternative that does not is enough to
// open the gate.
func (s anyOf) ProvesBoot() bool {
	for i := range s {
		if !s[i].ProvesBoot() {
			return false
		}
	}
	return true
}

// Needs implements gate.Signal.
func (s anyOf) Needs(sets *gate.DaemonSets) gate.Needs { return (&gate.Gate{Signals: s}).Needs(sets) }

// diagnose says what is wrong if that is so with every alternative.
func (s anyOf) diagnose(taints []v1alpha1.Taint, sets *gate.DaemonSets) gate.Reading {
	var first gate.Reading
	for i := range s {
		r := Diagnose(s[i].Signal, taints, sets)
		if r.State == gate.Holds {
			return r
		}
		if i == 0 || r.State == gate.Unknown && first.State == gate.NotYet {
			first = r
		}
	}
	return first
}
