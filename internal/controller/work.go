// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/write"
	"github.com/nodegate/nodegate/internal/nodequeue"
)

// A failed write of a node is retried after retryFirst, then with exponential backoff up
// to retryMax. A denied write is first retried after deniedRetryFirst, because it is
// denied until a user changes something.
const (
	retryFirst       = 5 * time.Millisecond
	retryMax         = time.Minute
	deniedRetryFirst = 2 * time.Second
)

// writeTimeout limits the write of one decision, and stopTimeout the rest of it when the
// process stops.
const (
	writeTimeout = 15 * time.Second
	stopTimeout  = 3 * time.Second
)

// conflictsLogged is the number of conflicts in a row after which they are logged.
const conflictsLogged = 10

// work processes nodes from the queue, one at a time, until it is shut down.
func (c *Controller) work(ctx context.Context, state *nodequeue.Worker) {
	for {
		name, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		state.Start(name)
		c.workOn(ctx, name)
		state.Finish()
		c.queue.Done(name)
	}
}

func (c *Controller) workOn(ctx context.Context, name string) {
	c.liveness.reset()
	if name == livenessKey {
		return
	}
	if c.resync.Started(name) {
		defer c.resync.Finished()
		c.nodes.addChange(name, gate.Everything())
	}
	if ctx.Err() != nil {
		return // a queue that is shut down still returns its remaining items
	}
	ctx, cancel := drainContext(ctx)
	defer cancel()
	after, err := c.reconcile(ctx, name)
	if err != nil {
		c.retry(name, err)
		return
	}
	c.queue.Forget(name)
	if after > 0 {
		c.queue.AddAfter(name, after)
	}
}

// drainContext returns a context for work in progress. It outlives the given context by
// stopTimeout.
func drainContext(ctx context.Context) (context.Context, context.CancelFunc) {
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	release := context.AfterFunc(ctx, func() { time.AfterFunc(stopTimeout, cancel) })
	return work, func() {
		release()
		cancel()
	}
}

// retry schedules a retry for a node whose processing failed. It logs the first of
// consecutive failures.
func (c *Controller) retry(name string, err error) {
	switch {
	case errors.Is(err, write.ErrConflict): // another writer was faster: decide again
		c.order.MarkChanged(name)
		if c.queue.NumRequeues(name) == conflictsLogged {
			c.log.Info("node has changed before each of several writes, retrying", "node", name)
		}
	case errors.Is(err, write.ErrDenied):
		before := c.nodes.failed(name, true, c.clock.Now())
		if before == 0 {
			c.log.Error(err, "node write denied, retrying", "node", name)
		}
		c.queue.AddAfter(name, wait.Jitter(min(deniedRetryFirst<<min(before, 10), retryMax), 0.2))
		return
	default:
		if c.nodes.failed(name, false, c.clock.Now()) == 0 {
			c.log.Error(err, "cannot write node, retrying", "node", name)
		}
	}
	c.queue.AddRateLimited(name)
}

// noteSuccess resets the count of failures of a node after a decision was carried out in full. If
// nothing had to be written, it does so only if everything was known.
func (c *Controller) noteSuccess(facts *gate.Facts, d *gate.Decision) {
	wrote := d.Changes || len(d.Conditions) > 0
	unknown := facts.Loading || slices.ContainsFunc(d.Verdicts, func(v gate.Verdict) bool {
		return slices.ContainsFunc(v.Readings, func(r gate.Reading) bool { return r.State == gate.Unknown })
	})
	if (wrote || !unknown) && c.nodes.succeeded(facts.Node.Name) && wrote {
		c.log.Info("node can be written again", "node", facts.Node.Name)
	}
}
