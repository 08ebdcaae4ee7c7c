// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nodegate/nodegate/bench/fixture"
	"github.com/nodegate/nodegate/bench/limit"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/testcluster"
)

// A Subject is the process that is measured in a turn: nodegate or the limit.
type Subject struct {
	Name string
	PID  int
	// Metrics is the address that serves the process's metrics over HTTP.
	Metrics string

	stop func() error
}

// A turn measures a subject once. When it begins, the fleet is closed and all processes
// are idle. It may leave the fleet in any state.
type turn func(context.Context, *Subject) (report.Sample, error)

const (
	nodegateName = "nodegate"
	limitName    = "limit"
)

// openMetrics is the flag with which nodegate serves metrics over HTTP to all clients.
const openMetrics = "--metrics-secure=false"

// Notes on figures whose turns are interleaved, or whose times are those of the observer.
const (
	limitNote = "The limit is a bare loop that watches the same pods and all Nodes, and sends one precomputed PATCH for each change, with nodegate's " +
		"permissions, client settings and concurrency. Ratios are those of two successive turns, one of nodegate and one of the limit, in alternating order."
	observerNote = "The observer is a separate process with its own watches."
)

// A Plan specifies the turns.
type Plan struct {
	Rounds int
	// Nodes is the number of nodes that change, from the first of the fleet.
	Nodes int
	// Direction specifies the changes that the limit follows.
	Direction limit.Direction
	// Short specifies one turn per subject and round instead of two.
	Short bool
}

// order returns the subjects of a round. Over all rounds it is A B B A and so on, so
// gradual changes of the machine affect both, and successive turns of the same subject
// save a start.
func (p *Plan) order(round int) []string {
	switch {
	case !p.Short:
		return []string{nodegateName, limitName, limitName, nodegateName}
	case round%2 == 0:
		return []string{nodegateName, limitName}
	}
	return []string{limitName, nodegateName}
}

// Interleave measures nodegate and the limit in turns, and returns the observations of
// each pair of successive turns. Disturbed rounds are repeated.
func (e *Env) Interleave(ctx context.Context, p Plan, measure turn) (all []report.Pair, err error) {
	var subject *Subject
	defer func() {
		if subject != nil {
			err = errors.Join(err, subject.stop())
		}
	}()
	return e.referee.pairs(p.Rounds, func(n int) ([]report.Pair, error) {
		order := p.order(n)
		samples := make([]report.Sample, len(order))
		for i, name := range order {
			changed := p.Nodes // since the fleet was reset
			if subject == nil || subject.Name != name {
				changed = 1 // by the warm-up
				if subject, err = e.replace(ctx, subject, name, &p); err != nil {
					return nil, err
				}
			}
			if err := e.Reset(ctx, subject, changed); err != nil {
				return nil, err
			}
			e.Observer.Reset()
			if err := e.referee.turn(func() (err error) {
				samples[i], err = measure(ctx, subject)
				return err
			}); err != nil {
				return nil, fmt.Errorf("measuring %s: %w", name, err)
			}
		}
		return pairUp(order, samples), nil
	})
}

// pairUp returns the pairs of successive turns.
func pairUp(order []string, samples []report.Sample) (all []report.Pair) {
	for i := 0; i+1 < len(order); i += 2 {
		pair := report.Pair{Nodegate: samples[i], Limit: samples[i+1]}
		if order[i] == limitName {
			pair.Nodegate, pair.Limit = pair.Limit, pair.Nodegate
		}
		all = append(all, pair)
	}
	return all
}

// replace stops a subject, which may be nil, and starts another one.
func (e *Env) replace(ctx context.Context, before *Subject, name string, p *Plan) (*Subject, error) {
	if before != nil {
		if err := before.stop(); err != nil {
			return nil, err
		}
	}
	if err := e.Reset(ctx, nil, p.Nodes); err != nil {
		return nil, err
	}
	var subject *Subject
	if name == limitName {
		process, err := limit.Start(ctx, e.Cluster, e.limitConfig, p.Direction, e.interrupted)
		if err != nil {
			return nil, err
		}
		subject = &Subject{name, process.PID(), process.Metrics, process.Stop}
	} else {
		controller, err := e.StartNodegate(ctx, openMetrics)
		if err != nil {
			return nil, err
		}
		subject = &Subject{name, controller.PID(), controller.Metrics, controller.Stop}
	}
	if err := e.warmUp(ctx, subject, p.Direction); err != nil {
		return nil, errors.Join(err, subject.stop())
	}
	return subject, nil
}

// warmUp waits until the subject has processed the whole fleet, and makes it open the
// first node, so that its startup is not measured: connections, the Lease, the first
// reconcile of all nodes. A subject that also closes nodes must have closed this one before:
// a leader that is not the first closes none in its first seconds.
func (e *Env) warmUp(ctx context.Context, s *Subject, d limit.Direction) error {
	if err := meter.AwaitQuiet(ctx, s.PID); err != nil {
		return err
	}
	changes := []observer.State{observer.Open}
	if d == limit.Follows {
		changes = []observer.State{observer.Open, observer.Tainted, observer.Open}
	}
	for _, to := range changes {
		e.Observer.Reset()
		if err := e.Fleet.ReportOne(ctx, e.Fleet.Nodes()[0], to == observer.Open); err != nil {
			return err
		}
		if err := e.Observer.AwaitSeen(ctx, to, 1); err != nil {
			return err
		}
	}
	return nil
}

// Prepare configures the gate, and grows the fleet to at least the given size.
func (e *Env) Prepare(ctx context.Context, nodes int, gate map[string]any) error {
	if err := e.SetGate(ctx, gate); err != nil {
		return err
	}
	if len(e.Fleet.Nodes()) < nodes {
		return e.Fleet.Resize(ctx, nodes)
	}
	return nil
}

// Reset resets the first nodes to their state after creation, and returns when all
// processes are idle. The subject, which may be nil, observes that no daemon is ready
// before it observes a closed node. It must not close gates on regression.
func (e *Env) Reset(ctx context.Context, s *Subject, nodes int) error {
	closed := nodes
	tainted := e.Observer.Now(observer.Tainted)
	for _, node := range e.Fleet.Nodes()[nodes:] {
		if tainted[node] {
			closed++
		}
	}
	if _, err := e.Fleet.Report(ctx, nodes, false); err != nil {
		return err
	}
	if err := e.AwaitQuiet(ctx, s); err != nil {
		return err
	}
	if err := e.Fleet.Reset(ctx, nodes); err != nil {
		return err
	}
	if err := e.Observer.Await(ctx, observer.Tainted, closed); err != nil {
		return err
	}
	if err := e.Driver.Compact(ctx); err != nil {
		return err
	}
	return e.AwaitQuiet(ctx, s)
}

// AwaitQuiet waits until the control plane, the observer and a subject, which may be nil,
// are idle.
func (e *Env) AwaitQuiet(ctx context.Context, s *Subject) error {
	pids := []int{e.Cluster.PID(testcluster.APIServer), e.Cluster.PID(testcluster.Etcd), e.Observer.PID()}
	if s != nil {
		pids = append(pids, s.PID)
	}
	return meter.AwaitQuiet(ctx, pids...)
}

// latencies waits until an event has occurred for each node, and returns the times in
// milliseconds since the daemon's pod there entered a state.
func (e *Env) latencies(ctx context.Context, nodes []string, pod observer.State, to observer.Event) ([]float64, error) {
	return e.Observer.Latencies(ctx, nodes, observer.Event{State: pod, Object: fixture.PodName}, to)
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
