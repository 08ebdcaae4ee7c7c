// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// The wait for a signal is the time from the closing of the gate to the time since which
// the signal holds, measured when all signals hold and the gate opens. The API reports
// since when most signals have held. For the others (labels, annotations, resources of the
// node), it is the time at which the controller first observed it. After a restart of the
// controller that may be too late, but never later than the opening.

// heldSignals has, by gate, since when the controller has observed that signals of a closed
// gate hold, if the API does not report it.
type heldSignals struct {
	uid   types.UID
	gates map[string][]firstHeld
}

type firstHeld struct {
	signal string
	at     time.Time
}

// signalWaits stores which signals hold. For each gate that opens because its signals hold,
// it returns the wait for each signal, in the gate's order.
func (s *nodeStates) signalWaits(set *gateset.Set, n *gate.Node, d *gate.Decision, now time.Time) map[string][]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.at(n.Name)
	before := state.signals
	if before == nil || before.uid != n.UID {
		before = &heldSignals{}
	}
	is := heldSignals{uid: n.UID}
	var waits map[string][]time.Duration
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		g, known := set.Gate(v.Gate)
		if !known || v.DryRun || g.CloseWhen {
			continue
		}
		switch was := before.gates[v.Gate]; {
		case v.Opened() && v.Reason == v1alpha1.ReasonSignalsHold && !v.ClosedSince.IsZero():
			put(&waits, v.Gate, waited(g, v, was, now))
		case v.After != v1alpha1.StateClosed:
		case len(v.Readings) == 0 && was != nil: // a part of a decision
			put(&is.gates, v.Gate, was)
		default:
			if all := heldNow(g, v, was, now); all != nil {
				put(&is.gates, v.Gate, all)
			}
		}
	}
	putOthers(&is.gates, before.gates, set.Covers)
	if state.signals = nil; is.gates != nil {
		state.signals = &is
	}
	return waits
}

// heldNow returns what to store about the signals of a closed gate.
func heldNow(g *gate.Gate, v *gate.Verdict, was []firstHeld, now time.Time) (all []firstHeld) {
	for i := range v.Readings {
		if r := &v.Readings[i]; r.State == gate.Holds && r.Since.IsZero() {
			all = append(all, firstHeld{g.Signals[i].Name, heldSince(was, g.Signals[i].Name, now)})
		}
	}
	return all
}

func heldSince(was []firstHeld, signal string, now time.Time) time.Time {
	if i := slices.IndexFunc(was, func(s firstHeld) bool { return s.signal == signal }); i >= 0 {
		return was[i].at
	}
	return now
}

// waited returns the wait for each signal of a gate that opens. Times from the API may
// come from a wrong clock, so the results are limited to the range from zero to the total
// time.
func waited(g *gate.Gate, v *gate.Verdict, was []firstHeld, now time.Time) []time.Duration {
	all := make([]time.Duration, len(v.Readings))
	most := max(now.Sub(v.ClosedSince), 0)
	for i := range v.Readings {
		since := v.Readings[i].Since
		if since.IsZero() {
			since = heldSince(was, g.Signals[i].Name, now)
		}
		all[i] = min(max(since.Sub(v.ClosedSince), 0), most)
	}
	return all
}
