// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nodegate/nodegate/bench/driver"
	"github.com/nodegate/nodegate/bench/limit"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/testcluster"
)

// The quantities that are measured when a whole fleet becomes ready at once, each
// per node.
const (
	elapsed    = "time"    // ms, from the first daemon seen ready to the last taint seen gone
	ownCPU     = "cpu"     // ms, of nodegate or of the limit
	serverCPU  = "servers" // ms, of API server and etcd, less what they use with nobody opening
	storeBytes = "bytes"   // KiB, that etcd writes, less what it writes with nobody opening
)

// manyNodes is the fleet size from which one turn per subject is enough for a
// round, because a turn takes long and averages over many nodes.
const manyNodes = 1000

// A burst contains the measurements of fleets of one size.
type burst struct {
	nodes  int
	rounds []report.Round
	idle   expense        // of a turn in which nobody opens anything
	speeds []driver.Speed // of the driver
}

// measureBursts measures fleets of every size, once for all figures that are
// based on them.
func (e *Env) measureBursts(ctx context.Context) ([]*burst, error) {
	if e.bursts != nil {
		return e.bursts, nil
	}
	var all []*burst
	for _, nodes := range e.Fleets {
		e.Say("  %d nodes", nodes)
		b, err := e.measureBurst(ctx, nodes)
		if err != nil {
			return nil, fmt.Errorf("with %d nodes: %w", nodes, err)
		}
		all = append(all, b)
	}
	e.bursts = all
	return all, nil
}

func (e *Env) measureBurst(ctx context.Context, nodes int) (*burst, error) {
	if err := e.prepare(ctx, nodes, nil); err != nil {
		return nil, err
	}
	b := &burst{nodes: nodes}
	var err error
	if b.idle, err = e.burstAlone(ctx, nodes); err != nil {
		return nil, err
	}
	plan := Plan{Rounds: e.Rounds, Nodes: nodes, Direction: limit.Opens, Short: nodes >= manyNodes}
	b.rounds, err = e.Interleave(ctx, plan, func(ctx context.Context, s *Subject) (report.Sample, error) {
		return b.turn(ctx, e, s)
	})
	return b, err
}

// burstAlone is a turn without a subject, which measures the work that the
// servers do anyway.
func (e *Env) burstAlone(ctx context.Context, nodes int) (expense, error) {
	if err := e.Reset(ctx, nil, nodes); err != nil {
		return expense{}, err
	}
	e.Observer.Reset()
	return e.expend(ctx, nil, func() error {
		if _, err := e.Fleet.Report(ctx, nodes, true); err != nil {
			return err
		}
		return e.Observer.AwaitSeen(ctx, observer.Ready, nodes)
	})
}

// turn makes the daemon ready on all nodes at once, and waits until the last node
// is open.
func (b *burst) turn(ctx context.Context, e *Env, s *Subject) (report.Sample, error) {
	spent, err := e.expend(ctx, s, func() error {
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
	each := func(total float64) float64 { return total / float64(b.nodes) }
	sample := report.Sample{}
	sample.Add(elapsed, each(milliseconds(open.Sub(ready))))
	sample.Add(ownCPU, each(milliseconds(spent.own)))
	sample.Add(serverCPU, each(milliseconds(spent.servers-b.idle.servers)))
	sample.Add(storeBytes, each((spent.bytes-b.idle.bytes)/1024))
	return sample, nil
}

// An expense contains the costs of an operation.
type expense struct {
	own     time.Duration // CPU of the subject
	servers time.Duration // CPU of API server and etcd
	bytes   float64       // that etcd wrote to its log
}

// walBytes counts the bytes that etcd writes to its write-ahead log, which
// contains every change once.
const walBytes = "etcd_disk_wal_write_bytes_total"

// expend performs an operation and waits until all processes are idle again, so
// that deferred work is counted too.
func (e *Env) expend(ctx context.Context, s *Subject, do func() error) (expense, error) {
	before, err := e.expenses(ctx, s)
	if err != nil {
		return expense{}, err
	}
	if err := do(); err != nil {
		return expense{}, err
	}
	if err := e.AwaitQuiet(ctx, s); err != nil {
		return expense{}, err
	}
	after, err := e.expenses(ctx, s)
	return expense{after.own - before.own, after.servers - before.servers, after.bytes - before.bytes}, err
}

// expenses returns the costs since the processes started.
func (e *Env) expenses(ctx context.Context, s *Subject) (x expense, err error) {
	if s != nil {
		if x.own, err = meter.CPU(s.PID); err != nil {
			return x, err
		}
	}
	for _, component := range []testcluster.Component{testcluster.APIServer, testcluster.Etcd} {
		cpu, err := meter.CPU(e.Cluster.PID(component))
		if err != nil {
			return x, err
		}
		x.servers += cpu
	}
	metrics, err := meter.OfEtcd(ctx, e.Cluster)
	if err != nil {
		return x, err
	}
	if x.bytes = metrics.Sum(walBytes, nil); x.bytes == 0 {
		return x, fmt.Errorf("reading etcd's metrics: there is no %s", walBytes)
	}
	return x, nil
}
