// SPDX-License-Identifier: Apache-2.0

package nodequeue

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
)

// Resyncer enqueues many nodes without delaying new work. It adds them to the queue a few
// at a time, so that other nodes wait behind these few only.
type Resyncer struct {
	queue workqueue.TypedRateLimitingInterface[string]
	// slots contains one element for each queued node that the Resyncer has added.
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

// NewResyncer returns a Resyncer that keeps at most atOnce nodes in the queue.
func NewResyncer(queue workqueue.TypedRateLimitingInterface[string], atOnce int) *Resyncer {
	return &Resyncer{
		queue: queue, slots: make(chan struct{}, atOnce),
		waiting: make(map[string]bool), queued: make(map[string]bool), wake: make(chan struct{}, 1),
		done: make(chan struct{}, 1),
	}
}

// Add adds nodes to those that are pending. Pending nodes keep their positions, so every
// node is enqueued eventually, however often Add is called.
func (r *Resyncer) Add(names []string) {
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

// next removes and returns the next pending node. It skips nodes that the Resyncer has
// already enqueued: a worker will read their current facts.
func (r *Resyncer) next() (string, bool) {
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

// Done returns a channel that receives when all nodes that were added have been processed.
func (r *Resyncer) Done() <-chan struct{} { return r.done }

// IsIdle reports whether there is nothing to do.
func (r *Resyncer) IsIdle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isDone()
}

func (r *Resyncer) isDone() bool { return len(r.pending)+len(r.queued)+r.working == 0 }

// signalIfDone is called whenever there is less to do. The caller must hold the lock.
func (r *Resyncer) signalIfDone() {
	if !r.isDone() {
		return
	}
	select {
	case r.done <- struct{}{}:
	default:
	}
}

// Started frees a node's slot, and reports whether the Resyncer had enqueued the node. A
// worker must call it before it gathers facts, and then, if it returns true, Finished.
func (r *Resyncer) Started(name string) bool {
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

// Finished records that a worker has processed a node that the Resyncer had enqueued.
func (r *Resyncer) Finished() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.working--
	r.signalIfDone()
}

// Run enqueues pending nodes until the context ends.
func (r *Resyncer) Run(ctx context.Context) {
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
func (r *Resyncer) enqueueOne(ctx context.Context) bool {
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
