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
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/testcluster"
)

// Quantities of a fleet that becomes ready at once, each per node.
const (
	elapsed    = "time"    // ms, from the first daemon that is ready to the last taint that is removed
	ownCPU     = "cpu"     // ms, of nodegate or of the limit
	serverCPU  = "servers" // ms, of API server and etcd, minus that of a turn without a subject
	storeBytes = "bytes"   // KiB that etcd writes, minus those of a turn without a subject
)

const (
	// manyNodes is the fleet size from which a round has one turn per subject: a turn
	// takes long, and averages over many nodes.
	manyNodes = 1000
	// flat is the largest growth of a quantity per node, from the smallest fleet to the
	// largest, that counts as independent of the fleet's size.
	flat = 1.10
	// openedCPU is the goal for nodegate's CPU time per opened node, in ms.
	openedCPU = 0.6
)

var bursting = Figure{
	ID: "P2", Title: "Daemons ready on all nodes at once: time to the last taint removed",
	Measure: burstResult(func(bursts []*burst) (r report.Result) {
		var speeds []string
		for _, b := range bursts {
			r.Rows = append(r.Rows, b.row("%d nodes, per node", "ms", elapsed, report.TimesLimit(1.10)))
			slowest := slices.MaxFunc(b.speeds, func(a, b driver.Speed) int { return cmp.Compare(a.Took, b.Took) })
			speeds = append(speeds, slowest.String())
		}
		r.Rows = append(r.Rows, growth("time", bursts, elapsed))
		r.Notes = []string{
			"From the first daemon observed to be ready to the last node observed without the taint, by the number of nodes.",
			"The driver writes the daemons' status directly to etcd. The slowest turns took it " + strings.Join(speeds, ", ") + ".",
			fmt.Sprintf("From %d nodes on, a round has one turn per subject, and rounds alternate: A B, B A.", manyNodes),
		}
		return r
	}),
}

var servers = Figure{
	ID: "P4", Title: "Costs of an opened node in the API server and etcd",
	Measure: burstResult(func(bursts []*burst) (r report.Result) {
		for _, b := range bursts {
			r.Rows = append(r.Rows,
				b.row("%d nodes: CPU of API server and etcd per node", "ms", serverCPU, report.TimesLimit(1.10)),
				b.row("%d nodes: written by etcd per node", "KiB", storeBytes, report.TimesLimit(1.10)))
		}
		r.Rows = append(r.Rows, growth("CPU", bursts, serverCPU), growth("bytes", bursts, storeBytes))
		r.Notes = []string{
			"In the turns of P2, until API server, etcd, observer and subject are idle. CPU is that of the two processes in /proc.",
			"Bytes are those that etcd writes to its write-ahead log (`" + walBytes + "`). The log contains every change once: for each PATCH, the whole node with its " +
				"managed fields. The database file contains the same bytes, in pages.",
		}
		for _, b := range bursts {
			r.Notes = append(r.Notes, fmt.Sprintf("Costs of a turn without a subject, which are subtracted: with %d nodes, %s of CPU and %.1f MiB.",
				b.nodes, b.idle.servers, b.idle.bytes/(1<<20)))
		}
		return r
	}),
}

var ownWork = Figure{
	ID: "P7", Title: "nodegate's CPU",
	Measure: burstResult(func(bursts []*burst) (r report.Result) {
		for _, b := range bursts {
			r.Rows = append(r.Rows, b.row("%d nodes: CPU per opened node", "ms", ownCPU, report.AtMost(openedCPU)))
		}
		r.Notes = []string{"In the turns of P2, from /proc, until all processes are idle. The goal is independent of the limit."}
		return r
	}),
}

// A burst contains the observations of fleets of one size.
type burst struct {
	nodes  int
	rounds []report.Round
	idle   costs          // of a turn without a subject
	speeds []driver.Speed // of the driver
}

// row returns the row of a quantity. The format of its name contains the number of nodes.
func (b *burst) row(format, unit, quantity string, goal *report.Goal) report.Row {
	return report.Compare(fmt.Sprintf(format, b.nodes), unit, b.rounds, quantity, report.Mean, goal)
}

