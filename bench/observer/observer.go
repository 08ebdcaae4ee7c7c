// SPDX-License-Identifier: Apache-2.0

// Package observer is a separate process with its own watches, which timestamps
// changes of nodes and of pods with one clock. A latency is the difference
// between two of its sightings, so that it depends neither on the driver's clock
// nor on reports of the measured process.
package observer

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/nodegate/nodegate/bench/child"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
)

// Program is the argument that makes the benchmark's program the observer.
const Program = "observer"

// An Observer is the measurement's handle of that process.
type Observer struct {
	process *child.Process

	mu    sync.Mutex
	first [cut + 1]map[string]time.Time // since the last reset
	now   [cut + 1]map[string]bool
	cuts  int
	more  chan struct{} // holds at most one word that there is more
	ended chan struct{}
	err   error // valid once ended is closed
}

// Start starts an observer, which first sees all existing objects.
func Start(ctx context.Context, c *testcluster.Cluster) (*Observer, error) {
	process, err := child.Start(ctx, c, Program, c.Kubeconfig())
	if err != nil {
		return nil, err
	}
	o := &Observer{process: process, more: make(chan struct{}, 1), ended: make(chan struct{})}
	for what := range o.first {
		o.first[what], o.now[what] = map[string]time.Time{}, map[string]bool{}
	}
	go o.read()
	return o, nil
}

// PID returns the process ID.
func (o *Observer) PID() int { return o.process.PID() }

// Stop ends it.
func (o *Observer) Stop() error {
	return o.process.Stop(func() { <-o.ended })
}

func (o *Observer) read() {
	defer close(o.ended)
	defer o.process.Drain()
	for o.process.Lines.Scan() {
		s, err := parseSighting(o.process.Lines.Text())
		if err != nil {
			o.err = err
			return
		}
		o.note(s)
	}
}

// excludes maps each aspect to those that it ends.
var excludes = map[Aspect][]Aspect{
	Tainted: {Open, Gone}, Open: {Tainted, Gone}, Ready: {Unready, Gone}, Unready: {Ready, Gone},
	Bound: {Gone}, Gone: {Tainted, Open, Ready, Unready, Bound},
}

func (o *Observer) note(s Sighting) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.What == cut {
		o.cuts++
	}
	for _, what := range excludes[s.What] {
		delete(o.now[what], s.Name)
	}
	o.now[s.What][s.Name] = true
	if _, seen := o.first[s.What][s.Name]; !seen {
		o.first[s.What][s.Name] = s.At
	}
	select {
	case o.more <- struct{}{}:
	default:
	}
}

// Cuts returns how often the API server has ended a watch of the observer.
// Changes in the meantime were seen, but late.
func (o *Observer) Cuts() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cuts
}

// Reset discards the times of sightings, but not the current aspects.
func (o *Observer) Reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for what := range o.first {
		clear(o.first[what])
	}
}

// Seen returns when each object was first seen to get an aspect since the last
// reset.
func (o *Observer) Seen(what Aspect) map[string]time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.first[what])
}

// Now returns the objects that currently have an aspect.
func (o *Observer) Now(what Aspect) map[string]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.now[what])
}

// Await waits until at least the given number of objects have an aspect at the
// same time. It fails when the number has not risen for await.Silence.
func (o *Observer) Await(ctx context.Context, what Aspect, count int) error {
	return o.await(ctx, what.String(), count, func() int { return len(o.now[what]) })
}

// AwaitSeen waits until at least the given number of objects were seen to get an
// aspect since the last reset. It fails when the number has not risen for
// await.Silence.
func (o *Observer) AwaitSeen(ctx context.Context, what Aspect, count int) error {
	return o.await(ctx, "becoming "+what.String(), count, func() int { return len(o.first[what]) })
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
			return fmt.Errorf("waiting for %d objects to be seen %s: %d are: %w", count, what, n, context.Cause(ctx))
		case <-o.ended:
			return fmt.Errorf("waiting for objects to be seen %s: the observer ended: %w", what, o.err)
		case <-o.more:
		}
	}
}
