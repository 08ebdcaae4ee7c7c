// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nodegate/nodegate/bench/driver"
	"github.com/nodegate/nodegate/bench/limit"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
)

// elapsed is the time in ms from the first daemon that is ready to the last taint that is
// removed. Like all quantities of a fleet that becomes ready at once, it is per node. Those
// of the servers are without those of a turn without a subject.
const elapsed = "time"

const (
	// manyNodes is the fleet size from which a round has one turn per subject, in which half
	// of the nodes change: a turn takes long, and averages over many nodes.
	manyNodes = 1000
	// burstGoal is the goal for ratios to the limit.
	burstGoal = 1.10
	// flat is the largest growth of a quantity per node, from the smallest fleet to the
	// largest, that counts as independent of the fleet's size.
	flat = 1.10
)

var bursting = Figure{
	ID: "P2", Title: "Daemons ready on many nodes at once: time to the last taint removed",
	Measure: burstResult(func(bursts []*burst) (r report.Result) {
		var speeds []string
		for _, b := range bursts {
			r.Rows = append(r.Rows, b.row("%d nodes, per node", elapsed, report.TimesLimit(burstGoal)))
			slowest := slices.MaxFunc(b.speeds, func(a, b driver.Speed) int { return cmp.Compare(a.Took, b.Took) })
			speeds = append(speeds, slowest.String())
		}
		r.Notes = []string{
			"From the first daemon observed to be ready to the last node observed without the taint, by the number of nodes.",
			"The driver writes the daemons' status directly to etcd. The slowest turns took it " + strings.Join(speeds, ", ") + ".",
			fmt.Sprintf("From %d nodes on, half of the fleet becomes ready in a turn, a round has one turn per subject, and rounds alternate: A B, B A.", manyNodes),
			limitNote, observerNote,
		}
		return r
	}),
}

var servers = Figure{
	ID: "P4", Title: "Costs of an opened node in the API server and etcd",
	Measure: burstResult(func(bursts []*burst) (r report.Result) {
		for _, b := range bursts {
			r.Rows = append(r.Rows,
				b.row("%d nodes: CPU of API server and etcd per node", serverCPU, report.TimesLimit(burstGoal)),
				b.counts("%d nodes: written by etcd per node", "KiB", storeBytes, report.TimesLimit(burstGoal)))
		}
		largest := bursts[len(bursts)-1]
		r.Rows = append(r.Rows,
			largest.counts("%d nodes: instructions of API server and etcd per node", "million", serverInstructions, nil),
			largest.counts("%d nodes: allocated by API server and etcd per node", "KiB", serverAllocated, report.TimesLimit(burstGoal)),
			growth("bytes", bursts, storeBytes))
		r.Notes = []string{
			"In the turns of P2, until API server, etcd, observer and subject are idle. CPU is that of the two processes.",
			"Bytes are those that etcd writes to its write-ahead log (`" + walBytes + "`). The log contains every change once: for each PATCH, the whole node with its " +
				"managed fields. The database file contains the same bytes, in pages.",
			countedNote,
		}
		for _, b := range bursts {
			r.Notes = append(r.Notes, b.without.note(b.nodes))
		}
		return r
	}),
}

// countedNote explains quantities that do not depend on the machine.
const countedNote = "Instructions and allocations hardly depend on the machine's speed and load. Instructions are those in user mode, as the CPU counts them; \"-\" if " +
	"the kernel does not permit that, or if the (virtual) CPU cannot. Allocations are counted by Go's runtime."

var ownWork = Figure{
	ID: "P7", Title: "nodegate's CPU",
	Measure: burstResult(func(bursts []*burst) (r report.Result) {
		for _, b := range bursts {
			r.Rows = append(r.Rows, b.row("%d nodes: CPU per opened node", ownCPU, report.TimesLimit(ownGoal)))
		}
		largest := bursts[len(bursts)-1]
		r.Rows = append(r.Rows,
			largest.counts("%d nodes: instructions per opened node", "million", ownInstructions, nil),
			largest.counts("%d nodes: objects allocated per opened node", "", ownObjects, nil),
			largest.counts("%d nodes: allocated per opened node", "KiB", ownAllocated, nil),
			largest.counts("%d nodes: requests per opened node", "", ownRequests, nil),
			largest.counts("%d nodes: received per opened node", "KiB", ownReceived, nil),
			largest.counts("%d nodes: sent per opened node", "KiB", ownSent, nil))
		r.Notes = []string{
			"In the turns of P2, until all processes are idle.",
			countedNote,
			"Requests are those in the API server's audit log, without watches that last. Received and sent are the bytes that the process reads and writes: those of its connections, compressed and encrypted, and its log.",
		}
		return r
	}),
}

