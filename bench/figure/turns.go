// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"

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

	stop func() error
}

// A turn measures a subject once. When it begins, the fleet is closed and all
// processes are idle. It may leave the fleet in any state.
type turn func(context.Context, *Subject) (report.Sample, error)

const (
	nodegateName = "nodegate"
	limitName    = "limit"
)

// A Plan specifies the turns.
type Plan struct {
	Rounds int
	// Nodes is the number of the fleet's nodes that take part, from the first.
	Nodes int
	// Direction specifies the changes that the limit follows.
	Direction limit.Direction
	// Short gives each subject one turn per round instead of two.
	Short bool
}

// order returns the turns of a round. Over all rounds it is A B B A and so on, so
// that what changes on the machine meanwhile concerns both, and so that turns of
// the same subject follow each other, which saves a start.
func (p *Plan) order(round int) []string {
	switch {
	case !p.Short:
		return []string{nodegateName, limitName, limitName, nodegateName}
	case round%2 == 0:
		return []string{nodegateName, limitName}
	}
	return []string{limitName, nodegateName}
}

// Interleave measures nodegate and the limit in turns, and returns the
// measurements of each round.
func (e *Env) Interleave(ctx context.Context, p Plan, measure turn) (_ []report.Round, err error) {
	var subject *Subject
	defer func() {
		if subject != nil {
			err = errors.Join(err, subject.stop())
		}
	}()
	var all []report.Round
	for n := range p.Rounds {
		e.Say("  round %d of %d", n+1, p.Rounds)
		round := report.Round{Nodegate: report.Sample{}, Limit: report.Sample{}}
		for _, name := range p.order(n) {
			changed := p.Nodes // since the fleet was reset
			if subject == nil || subject.Name != name {
				changed = 1 // by the warm-up
			}
			if subject, err = e.next(ctx, subject, name, &p); err != nil {
				return nil, err
			}
			sample, err := e.take(ctx, subject, changed, measure)
			if err != nil {
				return nil, fmt.Errorf("measuring %s: %w", name, err)
			}
			target := round.Nodegate
			if name == limitName {
				target = round.Limit
			}
			for quantity, observations := range sample {
				target.Add(quantity, observations...)
			}
		}
		all = append(all, round)
	}
	return all, nil
}

// next returns the subject of the next turn: the previous one or another.
func (e *Env) next(ctx context.Context, before *Subject, name string, p *Plan) (*Subject, error) {
	if before != nil {
		if before.Name == name {
			return before, nil
		}
		if err := before.stop(); err != nil {
			return nil, err
		}
	}
	if err := e.Reset(ctx, nil, p.Nodes); err != nil {
		return nil, err
	}
	subject, err := e.start(ctx, name, p.Direction)
	if err != nil {
		return nil, err
	}
	if err := e.warmUp(ctx, subject); err != nil {
		return nil, errors.Join(err, subject.stop())
	}
	return subject, nil
}

func (e *Env) start(ctx context.Context, name string, direction limit.Direction) (*Subject, error) {
	if name == limitName {
		process, err := limit.Start(ctx, e.Cluster, e.limit, direction)
		if err != nil {
			return nil, err
		}
		return &Subject{name, process.PID(), func() error { return process.Stop(process.Drain) }}, nil
	}
	controller, err := e.StartNodegate(ctx)
	if err != nil {
		return nil, err
	}
	return &Subject{name, controller.PID(), controller.Stop}, nil
}

// warmUp waits until the subject has processed the whole fleet, and makes it open
// the first node, so that no startup work is measured: connections, a Lease, the
// first reconcile of the whole fleet.
func (e *Env) warmUp(ctx context.Context, s *Subject) error {
	if err := meter.AwaitQuiet(ctx, s.PID); err != nil {
		return err
	}
	e.Observer.Reset()
	if err := e.Fleet.ReportOne(ctx, e.Fleet.Nodes()[0], true); err != nil {
		return err
	}
	return e.Observer.AwaitSeen(ctx, observer.Open, 1)
}

// take resets the first nodes of the fleet, which have changed, waits until all
// processes are idle, and measures.
func (e *Env) take(ctx context.Context, s *Subject, changed int, measure turn) (report.Sample, error) {
	if err := e.Reset(ctx, s, changed); err != nil {
		return nil, err
	}
	e.Observer.Reset()
	return measure(ctx, s)
}

// Reset resets the first nodes to their state at birth, and returns when all
// processes are idle. It also waits until the subject, which may be nil, is idle
// in between, so that it observes that no daemon is ready before it observes a
// closed node. The subject must not close gates on regression.
func (e *Env) Reset(ctx context.Context, s *Subject, nodes int) error {
	others := e.taintedAfter(nodes)
	if _, err := e.Fleet.Report(ctx, nodes, false); err != nil {
		return err
	}
	if err := e.AwaitQuiet(ctx, s); err != nil {
		return err
	}
	if err := e.Fleet.Born(ctx, nodes); err != nil {
		return err
	}
	if err := e.Observer.Await(ctx, observer.Tainted, nodes+others); err != nil {
		return err
	}
	if err := e.Driver.Compact(ctx); err != nil {
		return err
	}
	return e.AwaitQuiet(ctx, s)
}

// taintedAfter counts the closed nodes of the fleet after the given number of
// nodes.
func (e *Env) taintedAfter(first int) (closed int) {
	tainted := e.Observer.Now(observer.Tainted)
	for _, node := range e.Fleet.Nodes()[first:] {
		if tainted[node] {
			closed++
		}
	}
	return closed
}

// AwaitQuiet waits until the control plane, the observer and a subject, which may
// be nil, are idle.
func (e *Env) AwaitQuiet(ctx context.Context, s *Subject) error {
	pids := []int{e.Cluster.PID(testcluster.APIServer), e.Cluster.PID(testcluster.Etcd), e.Observer.PID()}
	if s != nil {
		pids = append(pids, s.PID)
	}
	return meter.AwaitQuiet(ctx, pids...)
}
