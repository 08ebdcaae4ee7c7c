// SPDX-License-Identifier: Apache-2.0

// Package growth measures fleets that are too large for a complete run of the benchmark.
package growth

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/bench/figure"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/bench/steady"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster/await"
)

// All contains the figures in the order of measurement.
var All = []figure.Figure{reportTimes, scaling}

var scaling = figure.Figure{ID: "P14", Title: "Growth to 100,000 nodes", Measure: measureScale}

const (
	// joinRate is the fastest growth of a cluster that was published: the number of nodes
	// that join each second.
	joinRate = 33
	// daemonStart is the time from the registration of a node until its daemons are ready.
	daemonStart = 2 * time.Second
	// fourthDaemon is one more DaemonSet than in P5.
	fourthDaemon = "device-plugin"

	mebibyte = 1 << 20
)

// measureScale measures the same with each size of fleet.
func measureScale(ctx context.Context, e *figure.Env) (r report.Result, err error) {
	f, err := steady.NewTwoGates(ctx, e.Installation.Program)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.AddDaemon(ctx, fourthDaemon); err != nil {
		return r, err
	}
	var all []*scale
	for _, nodes := range e.Growth {
		e.Say("  %d nodes and %d gate pods, simulated", nodes, nodes*len(f.Daemons))
		s := &scale{nodes: nodes, joining: e.Joining}
		if err := s.measure(ctx, e, f); err != nil {
			return r, err
		}
		all = append(all, s)
	}
	r.Rows, r.Notes = scaleRows(all), scaleNotes(all, len(f.Daemons))
	return r, nil
}

// A scale is what was measured with one size of fleet.
type scale struct {
	nodes, joining int
	initial        int64 // objects
	bytes          int64

	verified time.Duration // since the process was started
	start    usage
	peak     float64 // MiB
	memory   float64 // MiB, after the start
	idle     float64 // share of a core, with reports every five minutes
	edited   time.Duration
	edit     usage
	join     usage
	opened   []float64 // ms from the readiness of the last daemon to the last patch of a node
	patches  int

	standbyReady  time.Duration
	standbyMemory float64
	firstWrite    time.Duration // since the leader was killed
	takeover      usage
	verifiedAgain time.Duration
}

