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
type sweep struct {
	queue workqueue.TypedRateLimitingInterface[string]
	// room is taken by every name that the sweep put into the queue.
	room chan struct{}

	mu      sync.Mutex
	pending []string
	queued  map[string]bool
	wake    chan struct{}
}

func newSweep(queue workqueue.TypedRateLimitingInterface[string], atOnce int) *sweep {
	return &sweep{
		queue: queue, room: make(chan struct{}, atOnce),
		queued: make(map[string]bool), wake: make(chan struct{}, 1),
	}
}

// all has each of these nodes looked at from now on. Nodes that wait already
// keep their places, so that every node has its turn however often this is
// called.
func (s *sweep) all(names []string) {
	s.mu.Lock()
	waiting := make(map[string]bool, len(s.pending))
	for _, name := range s.pending {
		waiting[name] = true
	}
	for _, name := range names {
		if !waiting[name] {
			waiting[name] = true
			s.pending = append(s.pending, name)
		}
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// next takes the next node that waits and that is not in the queue already: a
// node is looked at in the light of what is known when a worker takes it up.
func (s *sweep) next() (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pending) > 0 {
		name := s.pending[0]
		s.pending = s.pending[1:]
		if !s.queued[name] {
			s.queued[name] = true
			return name, true
		}
	}
	s.pending = nil
	return "", false
}

// done makes room when a worker takes up a node that the sweep had queued, and tells
// whether it had. It comes before the worker looks at anything.
func (s *sweep) done(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.queued[name] {
		return false
	}
	delete(s.queued, name)
	<-s.room
	return true
}

// run feeds the queue until the context ends.
func (s *sweep) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		for s.feedOne(ctx) {
		}
	}
}

// feedOne waits for room and puts one node into the queue. It is false when no
// node waits, or the context has ended.
func (s *sweep) feedOne(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case s.room <- struct{}{}:
	}
	name, ok := s.next()
	if !ok {
		<-s.room
		return false
	}
	s.queue.Add(name)
	return true
}
