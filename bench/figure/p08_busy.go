// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nodegate/nodegate/bench/driver"
	"github.com/nodegate/nodegate/bench/limit"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/testcluster/await"
)

const (
	// heartbeatRate is the number of nodes that report per second under load.
	heartbeatRate = 500
	// editInterval is the interval between edits of the gate under load. Each edit causes a
	// reconcile of all nodes and changes none.
	editInterval = 2 * time.Second
	// starved is the latency above which a node counts as starved.
	starved = time.Second
)

var busy = Figure{
	ID: "P8", Title: "Opening nodes while a large fleet is reconciled or reports",
	Measure: measureBusy,
}

// Quantities of a turn: latencies without load, and under each load.
const (
	unloaded      = "without load"
	whileEdited   = "while the gate is edited"
	whileReported = "while nodes report"
)

func measureBusy(ctx context.Context, e *Env) (report.Result, error) {
	var r report.Result
	if err := e.openFleet(ctx, e.Large); err != nil {
		return r, err
	}
	heartbeats, err := e.heartbeatsFrom(ctx, e.Newcomers)
	if err != nil {
		return r, err
	}
	b := &busyTurns{Env: e, heartbeats: heartbeats}
	pairs, err := e.Interleave(ctx, Plan{Rounds: e.Rounds, Nodes: e.Newcomers, Direction: limit.Opens, Short: true}, b.turn)
	r.Rows = busyRows(pairs)
	r.Notes = []string{
		fmt.Sprintf("%d nodes. The daemons of %d of them become ready in a turn, %d per second: without load, and under each load.", len(e.Fleet.Nodes()), e.Newcomers, rate),
		fmt.Sprintf("The gate is edited every %s, so that nodegate reconciles all nodes. The limit does not watch gates.", editInterval),
		fmt.Sprintf("%d of the other nodes report per second (%s). Because the API server and the observer then need the same cores, the limit becomes slower too.", heartbeatRate, b.reported),
		fmt.Sprintf("A node is starved if nodegate opens it more than %s after its daemon is ready.", starved),
		limitNote, observerNote,
	}
	return r, err
}

// slowest begins the name of the latency of a turn's slowest node. A turn has too few nodes
// for a high percentile.
const slowest = "slowest of a turn "

// busyRows returns rows that compare the latencies under each load with those without.
func busyRows(pairs []report.Pair) []report.Row {
	p50 := report.Percentile(50)
	slowdown := func(load string) report.Row {
		return report.Growth(slowest+load+" ÷ "+slowest+unloaded, report.Series{Pairs: pairs, Quantity: unloaded},
			report.Series{Pairs: pairs, Quantity: load}, report.Slowest, report.AtMost(2))
	}
	return []report.Row{
		report.Compare("p50 "+unloaded, "ms", pairs, unloaded, p50, nil),
		report.Compare(slowest+unloaded, "ms", pairs, unloaded, report.Slowest, nil),
		report.Compare(slowest+whileEdited, "ms", pairs, whileEdited, report.Slowest, nil),
		slowdown(whileEdited),
		report.Compare("p50 "+whileReported, "ms", pairs, whileReported, p50, nil),
		report.Compare(slowest+whileReported, "ms", pairs, whileReported, report.Slowest, nil),
		slowdown(whileReported),
		report.Total("starved nodes "+whileEdited, pairs, starvedNodes(whileEdited), report.AtMost(0)),
		report.Total("starved nodes "+whileReported, pairs, starvedNodes(whileReported), report.AtMost(0)),
	}
}

// starvedNodes returns a function that counts the nodes that nodegate starved in a pair.
func starvedNodes(load string) func(nodegate report.Sample) float64 {
	return func(nodegate report.Sample) (count float64) {
		for _, ms := range nodegate[load] {
			if ms > milliseconds(starved) {
				count++
			}
		}
		return count
	}
}

// busyTurns are turns of a fleet in which only the first nodes are closed.
type busyTurns struct {
	*Env
	heartbeats *driver.Heartbeats
	reported   driver.Speed
	edits      int
}

// turn measures a subject without load and under each load.
func (b *busyTurns) turn(ctx context.Context, s *Subject) (report.Sample, error) {
	sample := report.Sample{}
	for _, load := range []struct {
		quantity string
		apply    func(context.Context) error // until its context ends
		skip     bool
	}{
		{quantity: unloaded},
		{quantity: whileEdited, apply: b.edit, skip: s.Name == limitName},
		{quantity: whileReported, apply: b.report},
	} {
		if load.skip {
			continue
		}
		if load.apply != nil { // the previous measurement has opened the nodes
			if err := b.Reset(ctx, s, b.Newcomers); err != nil {
				return nil, err
			}
			b.Observer.Reset()
		}
		opened, err := b.under(ctx, load.apply)
		if err != nil {
			return nil, err
		}
		sample[load.quantity] = opened
	}
	return sample, nil
}

// under measures how long nodes take to open under a load, or without load if it is nil.
func (b *busyTurns) under(ctx context.Context, apply func(context.Context) error) ([]float64, error) {
	if apply == nil {
		return b.pace(ctx, b.Newcomers, true)
	}
	loaded, end := context.WithCancel(ctx)
	defer end()
	var load errgroup.Group
	load.Go(func() error { return apply(loaded) })
	opened, err := b.pace(ctx, b.Newcomers, true)
	end()
	return opened, errors.Join(err, load.Wait())
}

// report makes the other nodes report.
func (b *busyTurns) report(ctx context.Context) (err error) {
	b.reported, err = b.heartbeats.Send(ctx, heartbeatRate)
	return err
}

// edit edits the gate repeatedly without changing any decision.
func (b *busyTurns) edit(ctx context.Context) error {
	for ctx.Err() == nil {
		b.edits++
		timing := map[string]any{"rolloutGraceSeconds": int64(600 + b.edits%2)} // no rollout is in progress
		if err := b.SetGate(context.WithoutCancel(ctx), map[string]any{"timing": timing}); err != nil {
			return err
		}
		_ = await.Pause(ctx, editInterval) // fails only if ctx ends
	}
	return nil
}
