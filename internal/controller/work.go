// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/write"
)

// Nodes that cannot be written are tried again after retryFirst, then ever
// less often, down to once in retryMax. What the API server denies it denies
// until somebody changes something, so that there is less hurry.
const (
	retryFirst       = 5 * time.Millisecond
	retryMax         = time.Minute
	deniedRetryFirst = 2 * time.Second
)

// writeTimeout bounds one decision's write, and stopTimeout what is left of it
// when the process is told to stop.
const (
	writeTimeout = 15 * time.Second
	stopTimeout  = 3 * time.Second
)

// conflictsLogged is how many times in a row a node must have changed under our
// workers before that is worth a word.
const conflictsLogged = 10

// work processes nodes from the queue, one at a time, until it is shut down.
func (c *Controller) work(ctx context.Context, state *workerState) {
	for {
		name, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		state.start(name)
		c.workOn(ctx, name)
		state.finish()
		c.queue.Done(name)
	}
}

func (c *Controller) workOn(ctx context.Context, name string) {
	c.liveness.reset()
	if name == livenessKey {
		return
	}
	if c.resync.started(name) {
		c.partials.addChange(name, gate.Everything())
	}
	if ctx.Err() != nil {
		return // a queue that was shut down goes on until it is empty
	}
	ctx, cancel := drainContext(ctx)
	defer cancel()
	after, err := c.reconcile(ctx, name)
	if err != nil {
		c.retry(name, err)
		return
	}
	c.queue.Forget(name)
	if c.memory.succeeded(name) {
		c.log.Info("node can be written again", "node", name)
	}
	if after > 0 {
		c.queue.AddAfter(name, after)
	}
}

// finishing returns a context for what is in hand, which is finished when the
// process is told to stop.
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
	case errors.Is(err, write.ErrConflict): // somebody else was faster: decide again
		c.order.markChanged(name)
		if c.queue.NumRequeues(name) == conflictsLogged {
			c.log.Info("node keeps changing while it is written, retrying", "node", name)
		}
	case errors.Is(err, write.ErrDenied):
		before := c.memory.failed(name, true)
		if before == 0 {
			c.log.Error(err, "node may not be written, retrying", "node", name)
		}
		c.queue.AddAfter(name, wait.Jitter(min(deniedRetryFirst<<min(before, 10), retryMax), 0.2))
		return
	default:
		if c.memory.failed(name, false) == 0 {
			c.log.Error(err, "cannot write node, retrying", "node", name)
		}
	}
	c.queue.AddRateLimited(name)
}
