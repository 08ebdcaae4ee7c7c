// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
)

// resyncer enqueues many nodes without delaying new work. It adds them to the queue a few
// at a time, so that other nodes wait behind these few only.
type resyncer struct {
	queue workqueue.TypedRateLimitingInterface[string]
	// slots contains one element for each queued node that the resyncer has added.
	slots chan struct{}

	mu sync.Mutex
	// pending contains the nodes to enqueue, in order, and waiting the same as a set.
	pending []string
	waiting map[string]bool
	queued  map[string]bool
	// working counts the nodes that workers have started and not finished.
	working int
	wake    chan struct{}
	// done signals that all nodes that were added have been processed.
	done chan struct{}
}

func newResyncer(queue workqueue.TypedRateLimitingInterface[string], atOnce int) *resyncer {
	return &resyncer{
		queue: queue, slots: make(chan struct{}, atOnce),
		waiting: make(map[string]bool), queued: make(map[string]bool), wake: make(chan struct{}, 1),
		done: make(chan struct{}, 1),
	}
}

// add adds nodes to those that are pending. Pending nodes keep their positions, so every
// node is enqueued eventually, however often add is called.
func (r *resyncer) add(names []string) {
	r.mu.Lock()
	for _, name := range names {
		if !r.waiting[name] {
			r.waiting[name] = true
			r.pending = append(r.pending, name)
		}
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// next removes and returns the next pending node. It skips nodes that the resyncer has
// already enqueued: a worker will read their current facts.
func (r *resyncer) next() (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.pending) > 0 {
		name := r.pending[0]
		r.pending = r.pending[1:]
		delete(r.waiting, name)
		if !r.queued[name] {
			r.queued[name] = true
			return name, true
		}
	}
	r.pending, r.waiting = nil, make(map[string]bool) // emptied maps keep their memory
	r.signalIfDone()
	return "", false
}

// signalIfDone is called whenever there is less to do. The caller must hold the lock.
func (r *resyncer) signalIfDone() {
	if len(r.pending)+len(r.queued)+r.working > 0 {
		return
	}
	select {
	case r.done <- struct{}{}:
	default:
	}
}

// started frees a node's slot, and reports whether the resyncer had enqueued the node. A
// worker must call it before it gathers facts, and then, if it returns true, finished.
func (r *resyncer) started(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.queued[name] {
		return false
	}
	delete(r.queued, name)
	r.working++
	<-r.slots
	return true
}

// finished records that a worker has processed a node that the resyncer had enqueued.
func (r *resyncer) finished() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.working--
	r.signalIfDone()
}

// run enqueues pending nodes until the context ends.
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

// enqueueOne waits for a slot and enqueues one node. It returns false if no node is
// pending, or the context has ended.
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