// growth returns the row of the growth of a quantity per node with the fleet's size.
func growth(what string, bursts []*burst, quantity string) report.Row {
	small, large := bursts[0], bursts[len(bursts)-1]
	name := fmt.Sprintf("%s per node, %d nodes by %d", what, large.nodes, small.nodes)
	return report.Growth(name, report.Series{Rounds: small.rounds, Quantity: quantity}, report.Series{Rounds: large.rounds, Quantity: quantity}, report.Mean, report.AtMost(flat))
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
	if err := e.prepare(ctx, nodes, nil); err != nil {
		return nil, err
	}
	if err := e.Reset(ctx, nil, nodes); err != nil {
		return nil, err
	}
	b = &burst{nodes: nodes}
	e.Observer.Reset()
	if b.idle, err = e.costsOf(ctx, nil, func() error {
		if _, err := e.Fleet.Report(ctx, nodes, true); err != nil {
			return err
		}
		return e.Observer.AwaitSeen(ctx, observer.Ready, nodes)
	}); err != nil {
		return nil, err
	}
	plan := Plan{Rounds: e.Rounds, Nodes: nodes, Direction: limit.Opens, Short: nodes >= manyNodes}
	b.rounds, err = e.Interleave(ctx, plan, func(ctx context.Context, s *Subject) (report.Sample, error) {
		return b.turn(ctx, e, s)
	})
	return b, err
}

// turn makes the daemon ready on all nodes at once, and waits until the last node is open.
func (b *burst) turn(ctx context.Context, e *Env, s *Subject) (report.Sample, error) {
	c, err := e.costsOf(ctx, s, func() error {
		speed, err := e.Fleet.Report(ctx, b.nodes, true)
		if err != nil {
			return err
		}
		b.speeds = append(b.speeds, speed)
		return e.Observer.AwaitSeen(ctx, observer.Open, b.nodes)
	})
	if err != nil {
		return nil, err
	}
	ready := slices.MinFunc(slices.Collect(maps.Values(e.Observer.Seen(observer.Ready))), time.Time.Compare)
	open := slices.MaxFunc(slices.Collect(maps.Values(e.Observer.Seen(observer.Open))), time.Time.Compare)
	n := float64(b.nodes)
	return report.Sample{
		elapsed:    {milliseconds(open.Sub(ready)) / n},
		ownCPU:     {milliseconds(c.own) / n},
		serverCPU:  {milliseconds(c.servers-b.idle.servers) / n},
		storeBytes: {(c.bytes - b.idle.bytes) / 1024 / n},
	}, nil
}

// costs are the costs of an operation.
type costs struct {
	own     time.Duration // CPU of the subject
	servers time.Duration // CPU of API server and etcd
	bytes   float64       // written by etcd
}

// walBytes is the number of bytes that etcd has written to its write-ahead log, which
// contains every change once.
const walBytes = "etcd_disk_wal_write_bytes_total"

// costsOf performs an operation and waits until all processes are idle, so that deferred
// work is included.
func (e *Env) costsOf(ctx context.Context, s *Subject, operation func() error) (costs, error) {
	before, err := e.costs(ctx, s)
	if err != nil {
		return costs{}, err
	}
	if err := operation(); err != nil {
		return costs{}, err
	}
	if err := e.AwaitQuiet(ctx, s); err != nil {
		return costs{}, err
	}
	after, err := e.costs(ctx, s)
	return costs{after.own - before.own, after.servers - before.servers, after.bytes - before.bytes}, err
}

// costs returns the costs since the processes started.
func (e *Env) costs(ctx context.Context, s *Subject) (c costs, err error) {
	if s != nil {
		if c.own, err = meter.CPU(s.PID); err != nil {
			return c, err
		}
	}
	if c.servers, err = meter.CPU(e.Cluster.PID(testcluster.APIServer), e.Cluster.PID(testcluster.Etcd)); err != nil {
		return c, err
	}
	metrics, err := meter.OfEtcd(ctx, e.Cluster)
	if err != nil {
		return c, err
	}
	if c.bytes = metrics.Sum(walBytes, nil); c.bytes == 0 {
		return c, fmt.Errorf("reading etcd's metrics: there is no %s", walBytes)
	}
	return c, nil
}
