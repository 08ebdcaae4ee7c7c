// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/internal/testbed"
)

const (
	// failoverNodes is the number of nodes that become ready one after the other while the
	// leader ends, and failoverRate the number of them per second. The leader ends when a
	// quarter of them is open.
	failoverNodes = 120
	failoverRate  = 40
	// The goals for the time without writes, in seconds.
	killedGoal  = 3
	stoppedGoal = 0.5
)

var failover = Figure{
	ID: "P16", Title: "Failover: the last write of the old leader to the first write of the new one",
	Measure: measureFailover,
}

// Quantities of a round: the time without writes in seconds, by how the leader ends.
const (
	whenKilled  = "killed"
	whenStopped = "stopped"
)

func measureFailover(ctx context.Context, e *Env) (r report.Result, err error) {
	nodes := min(failoverNodes, e.Fleets[len(e.Fleets)-1])
	if err := e.Prepare(ctx, nodes, nil); err != nil {
		return r, err
	}
	if err := e.Reset(ctx, nil, nodes); err != nil {
		return r, err
	}
	leader, err := e.StartNodegate(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, leader.Stop()) }()
	pairs, err := e.referee.alone(e.Rounds, func(int) (report.Sample, error) {
		sample := report.Sample{}
		for _, how := range []string{whenKilled, whenStopped} {
			gap, successor, err := e.failOver(ctx, leader, how == whenKilled, nodes)
			if successor != nil {
				leader = successor
			}
			if err != nil {
				return nil, fmt.Errorf("leader %s: %w", how, err)
			}
			sample.Add(how, gap.Seconds())
		}
		return sample, nil
	})
	r.Rows = []report.Row{
		report.Compare("leader killed (SIGKILL)", "s", pairs, whenKilled, report.Mean, report.AtMost(killedGoal)),
		report.Compare("leader stopped (SIGTERM)", "s", pairs, whenStopped, report.Mean, report.AtMost(stoppedGoal)),
	}
	r.Notes = []string{
		fmt.Sprintf("%d nodes become ready, %d per second. When a quarter of them is open, the leader ends. A second replica is running and has read the whole fleet.", nodes, failoverRate),
		"The longest time between two successive PATCHes of nodes, by the times at which the API server received them, according to its audit log.",
	}
	return r, err
}

// failOver ends the leader while it opens nodes, and returns the longest time without
// writes, and its successor.
func (e *Env) failOver(ctx context.Context, leader *testbed.Controller, kill bool, nodes int) (gap time.Duration, successor *testbed.Controller, err error) {
	if err := e.Reset(ctx, &Subject{Name: nodegateName, PID: leader.PID()}, nodes); err != nil {
		return 0, nil, err
	}
	successor, err = e.StartNodegate(ctx) // stands by
	if err != nil {
		return 0, nil, err
	}
	if err := meter.AwaitQuiet(ctx, successor.PID(), leader.PID()); err != nil {
		return 0, successor, errors.Join(err, leader.Stop())
	}
	mark, err := e.Audit.Mark()
	if err != nil {
		return 0, successor, errors.Join(err, leader.Stop())
	}
	if err := e.referee.turn(func() error { return e.endLeader(ctx, leader, kill, nodes) }); err != nil {
		return 0, successor, err
	}
	// A request is logged after its response, which may be after its effect is observed.
	if err := e.AwaitQuiet(ctx, nil); err != nil {
		return 0, successor, err
	}
	requests, err := e.Audit.Since(mark)
	if err != nil {
		return 0, successor, err
	}
	gap, err = longestGap(requests, nodes)
	return gap, successor, err
}

// endLeader ends the leader while nodes become ready, and returns when all are open.
func (e *Env) endLeader(ctx context.Context, leader *testbed.Controller, kill bool, nodes int) error {
	e.Observer.Reset()
	var reports errgroup.Group
	reports.Go(func() error { return e.Fleet.Pace(ctx, e.Fleet.Nodes()[:nodes], failoverRate, true) })
	err := e.Observer.AwaitSeen(ctx, observer.Open, nodes/4)
	if kill {
		leader.Kill()
	} else {
		err = errors.Join(err, leader.Stop())
	}
	if err := errors.Join(err, reports.Wait()); err != nil {
		return err
	}
	return e.Observer.AwaitSeen(ctx, observer.Open, nodes)
}

// longestGap returns the longest time between two successive PATCHes of nodes. There must
// be at least one PATCH per node.
func longestGap(requests []meter.Request, nodes int) (longest time.Duration, err error) {
	var at []time.Time
	for _, r := range requests {
		if meter.NodePatch(r) {
			at = append(at, r.Received)
		}
	}
	if len(at) < nodes {
		return 0, fmt.Errorf("counting writes: %d nodes were opened, but the audit log contains %d PATCHes", nodes, len(at))
	}
	slices.SortFunc(at, time.Time.Compare)
	for i := 1; i < len(at); i++ {
		longest = max(longest, at[i].Sub(at[i-1]))
	}
	return longest, nil
}
