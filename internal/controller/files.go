// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// filesSettleAfter is how long after a change of leader gates may still be missing from files that
// the previous leader had: each kubelet updates a mounted ConfigMap up to two minutes after a change.
// If such gates counted as deleted, they would open on all nodes, and stay open on those that exist.
const filesSettleAfter = 3 * time.Minute

// takeover is how the leader that took over deals with gates that it may not know yet.
type takeover struct {
	mu sync.Mutex // held while gates are compiled
	// settled is the time from which missing gates count as deleted.
	settled time.Time
}

// settleFiles makes a list of gates from files incomplete for filesSettleAfter.
func (c *Controller) settleFiles() {
	if c.gateFeed.GatesFrom() == v1alpha1.SourceFiles {
		c.settle(filesSettleAfter)
	}
}

// settle makes the list of gates incomplete for some time. The leader waits until gates have been
// compiled with it.
func (c *Controller) settle(after time.Duration) {
	c.takeover.mu.Lock()
	defer c.takeover.mu.Unlock()
	c.takeover.settled = c.clock.Now().Add(after)
	c.log.Info("took over, gates that are missing do not count as deleted yet", "until", c.takeover.settled)
	c.compiled.Store(false)
	c.GatesChanged()
}

// settledSince reports whether gates have begun to count as deleted since a time.
func (c *Controller) settledSince(t time.Time) bool {
	c.takeover.mu.Lock()
	defer c.takeover.mu.Unlock()
	return t.Before(c.takeover.settled) && !c.clock.Now().Before(c.takeover.settled)
}