func (s *scale) measure(ctx context.Context, e *figure.Env, f *steady.Fleet) (err error) {
	l, err := replay(f, s.nodes)
	if err != nil {
		return err
	}
	defer l.server.Stop()
	leader, err := l.start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leader.Stop()) }()
	for _, step := range []struct {
		what    string
		measure func(context.Context, *largeFleet, *testbed.Controller) error
	}{
		{"start", s.measureStart},
		{"idle", s.measureIdle},
		{"gate edited", s.measureEdit},
		{"nodes joining", s.measureJoins},
		{"leader replaced", s.measureTakeover},
	} {
		e.Say("    %s", step.what)
		if err := step.measure(ctx, l, leader); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// during returns the CPU time that is used while do runs.
func (l *largeFleet) during(nodegate int, do func() error) (usage, error) {
	before, err := l.used(nodegate)
	if err != nil {
		return usage{}, err
	}
	if err := do(); err != nil {
		return usage{}, err
	}
	after, err := l.used(nodegate)
	return after.minus(before), err
}

func (s *scale) measureStart(ctx context.Context, l *largeFleet, leader *testbed.Controller) (err error) {
	before, err := l.used(leader.PID())
	if err != nil {
		return err
	}
	before.nodegate = 0 // since it was started
	if err := l.awaitVerified(ctx, leader); err != nil {
		return err
	}
	s.verified = time.Since(leader.Started)
	after, err := l.used(leader.PID())
	if err != nil {
		return err
	}
	s.start, s.initial, s.bytes = after.minus(before), l.server.Initial.Load(), l.server.InitialBytes.Load()
	if _, err := awaitIdle(ctx, leader.PID()); err != nil {
		return err
	}
	memory, err := meter.Memory(leader.PID())
	s.peak, s.memory = float64(memory.VmHWM)/mebibyte, float64(memory.VmRSS)/mebibyte
	return err
}

// measureIdle measures an open fleet whose nodes report every five minutes.
func (s *scale) measureIdle(ctx context.Context, l *largeFleet, leader *testbed.Controller) error {
	const long = 20 * time.Second
	l.server.SetHeartbeats(max(1, s.nodes/int(figure.Seldom.Seconds())))
	defer l.server.SetHeartbeats(0)
	used, err := l.during(leader.PID(), func() error { return await.Pause(ctx, long) })
	s.idle = 100 * used.nodegate.Seconds() / long.Seconds()
	return err
}

// measureEdit edits a gate such that no node changes.
func (s *scale) measureEdit(ctx context.Context, l *largeFleet, leader *testbed.Controller) error {
	gate := l.Gates[1].DeepCopy()
	budget := fmt.Sprintf("%d%%", 10+len(strconv.Itoa(s.nodes))) // different for each size
	if err := unstructured.SetNestedField(gate.Object, budget, "spec", "budget", "maxReclosed"); err != nil {
		return fmt.Errorf("changing a gate: %w", err)
	}
	before, err := testbed.GetGate(ctx, l.Applier, gate.GetName())
	if err != nil {
		return err
	}
	if _, err := awaitIdle(ctx, leader.PID()); err != nil {
		return err
	}
	var began, busy time.Time
	used, err := l.during(leader.PID(), func() (err error) {
		began = time.Now()
		if err := l.Applier.Apply(ctx, gate); err != nil {
			return err
		}
		if busy, err = awaitIdle(ctx, leader.PID()); err != nil {
			return err
		}
		return await.Until(ctx, "nodegate to observe the edit", func(ctx context.Context) error {
			after, err := testbed.GetGate(ctx, l.Applier, gate.GetName())
			if err != nil {
				return err
			}
			return observedEdit(after, before.Generation)
		})
	})
	s.edit, s.edited = used, max(0, busy.Sub(began))
	return err
}

// observedEdit returns an error unless a gate has been edited since it had a generation, and
// nodegate has reconciled the edit.
func observedEdit(gate *v1alpha1.NodeGate, before int64) error {
	if gate.Generation == before || gate.Status.ObservedGeneration != gate.Generation {
		return fmt.Errorf("gate %s has generation %d, before %d, and its status is of %d", gate.Name, gate.Generation, before, gate.Status.ObservedGeneration)
	}
	return nil
}

// measureJoins lets nodes join, one after the other, whose daemons become ready after a
// while, and waits until all are open.
func (s *scale) measureJoins(ctx context.Context, l *largeFleet, leader *testbed.Controller) error {
	before := len(l.server.Patches())
	var ready map[int]time.Time
	used, err := l.during(leader.PID(), func() (err error) {
		if ready, err = l.join(ctx, s.joining); err != nil {
			return err
		}
		if err := l.awaitVerified(ctx, leader); err != nil {
			return err
		}
		_, err = awaitIdle(ctx, leader.PID())
		return err
	})
	if err != nil {
		return err
	}
	last := make(map[int]time.Time)
	patches := l.server.Patches()[before:]
	for _, p := range patches {
		last[p.Node] = p.At
	}
	for node, at := range ready {
		s.opened = append(s.opened, float64(last[node].Sub(at).Microseconds())/1e3)
	}
	s.join, s.patches = used, len(patches)
	return nil
}

// join adds nodes at joinRate. It returns when the daemons of each became ready.
func (l *largeFleet) join(ctx context.Context, count int) (map[int]time.Time, error) {
	ready := make(map[int]time.Time, count)
	var starting []int // the nodes whose daemons are not ready, in order
	ticker := time.NewTicker(time.Second / joinRate)
	defer ticker.Stop()
	wait := int(daemonStart * joinRate / time.Second)
	for tick := 0; len(ready) < count; tick++ {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("adding nodes: %w", context.Cause(ctx))
		case <-ticker.C:
		}
		if tick < count {
			node, i := l.joining()
			l.server.PutNode(i, node)
			l.putPods(i, false)
			starting = append(starting, i)
		}
		if tick >= wait {
			i := starting[0]
			starting = starting[1:]
			l.putPods(i, true)
			ready[i] = time.Now()
		}
	}
	return ready, nil
}

// measureTakeover starts a second replica, kills the leader, and makes the daemons of a
// closed node ready at the same moment.
func (s *scale) measureTakeover(ctx context.Context, l *largeFleet, leader *testbed.Controller) (err error) {
	sent := l.server.Initial.Load()
	standby, err := l.start(ctx)
	if err != nil {
		return err
	}
	stopped := false
	defer func() {
		if !stopped {
			err = errors.Join(err, standby.Stop())
		}
	}()
	if err := l.awaitStandby(ctx, standby, sent); err != nil {
		return err
	}
	s.standbyReady = time.Since(standby.Started)
	if _, err := awaitIdle(ctx, standby.PID()); err != nil {
		return err
	}
	memory, err := meter.Memory(standby.PID())
	if err != nil {
		return err
	}
	s.standbyMemory = float64(memory.VmRSS) / mebibyte
	node, i := l.joining()
	l.server.PutNode(i, node)
	l.putPods(i, false)
	if _, err := awaitIdle(ctx, standby.PID()); err != nil {
		return err
	}
	s.takeover, err = l.during(standby.PID(), func() error { return s.kill(ctx, l, leader, standby, i) })
	if err != nil {
		return err
	}
	stopped = true
	return standby.Stop()
}

// kill kills the leader, and waits until the standby has opened a node and reconciled all.
func (s *scale) kill(ctx context.Context, l *largeFleet, leader, standby *testbed.Controller, node int) error {
	patches := len(l.server.Patches())
	leader.Kill()
	killed := time.Now()
	l.putPods(node, true)
	err := await.Until(ctx, "the first write of the new leader", func(context.Context) error {
		if len(l.server.Patches()) == patches {
			return errors.New("there is none")
		}
		return nil
	})
	if err != nil {
		return err
	}
	first := l.server.Patches()[patches]
	s.firstWrite = first.At.Sub(killed)
	if err := l.awaitVerified(ctx, standby); err != nil {
		return err
	}
	s.verifiedAgain = time.Since(killed)
	_, err = awaitIdle(ctx, standby.PID())
	return err
}
