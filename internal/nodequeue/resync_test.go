// SPDX-License-Identifier: Apache-2.0

package nodequeue

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

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

// runResyncer runs a resyncer until the test ends.
func runResyncer(t *testing.T, atOnce int) *Resyncer {
	s := NewResyncer(newTestQueue(t), atOnce)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return s
}

// take processes one node, like a worker.
func take(s *Resyncer) string {
	name, _ := s.queue.Get()
	if s.Started(name) {
		s.Finished()
	}
	s.queue.Done(name)
	return name
}

func TestNewWorkDoesNotWaitBehindASweep(t *testing.T) {
	const atOnce = 4
	s := runResyncer(t, atOnce)
	s.Add(names(1000))
	for range 10 {
		take(s)
	}
	s.queue.Add("new")
	for i := 0; take(s) != "new"; i++ {
		if i > atOnce {
			t.Fatalf("new work waited behind %d nodes of a resync, want at most %d", i, atOnce)
		}
	}
}

// Every node is reconciled even if gates change faster than the fleet can be.
func TestRepeatedResyncsReachEveryNode(t *testing.T) {
	s := runResyncer(t, 2)
	const fleet = 50
	seen := map[string]bool{}
	for range 3 * fleet {
		s.Add(names(fleet))
		seen[take(s)] = true
	}
	if len(seen) != fleet {
		t.Errorf("%d of %d nodes were processed in three times as many steps", len(seen), fleet)
	}
}

// The end of a resync is signaled when its last node has been processed, and not before.
func TestResyncSignalsItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := runResyncer(t, 2)
		isDone := func() bool {
			synctest.Wait()
			select {
			case <-s.Done():
				return true
			default:
				return false
			}
		}
		for _, fleet := range []int{0, 1, 5} {
			s.Add(names(fleet))
			for i := range fleet {
				name, _ := s.queue.Get()
				s.Started(name)
				if isDone() {
					t.Errorf("with %d nodes, done while node %d is being processed", fleet, i)
				}
				s.Finished()
				s.queue.Done(name)
			}
			if !isDone() {
				t.Errorf("with %d nodes, not done at the end", fleet)
			}
		}
	})
}

func TestResyncLosesNothingAndLeaksNoSlot(t *testing.T) {
	const fleet, workers = 300, 8
	s := runResyncer(t, 4)
	var mu sync.Mutex
	last := map[string]int{} // the last round in which a node was processed
	round := 0
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for {
				name, shutdown := s.queue.Get()
				if shutdown {
					return
				}
				mine := s.Started(name)
				mu.Lock()
				last[name] = round
				mu.Unlock()
				if mine {
					s.Finished()
				}
				s.queue.Done(name)
			}
		})
	}
	for i := range 200 {
		mu.Lock()
		round = i
		mu.Unlock()
		s.Add(names(fleet))
		s.queue.Add(fmt.Sprintf("n%04d", i)) // also added by others
	}
	everyNode := func() bool { // has been processed in the last round
		mu.Lock()
		defer mu.Unlock()
		for _, name := range names(fleet) {
			if last[name] != round {
				return false
			}
		}
		return true
	}
	for !everyNode() || !s.IsIdle() {
		s.queue.Add("other")
		runtime.Gosched()
	}
	s.queue.ShutDown()
	running.Wait()
	// The resyncer may hold one slot while it finds that no node is pending.
	if len(s.slots) > 1 {
		t.Errorf("%d slots are not freed", len(s.slots))
	}
}
