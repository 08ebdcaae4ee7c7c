// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"fmt"

	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
)

// baselineTurns is the number of turns without a subject.
const baselineTurns = 3

// A baseline is what turns without a subject cost. It is subtracted from the costs of turns
// with a subject.
type baseline []report.Pair

// measureBaseline makes the daemon ready on the first nodes at once, without a subject. All
// nodes are closed before, and no daemon is ready.
func (e *Env) measureBaseline(ctx context.Context, nodes int) (baseline, error) {
	pairs, err := e.referee.pairs(baselineTurns, func(n int) (pairs []report.Pair, err error) {
		if n > 0 {
			if err := e.Reset(ctx, nil, nodes); err != nil {
				return nil, err
			}
		}
		e.Observer.Reset()
		err = e.referee.turn(func() error {
			used, err := e.count(ctx, nil, func() error {
				if _, err := e.Fleet.Report(ctx, nodes, true); err != nil {
					return err
				}
				return e.Observer.AwaitSeen(ctx, observer.Ready, nodes)
			})
			sample := report.Sample{}
			for quantity, total := range used {
				sample.Add(quantity, total)
			}
			pairs = []report.Pair{{Nodegate: sample}}
			return err
		})
		return pairs, err
	})
	return pairs, err
}

// spread returns the spread of a quantity in undisturbed turns, or nil if it was not counted.
func (b baseline) spread(quantity string, scale float64) *report.Spread {
	counting, _ := report.Undisturbed(b)
	var values []float64
	for _, turn := range counting {
		for _, value := range turn.Nodegate[quantity] {
			values = append(values, value/scale)
		}
	}
	return report.SpreadOf(values)
}

// median returns the median of a quantity, or 0 if it was not counted.
func (b baseline) median(quantity string) float64 {
	if s := b.spread(quantity, 1); s != nil {
		return s.Median
	}
	return 0
}

// note returns a sentence about the costs with a number of nodes.
func (b baseline) note(nodes int) string {
	counting, disturbed := report.Undisturbed(b)
	note := fmt.Sprintf("Costs of a turn without a subject, which are subtracted: with %d nodes, %s ms of CPU and %s MiB written (median, minimum and maximum of %d turns).",
		nodes, b.spread(serverCPU, 1), b.spread(storeBytes, 1024), len(counting))
	if disturbed {
		note += " All of these turns were disturbed."
	}
	return note
}
