// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"sync/atomic"
	"time"
)

// livenessKey goes through the queue like a node's name, and shows that the loop
// turns where there is nothing else to do: no node has an empty name.
const livenessKey = ""

// livenessTimeout is how long no worker may take anything up. A worker that
// hangs is not enough for that, nor is a long queue, nor an API server that
// answers nothing, for every write ends within writeTimeout: only all workers
// hanging is.
const livenessTimeout = 2 * time.Minute

// pulse knows since when the loop has been asked to turn, and has not.
type liveness struct {
	requested atomic.Int64 // Unix nanoseconds; 0 while nothing is asked
}

// beat tells that a worker has taken something up.
func (l *liveness) reset() { l.requested.Store(0) }

// Live is a liveness check. It adds livenessKey to the queue, and fails if it has been
// there for too long. In a replica that is not the leader there are no workers, and it
// succeeds.
func (c *Controller) Live() error {
	if !c.leading.Load() {
		return nil
	}
	now := c.clock.Now()
	if c.liveness.requested.CompareAndSwap(0, now.UnixNano()) {
		c.queue.Add(livenessKey)
		return nil
	}
	if requested := c.liveness.requested.Load(); requested != 0 {
		if waited := now.Sub(time.Unix(0, requested)); waited > livenessTimeout {
			return fmt.Errorf("the loop has not turned for %s", waited.Round(time.Second))
		}
	}
	return nil
}
