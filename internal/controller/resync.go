// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
)

// sweep has many nodes looked at without making new work wait: it feeds their
// names into the queue a few at a time, so that whatever else is added waits
// behind those few only.
type resyncer struct {
	queue workqueue.TypedRateLimitingInterface[string]
	// room is taken by every name that the sweep put into the queue.
	slots chan struct{}

	mu      sync.Mutex
	pending []string
	queued  map[string]bool
	wake    chan struct{}
}

func newResyncer(queue workqueue.TypedRateLimitingInterface[string], atOnce int) *resyncer {
	return &resyncer{
		queue: queue, slots: make(chan struct{}, atOnce),
		queued: make(map[string]bool), wake: make(chan struct{}, 1),
	}
}

// all has each of these nodes looked at from now on. Nodes that wait already
// keep their places, so that every node has its turn however often this is
// called.
func (r *resyncer) add(names []string) {
	r.mu.Lock()
	waiting := make(map[string]bool, len(r.pending))
	for _, name := range r.pending {
		waiting[name] = true
	}
	for _, name := range names {
		if !waiting[name] {
			waiting[name] = true
			r.pending = append(r.pending, name)
		}
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// next takes the next node that waits and that is not in the queue already: a
// node is looked at in the light of what is known when a worker takes it up.
func (r *resyncer) next() (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.pending) > 0 {
		name := r.pending[0]
		r.pending = r.pending[1:]
		if !r.queued[name] {
			r.queued[name] = true
			return name, true
		}
	}
	r.pending = nil
	return "", false
}

// done makes room when a worker takes up a node that the sweep had queued, and tells
// whether it had. It comes before the worker looks at anything.
func (r *resyncer) started(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.queued[name] {
		return false
	}
	delete(r.queued, name)
	<-r.slots
	return true
}

// run feeds the queue until the context ends.
func (r *resyncer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		for r.enqueueOne(ctx) {
		}
	}
}

// enqueueOne waits for room and puts one node into the queue. It is false when no
// node waits, or the context has ended.
func (r *resyncer) enqueueOne(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case r.slots <- struct{}{}:
	}
	name, ok := r.next()
	if !ok {
		<-r.slots
		return false
	}
	r.queue.Add(name)
	return true
}
