// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nodegate/nodegate/internal/gate"
)

// Existing nodes that need nothing but a record are written to at this rate.
const (
	paceRate  = 10 // a second
	paceBurst = 10
)

// throttledRetry is how long a node waits before it asks for budget again that
// does not stand in line for it, and at most twice that: nodes that were refused
// together do not come together. Who stands in line does not ask, but is called.
const throttledRetry = 5 * time.Second

// allocator grants what a single node's decision cannot know: whether so many
// nodes are closed already that one more must wait. There is one in a process.
// A slot is held from the grant until the tally counts the node, or the write
// is known to have failed.
type allocator struct {
	tally *tally

	mu   sync.Mutex
	pace *rate.Limiter
	// turns are when nodes that were told to wait for the pace may be written.
	turns map[string]time.Time
}

func newAllocator(t *tally) *allocator {
	return &allocator{tally: t, pace: rate.NewLimiter(paceRate, paceBurst), turns: make(map[string]time.Time)}
}

// grant answers a verdict's want. Where it refuses, the duration says when to
// ask again; it is zero for who stands in line.
func (a *allocator) grant(v *gate.Verdict, set *gateSet, n *gate.Node, now time.Time) (bool, time.Duration) {
	switch {
	case v.Wants == gate.WantPace:
		delay := a.turn(n.Name, now)
		return delay == 0, delay
	case a.tally.reserve(slot{v.Gate, n.Zone()}, n.Name, now):
		return true, 0
	case set.queues(v):
		return false, 0
	}
	return false, a.again(v.Gate)
}

// again is how long to wait before asking for budget that nobody stands in line
// for.
func (a *allocator) again(gateName string) time.Duration {
	if !a.tally.isSettled(gateName) {
		return wait.Jitter(settleInterval, 1) // soon it is known
	}
	return wait.Jitter(throttledRetry, 1)
}

// delay is how long there is no point in looking whether a node is to be closed.
// Zero means that there is budget for it now.
func (a *allocator) delay(s slot, node string) time.Duration {
	if a.tally.admits(s, node) {
		return 0
	}
	return a.again(s.gate)
}

// turn returns how long a node has to wait for its turn. A node that waits
// keeps its turn: if all asked anew, the queue would be full of them.
func (a *allocator) turn(node string, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, waits := a.turns[node]
	if !waits {
		at = now.Add(a.pace.ReserveN(now, 1).DelayFrom(now))
	}
	if delay := at.Sub(now); delay > 0 {
		a.turns[node] = at
		return delay
	}
	delete(a.turns, node)
	return 0
}

// forget gives up the turn of a node that is gone.
func (a *allocator) forget(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.turns, node)
}
