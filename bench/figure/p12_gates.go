// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"

	"github.com/nodegate/nodegate/bench/report"
)

const (
	// manyGates is the number of gates. Each waits for its own condition.
	manyGates = 100
	// flipRate is the number of nodes that change per second.
	flipRate = 500
	// flipsPerTurn is the maximum number of nodes that change in a turn.
	flipsPerTurn = 200
	// decisionGoal is the goal for the time of a decision, in µs.
	decisionGoal = 20
)

var flipping = Figure{
	ID: "P12", Title: fmt.Sprintf("%d gates: one condition of a node changes", manyGates),
	Measure: measureGates,
}

func measureGates(ctx context.Context, e *Env) (r report.Result, err error) {
	e.Say("  deciding, in Go benchmarks")
	decisions, err := decisionRows(ctx, e.Rounds)
	if err != nil {
		return r, err
	}
	e.Say("  %d gates, %d nodes", manyGates, e.Gated)
	f, err := newFlips(ctx, e)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	rounds, err := f.rounds(ctx, e)
	row := func(what, unit, quantity string, goal *report.Goal) report.Row {
		return report.Compare(what, unit, rounds, quantity, report.Mean, goal)
	}
	r.Rows = append(decisions,
		row("nodegate's CPU for a flip that no gate reads", "ms", unread.cpu(), nil),
		row("nodegate's CPU for a flip, nothing to write", "ms", damped.cpu(), nil),
		row("writes for a flip, nothing to write", "", damped.writes(), report.AtMost(0)),
		row("nodegate's CPU for a flip, written", "ms", closes.cpu(), nil),
		row("writes for a flip, written", "", closes.writes(), report.AtMost(1)))
	r.Notes = []string{
		fmt.Sprintf("Decision: gathering the facts about one of %d nodes, and a decision that writes nothing. Measured by a Go benchmark (`BenchmarkFlip` in internal/controller), also in quick runs. It counts the signals that are evaluated; each gate has one.", decisionNodes),
		fmt.Sprintf("The other rows: a control plane with %d nodes of %.0f KB, on which all %d gates are open. In a turn, %d nodes change, %d per second, directly in etcd.", e.Gated, float64(f.flippedNode(0, nil).Size())/1e3, manyGates, f.flips, flipRate),
		"CPU is nodegate's in /proc; writes are PATCHes in the API server's metrics. A change that no gate reads costs the decoding of a Node. The next row also includes the decision and the work around it.",
		fmt.Sprintf("Nothing to write: a gate whose damping (closeAfterSeconds %d) is not over. Written: a gate without damping, which closes the node.", longDamping),
	}
	return r, err
}
