// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"

	"github.com/nodegate/nodegate/bench/report"
)

const (
	// manyGates is how many there are, each of which waits for a condition that no
	// other one looks at.
	manyGates = 100
	// flipRate is how many nodes change each second, one after the other.
	flipRate = 500
	// flipsInTurn is how many nodes change in a turn, if there are as many.
	flipsInTurn = 200
	// decisionGoal is for how long nodegate may decide, in µs.
	decisionGoal = 20
)

var flipping = Figure{
	ID: "P12", Title: fmt.Sprintf("%d gates: one condition of a node flips", manyGates),
	Measure: measureGates,
}

// What is measured of conditions that flip.
const (
	flipCPU   = "cpu"    // ms of nodegate's for each
	flipWrite = "writes" // PATCHes of nodes for each
)

func measureGates(ctx context.Context, e *Env) (r report.Result, err error) {
	e.Say("  deciding, in Go benchmarks")
	decisions, err := benchmarkDecisions(ctx, e.Rounds)
	if err != nil {
		return r, err
	}
	e.Say("  %d gates, %d nodes", manyGates, e.Gated)
	f, err := newFlips(ctx, e)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	rounds, err := f.rounds(ctx, e)
	if err != nil {
		return r, err
	}
	r.Rows = append(decisions.rows(), rounds.rows()...)
	r.Notes = []string{
		fmt.Sprintf("A decision: to gather what is to be known of a node of %d, and to decide, where nothing is to be written. Measured by a Go benchmark (`BenchmarkFlip` in internal/controller), which counts the signals that were looked at: each gate has one. It is of the same size in quick runs.", decisions.nodes),
		fmt.Sprintf("The rest on a control plane of its own with %d nodes of %.0f KB, on which all %d gates are open. In a turn, %d nodes change, one after the other, %d a second, straight in etcd.", e.Gated, f.nodeKB, manyGates, f.flips, flipRate),
		"CPU is nodegate's in /proc, writes are PATCHes by the API server's metrics. What no gate looks at costs what it takes to receive and read a whole Node; the rest of the row below is the decision and what comes before and after it.",
		fmt.Sprintf("Nothing to write: a gate whose damping (closeAfterSeconds %d) is not over. To be written: a gate without damping, which closes the node.", longDamping),
	}
	return r, nil
}

// flipRounds are what each round observed, by what flips.
type flipRounds []map[flipped]report.Sample

func (rounds flipRounds) values(what flipped, quantity string) []float64 {
	all := make([]float64, len(rounds))
	for i, round := range rounds {
		all[i] = report.Mean(round[what][quantity])
	}
	return all
}

func (rounds flipRounds) rows() []report.Row {
	return []report.Row{
		report.Alone("nodegate's CPU for a flip that no gate looks at", "ms", rounds.values(unwatched, flipCPU), nil),
		report.Alone("nodegate's CPU for a flip, nothing to write", "ms", rounds.values(damped, flipCPU), nil),
		report.Alone("writes for a flip, nothing to write", "", rounds.values(damped, flipWrite), report.AtMost(0)),
		report.Alone("nodegate's CPU for a flip, written", "ms", rounds.values(closes, flipCPU), nil),
		report.Alone("writes for a flip, written", "", rounds.values(closes, flipWrite), report.AtMost(1)),
	}
}
