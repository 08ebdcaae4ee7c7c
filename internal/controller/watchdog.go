// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nodegate/nodegate/internal/kube/write"
)

// The Lease is renewed even if its holder cannot do its work, so no other replica would
// take over. Start then returns an error, which ends the process and releases the Lease.

// Workers are checked every watchdogInterval. A worker is stuck if stuckChecks checks in a
// row, which take two minutes, find it at the same node: everything that it does for a
// node ends within writeTimeout. Checks are counted, instead of time, so that a process
// that was paused is not considered stuck.
const (
	watchdogInterval = 10 * time.Second
	stuckChecks      = 12
)

// workerState is the progress of one worker.
type workerState struct {
	// steps is odd while the worker processes a node.
	steps atomic.Uint64
	node  atomic.Value
	// lastSteps is the value of steps at the last check, and unchanged the number of
	// checks in a row that found the same odd value.
	lastSteps uint64
	unchanged int
}

func (w *workerState) start(node string) {
	w.node.Store(node)
	w.steps.Add(1)
}

func (w *workerState) finish() { w.steps.Add(1) }

// stuck performs a check, and reports whether the worker is stuck. Only the watchdog may
// call it.
func (w *workerState) stuck() bool {
	steps := w.steps.Load()
	if steps%2 == 0 || steps != w.lastSteps {
		w.lastSteps, w.unchanged = steps, 0
		return false
	}
	w.unchanged++
	return w.unchanged >= stuckChecks
}

// watchdog returns nil when the context ends, for any cause, and an error as soon as a worker is
// stuck, or writes no longer receive a response.
func (c *Controller) watchdog(ctx context.Context, workers []workerState) error {
	ticker := c.clock.NewTicker(watchdogInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		if err := c.responses.check(); err != nil && c.options.GiveUpLease {
			return err
		}
		for i := range workers {
			if workers[i].stuck() {
				return fmt.Errorf("a worker has been stuck at node %s for %s", workers[i].node.Load(), stuckChecks*watchdogInterval)
			}
		}
	}
}

// noResponseTimeout is how long a leader may go without a response to a patch. It is
// longer than a Lease, because the cause usually affects other replicas, too, and they
// would only take turns.
const noResponseTimeout = 15 * time.Second

// responses tracks whether patches of nodes receive responses.
type responses struct {
	mu sync.Mutex
	// last is the time of the last response since this replica became the leader; zero if
	// there was none.
	last time.Time
	// unanswered is the time since which no patch has been answered, although some were sent. It
	// is zero until a patch fails without a response after the last response.
	unanswered time.Time
	// failed is the time at which the last of these patches failed.
	failed time.Time
}

// record records the outcome of a patch that was sent at a time. Any answer of the API server is
// a response, also a rejection, or an error of a webhook: it may concern only this node. If
// nothing could be sent, the outcome does not matter.
func (r *responses) record(sent, now time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case errors.Is(err, write.ErrUnsent):
		return
	case !errors.Is(err, write.ErrUnanswered):
		r.last, r.unanswered = now, time.Time{}
		return
	case r.unanswered.IsZero() && sent.Before(r.last):
		r.unanswered = r.last // other patches have been answered since
	case r.unanswered.IsZero():
		r.unanswered = sent
	}
	r.failed = now
}

// check returns an error if this replica should give up the Lease. It does not if the answer of
// one patch was lost and nothing remains to be written: the API server may well answer. A leader
// whose patches have never received a response continues: its predecessor had the same problem,
// and the replicas would take turns without success.
func (r *responses) check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last.IsZero() || r.unanswered.IsZero() || r.failed.Sub(r.unanswered) < noResponseTimeout {
		return nil
	}
	return fmt.Errorf("no patch of a node has been answered since %s: another replica may be able to write", r.unanswered.UTC().Format(time.RFC3339))
}
