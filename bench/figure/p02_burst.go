// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nodegate/nodegate/bench/driver"
	"github.com/nodegate/nodegate/bench/report"
)

// flat is the largest growth of a per-node quantity, from the smallest fleet to
// the largest, that counts as independent of the fleet's size.
const flat = 1.10

var bursting = Figure{
	ID: "P2", Title: "Daemons ready on all nodes at once: time to the last taint gone",
	Measure:  measureBursting,
	Profiled: profiledBurst,
}

func measureBursting(ctx context.Context, e *Env) (report.Result, error) {
	var r report.Result
	bursts, err := e.measureBursts(ctx)
	if err != nil {
		return r, err
	}
	var speeds []string
	for _, b := range bursts {
		r.Rows = append(r.Rows, report.Compare(fmt.Sprintf("%d nodes, per node", b.nodes), "ms", b.rounds, elapsed, report.Mean, report.TimesLimit(1.10)))
		speeds = append(speeds, b.slowest().String())
	}
	r.Rows = append(r.Rows, growth("time", bursts, elapsed))
	r.Notes = []string{
		"From the first daemon seen ready to the last taint seen gone, both by the observer; by the number of nodes.",
		"The driver writes the daemons' status straight into etcd. At its slowest it wrote " + strings.Join(speeds, ", ") + ".",
		fmt.Sprintf("From %d nodes on, a round has one turn of each, and rounds alternate: A B, B A.", manyNodes),
	}
	return r, nil
}

// slowest returns the driver's lowest speed.
func (b *burst) slowest() driver.Speed {
	worst := b.speeds[0]
	for _, speed := range b.speeds {
		if speed.Took > worst.Took {
			worst = speed
		}
	}
	return worst
}

// growth describes how a per-node quantity changes with the fleet's size.
func growth(what string, bursts []*burst, quantity string) report.Row {
	small, large := bursts[0], bursts[len(bursts)-1]
	name := fmt.Sprintf("%s per node, %d nodes by %d", what, large.nodes, small.nodes)
	return report.Growth(name, small.rounds, large.rounds, quantity, report.Mean, report.AtMost(flat))
}

// profiledBurst returns a turn of a fleet that is large enough for a profile.
// Preparing a larger fleet would take longer than the turn.
func profiledBurst(e *Env) Profiled {
	nodes := min(manyNodes, e.Fleets[len(e.Fleets)-1])
	return Profiled{
		Name: "burst",
		For:  time.Duration(1+nodes/250) * time.Second, Nodes: nodes,
		Turn: func(ctx context.Context, e *Env, s *Subject) error {
			_, err := (&burst{nodes: nodes}).turn(ctx, e, s)
			return err
		},
	}
}
