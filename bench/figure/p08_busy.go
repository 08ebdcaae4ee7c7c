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
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
)

const (
	// heartbeats is the number of status writes per second under load.
	heartbeats = 500
	// editEvery is the interval between edits of the gate under load. Each edit
	// causes a reconcile of all nodes and changes none.
	editEvery = 2 * time.Second
	// starved is the latency from which a node counts as starved.
	starved = time.Second
)

var busy = Figure{
	ID: "P8", Title: "Opening new nodes while a large fleet is looked at again and reports",
	Measure:  measureBusy,
	Profiled: profiledBusy,
}

// Quantities of a turn: latencies without a load, and with each.
const (
	inPeace       = "in peace"
	whileEdited   = "while the gate is edited"
	whileReported = "while nodes report"
)

func measureBusy(ctx context.Context, e *Env) (report.Result, error) {
	var r report.Result
	if err := e.openFleet(ctx, e.Large); err != nil {
		return r, err
	}
	heart, err := e.heartOfOthers(ctx, e.Newcomers)
	if err != nil {
		return r, err
	}
	b := &busyTurns{Env: e, heart: heart}
	rounds, err := e.Interleave(ctx, Plan{Rounds: e.Rounds, Nodes: e.Newcomers, Direction: limit.Opens, Short: true}, b.turn)
	if err != nil {
		return r, err
	}
	r.Rows = busyRows(rounds)
	r.Notes = []string{
		fmt.Sprintf("%d nodes, of which %d become fit in a turn, %d a second: in peace, and under each load.", len(e.Fleet.Nodes()), e.Newcomers, rate),
		fmt.Sprintf("The gate is edited every %s, so that nodegate looks at every node again. The limit knows no gates.", editEvery),
		fmt.Sprintf("Nodes report: %d of the others a second (%s). Whoever reports, the API server and the observer need the same cores, so the limit, which does not watch nodes, becomes slower too.", heartbeats, b.reported),
		fmt.Sprintf("Starved is a node that nodegate opens later than %s after its daemon is ready.", starved),
	}
	return r, nil
}

func profiledBusy(e *Env) Profiled {
	return Profiled{
		Name: "busy",
		For:  time.Duration(3*(1+e.Newcomers/rate)) * time.Second, Nodes: e.Newcomers,
		Turn: func(ctx context.Context, e *Env, s *Subject) error {
			heart, err := e.heartOfOthers(ctx, e.Newcomers)
			if err != nil {
				return err
			}
			_, err = (&busyTurns{Env: e, heart: heart}).turn(ctx, s)
			return err
		},
	}
}

// busyRows returns rows that compare the latency under each load with that
// without load.
func busyRows(rounds []report.Round) []report.Row {
	p50, p99 := report.Percentile(50), report.Percentile(99)
	edited := underLoad(rounds, whileEdited)
	return []report.Row{
		report.Compare("p50 in peace", "ms", rounds, inPeace, p50, nil),
		report.Compare("p99 in peace", "ms", rounds, inPeace, p99, nil),
		report.Alone("p99 while the gate is edited", "ms", edited.p99, nil),
		report.Alone("p99 while the gate is edited ÷ p99 in peace", "", edited.times, report.AtMost(2)),
		report.Compare("p50 while nodes report", "ms", rounds, whileReported, p50, nil),
		report.Compare("p99 while nodes report", "ms", rounds, whileReported, p99, nil),
		report.Growth("p99 while nodes report ÷ p99 in peace", only(rounds, inPeace), only(rounds, whileReported), latency, p99, report.AtMost(2)),
		report.Alone("starved nodes while the gate is edited", "", []float64{edited.starved}, report.AtMost(0)),
		report.Alone("starved nodes while nodes report", "", []float64{underLoad(rounds, whileReported).starved}, report.AtMost(0)),
	}
}

// only are the rounds as if nothing but this had been measured in them.
func only(rounds []report.Round, quantity string) []report.Round {
	all := make([]report.Round, len(rounds))
	for i, round := range rounds {
		all[i] = report.Round{
			Nodegate: report.Sample{latency: round.Nodegate[quantity]},
			Limit:    report.Sample{latency: round.Limit[quantity]},
		}
	}
	return all
}

// loaded are nodegate's under a load: one value for each round, and how many nodes
// were starved in all of them.
type loaded struct {
	p99     []float64 // ms
	times   []float64 // of that in peace
	starved float64
}

func underLoad(rounds []report.Round, load string) loaded {
	p99 := report.Percentile(99)
	var l loaded
	for _, round := range rounds {
		ms := p99(round.Nodegate[load])
		l.p99, l.times = append(l.p99, ms), append(l.times, ms/p99(round.Nodegate[inPeace]))
		for _, latency := range round.Nodegate[load] {
			if latency > milliseconds(starved) {
				l.starved++
			}
		}
	}
	return l
}

// busyTurns are turns over a fleet of which only the first nodes are closed.
type busyTurns struct {
	*Env
	heart    *driver.Heart
	reported driver.Speed
	edits    int
}

// turn measures a subject without load and under each load. Editing the gate is no
// load for the limit.
func (b *busyTurns) turn(ctx context.Context, s *Subject) (report.Sample, error) {
	sample := report.Sample{}
	for _, load := range []struct {
		quantity string
		put      func(context.Context) error // until its context ends; nil for none
		skip     bool
	}{
		{quantity: inPeace},
		{quantity: whileEdited, put: b.edit, skip: s.Name == limitName},
		{quantity: whileReported, put: b.report},
	} {
		if load.skip {
			continue
		}
		if load.put != nil { // what was measured before has opened them
			if err := b.Reset(ctx, s, b.Newcomers); err != nil {
				return nil, err
			}
			b.Observer.Reset()
		}
		opened, err := b.under(ctx, load.put)
		if err != nil {
			return nil, err
		}
		sample[load.quantity] = opened[latency]
	}
	return sample, nil
}

// under measures newcomers under a load, or without load if it is nil.
func (b *busyTurns) under(ctx context.Context, put func(context.Context) error) (report.Sample, error) {
	if put == nil {
		return b.newcomers(ctx)
	}
	loaded, end := context.WithCancel(ctx)
	defer end()
	var load errgroup.Group
	load.Go(func() error { return put(loaded) })
	sample, err := b.newcomers(ctx)
	end()
	return sample, errors.Join(err, load.Wait())
}

// newcomers has the first nodes become fit, one after the other, and measures how long
// each takes to open.
func (b *busyTurns) newcomers(ctx context.Context) (report.Sample, error) {
	nodes := b.Fleet.Nodes()[:b.Newcomers]
	if err := b.Fleet.Pace(ctx, nodes, rate, true); err != nil {
		return nil, err
	}
	return b.latencies(ctx, nodes, observer.Ready, observer.Open)
}

// report makes the other nodes report.
func (b *busyTurns) report(ctx context.Context) (err error) {
	b.reported, err = b.heart.Beat(ctx, heartbeats)
	return err
}

// edit edits the gate repeatedly without changing any decision.
func (b *busyTurns) edit(ctx context.Context) error {
	ticker := time.NewTicker(editEvery)
	defer ticker.Stop()
	for {
		b.edits++
		grace := map[string]any{"rolloutGraceSeconds": int64(600 + b.edits%2)} // no rollout is under way
		if err := b.SetGate(context.WithoutCancel(ctx), map[string]any{"timing": grace}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