// A burst contains the observations of fleets of one size.
type burst struct {
	nodes int
	// changing is the number of nodes whose daemons become ready in a turn.
	changing int
	pairs    []report.Pair
	without  baseline       // a subject
	speeds   []driver.Speed // of the driver
}

// row returns the row of a time. The format of its name contains the number of nodes.
func (b *burst) row(format, quantity string, goal *report.Goal) report.Row {
	return report.Compare(fmt.Sprintf(format, b.nodes), "ms", b.pairs, quantity, report.Mean, goal)
}

// counts returns the row of a quantity that other work of the machine does not affect.
func (b *burst) counts(format, unit, quantity string, goal *report.Goal) report.Row {
	return report.Compare(fmt.Sprintf(format, b.nodes), unit, report.Counts(b.pairs), quantity, report.Mean, goal)
}

// growth returns the row of the growth of a count per node with the fleet's size.
func growth(what string, bursts []*burst, quantity string) report.Row {
	small, large := bursts[0], bursts[len(bursts)-1]
	name := fmt.Sprintf("%s per node, %d nodes by %d", what, large.nodes, small.nodes)
	return report.Growth(name, report.Series{Pairs: report.Counts(small.pairs), Quantity: quantity}, report.Series{Pairs: report.Counts(large.pairs), Quantity: quantity}, report.Mean, report.AtMost(flat))
}

// burstResult returns a function that measures bursts and returns their result.
func burstResult(result func([]*burst) report.Result) func(context.Context, *Env) (report.Result, error) {
	return func(ctx context.Context, e *Env) (report.Result, error) {
		if err := e.measureBursts(ctx); err != nil {
			return report.Result{}, err
		}
		return result(e.bursts), nil
	}
}

// measureBursts measures fleets of every size, once for all figures.
func (e *Env) measureBursts(ctx context.Context) error {
	if e.bursts != nil {
		return nil
	}
	var all []*burst
	for _, nodes := range e.Fleets {
		e.Say("  %d nodes", nodes)
		b, err := e.measureBurst(ctx, nodes)
		if err != nil {
			return fmt.Errorf("with %d nodes: %w", nodes, err)
		}
		all = append(all, b)
	}
	e.bursts = all
	return nil
}

func (e *Env) measureBurst(ctx context.Context, nodes int) (b *burst, err error) {
	if err := e.Prepare(ctx, nodes, nil); err != nil {
		return nil, err
	}
	if err := e.Reset(ctx, nil, nodes); err != nil {
		return nil, err
	}
	b = &burst{nodes: nodes, changing: nodes}
	if nodes >= manyNodes {
		b.changing = nodes / 2
	}
	if b.without, err = e.measureBaseline(ctx, b.changing); err != nil {
		return nil, err
	}
	plan := Plan{Rounds: e.Rounds, Nodes: b.changing, Direction: limit.Opens, Short: nodes >= manyNodes}
	b.pairs, err = e.Interleave(ctx, plan, func(ctx context.Context, s *Subject) (report.Sample, error) {
		return b.turn(ctx, e, s)
	})
	return b, err
}

// turn makes the daemon ready on all nodes at once, and waits until the last node is open.
func (b *burst) turn(ctx context.Context, e *Env, s *Subject) (report.Sample, error) {
	c, err := e.count(ctx, s, func() error {
		speed, err := e.Fleet.Report(ctx, b.changing, true)
		if err != nil {
			return err
		}
		b.speeds = append(b.speeds, speed)
		return e.Observer.AwaitSeen(ctx, observer.Open, b.changing)
	})
	if err != nil {
		return nil, err
	}
	ready := slices.MinFunc(slices.Collect(maps.Values(e.Observer.Seen(observer.Ready))), time.Time.Compare)
	open := slices.MaxFunc(slices.Collect(maps.Values(e.Observer.Seen(observer.Open))), time.Time.Compare)
	sample := report.Sample{elapsed: {milliseconds(open.Sub(ready)) / float64(b.changing)}}
	for quantity, total := range c {
		sample.Add(quantity, (total-b.without.median(quantity))/float64(b.changing))
	}
	return sample, nil
}
