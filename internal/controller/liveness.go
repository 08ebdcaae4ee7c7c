// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"sync/atomic"
	"time"
)

// livenessKey is enqueued like the name of a node. It shows that workers process the
// queue even if no node is queued. No node has an empty name.
const livenessKey = ""

// livenessTimeout is how long all workers may go without taking an item from the queue.
// Every write ends within writeTimeout, so this takes longer only if all workers hang. One
// hanging worker, a long queue, or an API server that does not respond is not enough.
const livenessTimeout = 2 * time.Minute

// liveness records since when livenessKey has been queued while workers took no item.
type liveness struct {
	requested atomic.Int64 // Unix nanoseconds; 0 while the key is not queued
}

// reset must be called when a worker takes an item.
func (l *liveness) reset() { l.requested.Store(0) }

// Live is a liveness check. It enqueues livenessKey, and fails if no worker has taken an
// item for too long since then. A replica that is not the leader has no workers, and the
// check succeeds.
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
		if now.Sub(time.Unix(0, requested)) > livenessTimeout {
			return fmt.Errorf("no worker has processed a node for more than %s", livenessTimeout)
		}
	}
	return nil
}
