// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"fmt"
	"strings"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// anyOf holds when one of its alternatives holds. While none holds and one is unknown,
// anyOf is unknown, because that alternative may hold.
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

// Read implements gate.Signal. If several alternatives hold, it returns the reading of
// the one that has held the longest, so that another one that starts to hold does not
// change the result.
func (s anyOf) Read(in gate.Input) gate.Reading {
	var buffer [8]gate.Reading // the schema allows no more
	readings := buffer[:0]
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
	oldest := readings[holds]
	for i := range readings {
		if i != holds {
			oldest = longest(oldest, readings[i])
		}
	}
	oldest.Alternative = len(s) > 1
	return oldest
}

// longest combines two readings of which at least one holds and one is sufficient. It
// returns the one that has held longer, as far as the API reports it. The reading must
// be repeated when the passing of time may change that: an alternative that does not
// hold yet cannot have held longer when it does, but an unknown one may turn out to
// have held for long.
func longest(a, b gate.Reading) gate.Reading {
	earlier := !b.Since.IsZero() && (a.Since.IsZero() || b.Since.Before(a.Since))
	if a.State != gate.Holds || b.State == gate.Holds && earlier {
		a, b = b, a
	}
	switch {
	case b.State == gate.Holds && (b.Since.IsZero() || b.Longer):
		a.Longer, a.Recheck = true, gate.Earliest(a.Recheck, b.Recheck)
	case b.State == gate.Unknown:
		a.Recheck = gate.Earliest(a.Recheck, b.Recheck)
	}
	return a
}

// none returns the reading while no alternative holds. Its time is that at which the
// last of them stopped holding, if it is known for all of them. A rollout excuses the
// reading if it excuses one of them.
func (s anyOf) none(state gate.State, readings []gate.Reading) gate.Reading {
	r := gate.Reading{State: state, Reason: v1alpha1.ReadingNoneHolds, Alternative: len(s) > 1}
	var text strings.Builder
	text.Grow(64 * len(readings)) // sufficient for most messages
	known := true
	r.Lacks = true
	for i := range readings {
		if i > 0 {
			text.WriteString("; ")
		}
		text.WriteString(s[i].Name)
		text.WriteString(": ")
		text.WriteString(readings[i].Message())
		r.Recheck = gate.Earliest(r.Recheck, readings[i].Recheck)
		r.Rollout = r.Rollout || readings[i].Rollout
		r.Lacks = r.Lacks && readings[i].LacksPod()
		r.Blind = r.Blind || readings[i].Unseen()
		r.Since = gate.Latest(r.Since, readings[i].Since)
		known = known && !readings[i].Since.IsZero()
	}
	if !known {
		r.Since = time.Time{}
	}
	r.Subject = text.String()
	return r
}

// Evidence implements gate.Signal. A DaemonSet that does not exist may be one that this cluster does
// not use. It therefore does not prevent the pods of other alternatives from being evidence.
func (s anyOf) Evidence(f *gate.Facts) ([]gate.Pod, bool) {
	var all []gate.Pod
	missing := false
	for i := range s {
		if ds, is := s[i].Signal.(daemonSet); is && ds.missing(f.DaemonSets) {
			missing = true
			continue
		}
		pods, observed := s[i].Evidence(f)
		if !observed {
			return nil, false
		}
		all = append(all, pods...)
	}
	return all, !missing || len(all) > 0
}

// ProvesBoot implements gate.Signal. All alternatives must prove the boot, because one
// of them is sufficient to open the gate.
func (s anyOf) ProvesBoot() bool {
	for i := range s {
		if !s[i].ProvesBoot() {
			return false
		}
	}
	return true
}

// Completions implements gate.Remembering.
func (s anyOf) Completions(in gate.Input, into *gate.Completions) {
	for i := range s {
		if remembering, ok := s[i].Signal.(gate.Remembering); ok {
			remembering.Completions(in, into)
		}
	}
}

// Remembers implements gate.Remembering.
func (s anyOf) Remembers(in gate.Input) bool {
	for i := range s {
		if remembering, ok := s[i].Signal.(gate.Remembering); ok && !remembering.Remembers(in) {
			return false
		}
	}
	return true
}

// Needs implements gate.Signal.
func (s anyOf) Needs(sets *gate.DaemonSets) gate.Needs { return (&gate.Gate{Signals: s}).Needs(sets) }

// diagnose returns a problem if every alternative has one.
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
