// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"github.com/nodegate/nodegate/internal/telemetry"
	"sync/atomic"
	"time"
)

// A leader that cannot do its work must not go on leading: the lease is renewed all the
// same, and no other replica takes over. Start ends with an error then, and with it the
// process, which gives the lease back.

// The workers are looked at every watchdogInterval. One that is found with the same node in
// hand at stuckChecks of these looks, which are two minutes, is stuck: what it does for a
// node ends within writeTimeout. Looks are counted rather than time, so that a process
// that was paused is not taken for one that hangs.
const (
	watchdogInterval = 10 * time.Second
	stuckChecks      = 12
)

// hand is what one worker has in hand.
type workerState struct {
	// steps is odd while the worker works on a node.
	steps atomic.Uint64
	node  atomic.Value
	// seen is what steps was at the last of so many looks at which it was the same.
	lastSteps uint64
	unchanged int
}

func (w *workerState) start(node string) {
	w.node.Store(node)
	w.steps.Add(1)
}

func (w *workerState) finish() { w.steps.Add(1) }

// stuck looks at the worker once more, and reports whether it was found with the same node
// in hand at stuckChecks looks in a row. The watchdog alone calls it.
func (w *workerState) stuck() bool {
	steps := w.steps.Load()
	if steps%2 == 0 || steps != w.lastSteps {
		w.lastSteps, w.unchanged = steps, 0
		return false
	}
	w.unchanged++
	return w.unchanged >= stuckChecks
}

// watchdog calls giveUp with the cause if a worker is stuck, or if writes no longer
// receive a response.
func (c *Controller) watchdog(ctx context.Context, workers []workerState, giveUp func(error)) {
	ticker := c.clock.NewTicker(watchdogInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if err := c.responses.check(c.clock.Now()); err != nil && c.options.GiveUpLease {
			giveUp(err)
		}
		for i := range workers {
			if workers[i].stuck() {
				giveUp(fmt.Errorf("a worker has been stuck at node %s for %s", workers[i].node.Load(), stuckChecks*watchdogInterval))
			}
		}
	}
}

// noResponseTimeout is how long a leader may go without being able to write. It is longer
// than a Lease: what keeps this replica from writing keeps others, too, more often than
// not, and it is no use to have them take steps.
const noResponseTimeout = 15 * time.Second

// writes tracks whether patches of nodes receive responses. Times are Unix nanoseconds.
type responses struct {
	// answered is true when a patch has received a response since this replica became the
	// leader.
	received atomic.Bool
	// failing is since when none has been, by the time at which the first of those that
	// were not was sent; 0 while they are.
	failing atomic.Int64
}

// note takes note of what became of a patch that was sent at a time. The API server
// answers also by refusing it.
func (r *responses) record(sent time.Time, outcome string) {
	if outcome != telemetry.PatchError {
		r.received.Store(true)
		r.failing.Store(0)
		return
	}
	r.failing.CompareAndSwap(0, sent.UnixNano())
}

// lost returns why this replica should not go on leading, if so. One whose patches have
// never been answered goes on: the one that led before it fared no better, and replicas
// would take steps in giving up.
func (r *responses) check(now time.Time) error {
	failing := r.failing.Load()
	if since := time.Unix(0, failing); failing != 0 && r.received.Load() && now.Sub(since) >= noResponseTimeout {
		return fmt.Errorf("no patch of a node has been answered since %s: another replica may do better", since.UTC().Format(time.RFC3339))
	}
	return nil
}
