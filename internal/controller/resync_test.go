// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"k8s.io/client-go/util/workqueue"
)

func newTestQueue(t *testing.T) workqueue.TypedRateLimitingInterface[string] {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	t.Cleanup(q.ShutDown)
	return q
}

func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("n%04d", i)
	}
	return all
}

// runResyncer runs a sweep of so many at once until the test ends.
func runResyncer(t *testing.T, atOnce int) *resyncer {
	s := newResyncer(newTestQueue(t), atOnce)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return s
}

// take does what a worker does.
func take(s *resyncer) string {
	name, _ := s.queue.Get()
	s.started(name)
	s.queue.Done(name)
	return name
}

func TestNewWorkDoesNotWaitBehindASweep(t *testing.T) {
	const atOnce = 4
	s := runResyncer(t, atOnce)
	s.add(names(1000))
	for range 10 {
		take(s)
	}
	s.queue.Add("new")
	for i := 0; take(s) != "new"; i++ {
		if i > atOnce {
			t.Fatalf("new work waited behind %d nodes of a sweep, want at most %d", i, atOnce)
		}
	}
}

// Gates may change faster than the fleet can be looked at.
func TestRepeatedResyncsReachEveryNode(t *testing.T) {
	s := runResyncer(t, 2)
	const fleet = 50
	seen := map[string]bool{}
	for range 3 * fleet {
		s.add(names(fleet))
		seen[take(s)] = true
	}
	if len(seen) != fleet {
		t.Errorf("%d of %d nodes were looked at in three times as many turns", len(seen), fleet)
	}
}

func TestResyncLosesNothingAndLeaksNoSlot(t *testing.T) {
	const fleet, workers = 300, 8
	s := runResyncer(t, 4)
	var mu sync.Mutex
	last := map[string]int{} // the newest round in which a node was taken up
	round := 0
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for {
				name, shutdown := s.queue.Get()
				if shutdown {
					return
				}
				s.started(name)
				mu.Lock()
				last[name] = round
				mu.Unlock()
				s.queue.Done(name)
			}
		})
	}
	for i := range 200 {
		mu.Lock()
		round = i
		mu.Unlock()
		s.add(names(fleet))
		s.queue.Add(fmt.Sprintf("n%04d", i)) // also queued by others
	}
	everyNode := func() bool { // has been taken up after the last start
		mu.Lock()
		defer mu.Unlock()
		for _, name := range names(fleet) {
			if last[name] != round {
				return false
			}
		}
		return true
	}
	drained := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.queued) == 0 && len(s.pending) == 0
	}
	for !everyNode() || !drained() {
		s.queue.Add("other")
		runtime.Gosched()
	}
	s.queue.ShutDown()
	running.Wait()
	// The sweep itself may be holding one place while it finds that none waits.
	if len(s.slots) > 1 {
		t.Errorf("%d places are taken by nothing", len(s.slots))
	}
}
