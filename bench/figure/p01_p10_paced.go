// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nodegate/nodegate/bench/limit"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
)

const (
	// rate is the number of nodes that change per second while latencies are measured.
	rate = 10
	// openingGoal is the goal for the ratio of the median latency.
	openingGoal = 1.10
	// damping is the gate's closeAfterSeconds for a flapping daemon.
	damping = 2 * time.Second
)

// Quantities of nodes that change one after the other, in ms.
const (
	latency        = "latency" // until a node is open
	closingLatency = "closing" // until it is closed again
)

var opening = Figure{
	ID: "P1", Title: "Daemon ready → taint removed, 10 nodes per second",
	Measure: func(ctx context.Context, e *Env) (report.Result, error) {
		rounds, err := e.measurePaced(ctx)
		return report.Result{
			Rows: []report.Row{
				report.Compare("p50", "ms", rounds, latency, report.Percentile(50), report.TimesLimit(openingGoal)),
				report.Compare("slowest of a turn", "ms", rounds, latency, report.Slowest, report.TimesLimit(1.5)),
			},
			Notes: []string{
				fmt.Sprintf("%d nodes per turn, in which they also close again (P10). From the time at which the observer's watch of pods shows the daemon ready to the time at which its watch of nodes shows the node without the taint.", e.Paced),
				"The daemon's status is written through the API server, as by a kubelet.",
				limitNote, observerNote,
			},
		}, err
	},
}

var regression = Figure{
	ID: "P10", Title: "Daemon not ready → taint added, 10 nodes per second; a flapping daemon",
	Measure: func(ctx context.Context, e *Env) (r report.Result, err error) {
		rounds, err := e.measurePaced(ctx)
		if err != nil {
			return r, err
		}
		f, err := e.flap(ctx)
		r.Rows = []report.Row{
			report.Compare("p50", "ms", rounds, closingLatency, report.Percentile(50), report.TimesLimit(1.5)),
			report.Compare("slowest of a turn", "ms", rounds, closingLatency, report.Slowest, report.TimesLimit(1.5)),
			report.Count(fmt.Sprintf("%d changes per second: most writes in any %g s", rate, damping.Seconds()), report.AtMost(1), float64(f.most)),
		}
		r.Notes = []string{
			fmt.Sprintf("In the turns of P1, %d nodes, closeAfterSeconds 0, budget 100%%. From the time at which the observer's watch of pods shows the daemon not ready to the time at which its watch of nodes shows the taint.", e.Paced),
			"The daemon's status is written through the API server, as by a kubelet.",
			fmt.Sprintf("Flapping daemon: closeAfterSeconds %g, %d changes of one pod, which is not ready after the last one. nodegate sent %d PATCHes of its node, according to the audit log.",
				damping.Seconds(), f.changes, f.writes),
		}
		return r, err
	},
}

// measurePaced opens and closes nodes one after the other, once for all figures, because
// starts take longer than turns.
func (e *Env) measurePaced(ctx context.Context) (_ []report.Pair, err error) {
	if e.paced != nil {
		return e.paced, nil
	}
	if err := e.Prepare(ctx, e.Paced, onRegression(0)); err != nil {
		return nil, err
	}
	e.paced, err = e.Interleave(ctx, Plan{Rounds: e.Rounds, Nodes: e.Paced, Direction: limit.Follows}, e.openAndClose)
	return e.paced, err
}

func (e *Env) openAndClose(ctx context.Context, s *Subject) (report.Sample, error) {
	opened, err := e.pace(ctx, e.Paced, true)
	if err != nil {
		return nil, err
	}
	if err := e.AwaitQuiet(ctx, s); err != nil {
		return nil, err
	}
	e.Observer.Reset()
	closed, err := e.pace(ctx, e.Paced, false)
	return report.Sample{latency: opened, closingLatency: closed}, err
}

// pace makes the daemons on the first nodes ready or not ready, one after the other, and
// returns the latencies until the nodes are open or closed.
func (e *Env) pace(ctx context.Context, count int, ready bool) ([]float64, error) {
	nodes := e.Fleet.Nodes()[:count]
	if err := e.Fleet.Pace(ctx, nodes, rate, ready); err != nil {
		return nil, err
	}
	pod, state := observer.Ready, observer.Open
	if !ready {
		pod, state = observer.Unready, observer.Tainted
	}
	return e.latencies(ctx, nodes, pod, observer.Event{State: state, Object: observer.Node})
}

// onRegression returns the gate's additional fields with which it closes again.
func onRegression(after time.Duration) map[string]any {
	return map[string]any{
		"reclosePolicy": "OnRegression",
		"timing":        map[string]any{"closeAfterSeconds": int64(after / time.Second)},
	}
}

// flaps contains the observations of a node with a flapping daemon.
type flaps struct {
	changes int // of the daemon
	writes  int // of the node, by nodegate
	most    int // writes in any period of the duration of the damping
}

// flap opens one node, makes its daemon flap, and waits until the node is closed because
// the daemon is finally not ready.
func (e *Env) flap(ctx context.Context) (f flaps, err error) {
	if err := errors.Join(e.SetGate(ctx, onRegression(damping)), e.Reset(ctx, nil, 1)); err != nil {
		return f, err
	}
	controller, err := e.StartNodegate(ctx)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, controller.Stop()) }()
	s := &Subject{Name: nodegateName, PID: controller.PID()}
	if err := errors.Join(e.warmUp(ctx, s, limit.Follows), e.AwaitQuiet(ctx, s)); err != nil {
		return f, err
	}
	mark, err := e.Audit.Mark()
	if err != nil {
		return f, err
	}
	e.Observer.Reset()
	f.changes = e.Flaps | 1 // after an odd number, it is not ready
	node := e.Fleet.Nodes()[0]
	for i := range f.changes {
		if err := e.Fleet.Pace(ctx, []string{node}, rate, i%2 == 1); err != nil {
			return f, err
		}
	}
	// A request is logged after its response, which may be after its effect is observed.
	if err := errors.Join(e.Observer.AwaitSeen(ctx, observer.Tainted, 1), e.AwaitQuiet(ctx, s)); err != nil {
		return f, err
	}
	requests, err := e.Audit.Since(mark)
	if err != nil {
		return f, err
	}
	if f.writes, f.most = writesWithin(requests, node, damping); f.writes == 0 {
		return f, fmt.Errorf("counting writes: %s was closed, but the audit log contains no PATCH", node)
	}
	return f, nil
}

// writesWithin returns the number of PATCHes of a node, and the maximum number that the
// API server received in any period of the given duration.
func writesWithin(requests []meter.Request, node string, window time.Duration) (all, most int) {
	var at []time.Time
	for _, r := range requests {
		if meter.NodePatch(r) && r.Name == node {
			at = append(at, r.Received)
		}
	}
	first := 0
	for i := range at {
		for at[i].Sub(at[first]) >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return len(at), most
}
