// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"fmt"

	"github.com/nodegate/nodegate/bench/report"
)

// openedCPU is the goal for nodegate's CPU time for opening a node, in
// milliseconds.
const openedCPU = 0.6

var ownWork = Figure{
	ID: "P7", Title: "nodegate's CPU",
	Measure:  measureOwnWork,
	Profiled: profiledBurst,
}

func measureOwnWork(ctx context.Context, e *Env) (report.Result, error) {
	var r report.Result
	bursts, err := e.measureBursts(ctx)
	if err != nil {
		return r, err
	}
	for _, b := range bursts {
		r.Rows = append(r.Rows, report.Compare(fmt.Sprintf("%d nodes: CPU per opened node", b.nodes), "ms", b.rounds, ownCPU, report.Mean, report.AtMost(openedCPU)))
	}
	r.Notes = []string{"In the turns of P2, from /proc, until everybody was at rest again. The limit's own is told beside it, and is not the goal."}
	return r, nil
}
