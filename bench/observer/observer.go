// SPDX-License-Identifier: Apache-2.0

// Package observer timestamps changes of nodes and pods in a separate process, with
// its own watches and one clock. A latency is the difference between two of its
// observations, so it depends neither on the driver's clock nor on reports of the
// measured process.
package observer

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/bench/child"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
)

// Program is the first argument with which the benchmark's program becomes the
// observer.
const Program = "observer"

// A State is a state of an object. An object can be in several.
type State uint16

// States of a node: with or without the observed taint. States of a pod in the
// benchmark's namespace: ready or not, and bound to a node. States of a CSINode: a CSI driver
// is registered or not. Gone is the state of a deleted object.
const (
	Tainted State = 1 << iota
	Open
	Ready
	Unready
	Bound
	Registered
	Unregistered
	Gone
	interrupted // of a watch that the API server ended; the name is the resource
)

var names = map[State]string{
	Tainted: "tainted", Open: "open", Ready: "ready", Unready: "unready", Bound: "bound", Registered: "registered", Unregistered: "unregistered", Gone: "gone", interrupted: "interrupted",
}

// String returns the name of a single state.
func (s State) String() string { return names[s] }

// CSINode returns the name under which the CSINode of a node is observed. A name identifies an
// object, and a CSINode has that of its node.
func CSINode(node string) string { return "csinode/" + node }

// An observation contains all states of an object from a time on.
type observation struct {
	states State
	name   string
	at     time.Time
}

func (o observation) String() string {
	return fmt.Sprintf("%d %s %d", o.states, o.name, o.at.UnixNano())
}

func parse(line string) (o observation, err error) {
	var nanoseconds int64
	if _, err := fmt.Sscanf(line, "%d %s %d", &o.states, &o.name, &nanoseconds); err != nil {
		return o, fmt.Errorf("parsing observation %q: %w", line, err)
	}
	o.at = time.Unix(0, nanoseconds)
	return o, nil
}

// An Observer is the parent's handle of the observer process.
type Observer struct {
	process *child.Process

	mu            sync.Mutex
	first         map[State]map[string]time.Time // since the last reset
	now           map[State]map[string]bool
	interruptions int

	changed chan struct{} // has a buffer of one
	ended   chan struct{}
	err     error // valid once ended is closed
}

// Start starts an observer, which reports all existing objects first. Nodes are Tainted if
// they have the given taint.
func Start(ctx context.Context, c *testcluster.Cluster, taint corev1.Taint) (*Observer, error) {
	process, err := child.Start(ctx, c, Program, c.Kubeconfig(), taint.Key, string(taint.Effect))
	if err != nil {
		return nil, err
	}
	o := newObserver()
	o.process = process
	go o.read()
	return o, nil
}

func newObserver() *Observer {
	o := &Observer{
		first: map[State]map[string]time.Time{}, now: map[State]map[string]bool{},
		changed: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	for state := range names {
		o.first[state], o.now[state] = map[string]time.Time{}, map[string]bool{}
	}
	return o
}

// PID returns the process ID.
func (o *Observer) PID() int { return o.process.PID() }

// Stop stops the observer.
func (o *Observer) Stop() error {
	return o.process.Stop(func() { <-o.ended })
}

func (o *Observer) read() {
	defer close(o.ended)
	defer o.process.Drain()
	for o.process.Lines.Scan() {
		observed, err := parse(o.process.Lines.Text())
		if err != nil {
			o.err = err
			return
		}
		o.add(observed)
	}
}

func (o *Observer) add(observed observation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if observed.states == interrupted {
		o.interruptions++
		return
	}
	for state := range names {
		if observed.states&state == 0 {
			delete(o.now[state], observed.name)
			continue
		}
		if o.now[state][observed.name] {
			continue
		}
		o.now[state][observed.name] = true
		if _, ok := o.first[state][observed.name]; !ok {
			o.first[state][observed.name] = observed.at
		}
	}
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// Interruptions returns how often the API server has ended a watch of the observer.
// Changes during an interruption are observed late.
func (o *Observer) Interruptions() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.interruptions
}

// Reset discards the times of all observations, but not the current states.
func (o *Observer) Reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, times := range o.first {
		clear(times)
	}
}

// Seen returns when each object first entered a state since the last reset.
func (o *Observer) Seen(state State) map[string]time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.first[state])
}

// Now returns the objects that are in a state.
func (o *Observer) Now(state State) map[string]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.now[state])
}

// Await waits until at least count objects are in a state at the same time. It fails
// when the number has not risen for await.Silence.
func (o *Observer) Await(ctx context.Context, state State, count int) error {
	return o.await(ctx, state.String(), count, func() int { return len(o.now[state]) })
}

// AwaitSeen waits until at least count objects have entered a state since the last
// reset. It fails when the number has not risen for await.Silence.
func (o *Observer) AwaitSeen(ctx context.Context, state State, count int) error {
	return o.await(ctx, state.String()+" since the last reset", count, func() int { return len(o.first[state]) })
}

func (o *Observer) await(ctx context.Context, what string, count int, counted func() int) error {
	ctx, progress, stop := await.Watch(ctx, await.Silence)
	defer stop()
	for most := -1; ; {
		o.mu.Lock()
		n := counted()
		o.mu.Unlock()
		if n >= count {
			return nil
		}
		if n > most {
			most = n
			progress()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d objects that are %s: %d are: %w", count, what, n, context.Cause(ctx))
		case <-o.ended:
			return fmt.Errorf("waiting for objects that are %s: the observer ended: %w", what, o.err)
		case <-o.changed:
		}
	}
}
