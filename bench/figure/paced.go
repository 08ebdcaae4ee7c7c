// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"

	"github.com/nodegate/nodegate/bench/limit"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
)

// rate is how many nodes change each second where latencies are measured.
const rate = 10

// What is measured of nodes that change one after the other.
const (
	latency        = "latency" // ms, until a node is open, or whatever else it should become
	closingLatency = "closing" // ms, until it is closed again
)

// measurePaced opens and closes nodes one after the other, once for all figures
// that are based on it, because starts take longer than turns.
func (e *Env) measurePaced(ctx context.Context) ([]report.Round, error) {
	if e.paced != nil {
		return e.paced, nil
	}
	if err := e.prepare(ctx, e.Paced, onRegression(0)); err != nil {
		return nil, err
	}
	rounds, err := e.Interleave(ctx, Plan{Rounds: e.Rounds, Nodes: e.Paced, Direction: limit.Follows}, e.openAndClose)
	if err != nil {
		return nil, err
	}
	e.paced = rounds
	return rounds, nil
}

func (e *Env) openAndClose(ctx context.Context, s *Subject) (report.Sample, error) {
	opened, err := e.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := e.AwaitQuiet(ctx, s); err != nil {
		return nil, err
	}
	closed, err := e.regress(ctx)
	if err != nil {
		return nil, err
	}
	return report.Sample{latency: opened[latency], closingLatency: closed[latency]}, nil
}

// open makes the daemons ready on closed nodes, one after the other.
func (e *Env) open(ctx context.Context) (report.Sample, error) {
	nodes := e.Fleet.Nodes()[:e.Paced]
	if err := e.Fleet.Pace(ctx, nodes, rate, true); err != nil {
		return nil, err
	}
	return e.latencies(ctx, nodes, observer.Ready, observer.Open)
}

// regress makes the daemons not ready on open nodes, one after the other.
func (e *Env) regress(ctx context.Context) (report.Sample, error) {
	nodes := e.Fleet.Nodes()[:e.Paced]
	e.Observer.Reset()
	if err := e.Fleet.Pace(ctx, nodes, rate, false); err != nil {
		return nil, err
	}
	return e.latencies(ctx, nodes, observer.Unready, observer.Tainted)
}
