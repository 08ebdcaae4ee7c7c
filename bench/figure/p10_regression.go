// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
)

const (
	// damping is the gate's closeAfterSeconds for a flapping daemon.
	damping = 2 * time.Second

	// flapRate is how often a second that daemon changes.
	flapRate = 10
)

var regression = Figure{
	ID: "P10", Title: "Daemon not ready → taint present, 10 nodes a second; a daemon that flaps",
	Measure:  measureRegression,
	Profiled: profiledRegression,
}

func measureRegression(ctx context.Context, e *Env) (report.Result, error) {
	var r report.Result
	rounds, err := e.measurePaced(ctx)
	if err != nil {
		return r, err
	}
	f, err := e.flap(ctx)
	if err != nil {
		return r, err
	}
	r.Rows = []report.Row{
		report.Compare("p50", "ms", rounds, closingLatency, report.Percentile(50), report.TimesLimit(1.5)),
		report.Compare("p99", "ms", rounds, closingLatency, report.Percentile(99), report.TimesLimit(1.5)),
		report.Alone(fmt.Sprintf("%d changes a second: most writes in any %g s", flapRate, damping.Seconds()), "", []float64{float64(f.most)}, report.AtMost(1)),
	}
	r.Notes = []string{
		fmt.Sprintf("In the turns of P1, of %d nodes, closeAfterSeconds 0, budget 100%%. From when the observer's watch of pods shows the daemon not ready to when its watch of nodes shows the taint.", e.Paced),
		"The daemon's status is written through the API server, as a kubelet writes it.",
		fmt.Sprintf("The daemon that flaps: closeAfterSeconds %g, %d changes of one pod, of which the last leaves it not ready. nodegate sent %d PATCHes of its node, by the audit log.",
			damping.Seconds(), f.changes, f.writes),
	}
	return r, nil
}

// onRegression is what the gate has besides, so that it closes again.
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
	most    int // of those, within any time as long as the damping
}

// flap opens one node, makes its daemon flap, and finally keeps it not ready
// until the node is closed.
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
	if err := errors.Join(e.warmUp(ctx, s), e.AwaitQuiet(ctx, s)); err != nil {
		return f, err
	}
	mark, err := e.Audit.Mark()
	if err != nil {
		return f, err
	}
	e.Observer.Reset()
	f.changes = e.Flaps | 1 // an odd number ends not ready
	node := e.Fleet.Nodes()[0]
	for i := range f.changes {
		if err := e.Fleet.Pace(ctx, []string{node}, flapRate, i%2 == 1); err != nil {
			return f, err
		}
	}
	// The audit log has a request once it has been answered, which is after others
	// have seen what it wrote.
	if err := errors.Join(e.Observer.AwaitSeen(ctx, observer.Tainted, 1), e.AwaitQuiet(ctx, s)); err != nil {
		return f, err
	}
	requests, err := e.Audit.Since(mark)
	if err != nil {
		return f, err
	}
	if f.writes, f.most = writesWithin(requests, node, damping); f.writes == 0 {
		return f, fmt.Errorf("counting writes: %s was seen closed, and the audit log knows of no PATCH", node)
	}
	return f, nil
}

// writesWithin counts the PATCHes of a node, and the most of them that the API
// server got within any time of this length.
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

func profiledRegression(e *Env) Profiled {
	return Profiled{
		Name: "opening-and-closing", Gate: onRegression(0),
		For: time.Duration(1+2*e.Paced/rate) * time.Second, Nodes: e.Paced,
		Turn: func(ctx context.Context, e *Env, s *Subject) error {
			_, err := e.openAndClose(ctx, s)
			return err
		},
	}
}
