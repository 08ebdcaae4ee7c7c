// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// How long each signal of a gate kept a node waiting is the time from the closing
// of the gate to when the signal began to hold, as it stands when they all do and
// the gate opens. When a signal began to hold is what the API tells. Of those of
// which the API tells nothing (labels, annotations, what a node has or offers),
// it is when they were first seen to; after a restart of the controller that may
// be too late, and never later than the opening.

// holding remembers since when signals of closed gates have been seen to hold of
// which the API does not tell it.
type signalTimes struct {
	mu    sync.Mutex
	nodes map[string]heldSignals
}

type heldSignals struct {
	uid   types.UID
	gates map[string][]firstHeld
}

type firstHeld struct {
	signal string
	at     time.Time
}

func newSignalTimes() *signalTimes { return &signalTimes{nodes: make(map[string]heldSignals)} }

// look takes note of what signals say, and returns, for each gate that opens by its
// signals, how long each of these has kept the node waiting, in the gate's order.
func (h *signalTimes) waits(set *gateset.Set, n *gate.Node, d *gate.Decision, now time.Time) map[string][]time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.nodes[n.Name]
	if before.uid != n.UID {
		before = heldSignals{}
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
	if delete(h.nodes, n.Name); is.gates != nil {
		h.nodes[n.Name] = is
	}
	return waits
}

// heldNow returns what to keep of the signals of a closed gate.
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

// waited returns how long each signal of a gate that opens has kept the node waiting.
// Times from the API may come from a clock that is wrong, so the results are limited to
// the range from zero to the total time.
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

// forget drops what is kept of a node that is gone.
func (h *signalTimes) forget(node string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.nodes, node)
}
