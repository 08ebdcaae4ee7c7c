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
// hand at stuckLooks of these looks, which are two minutes, is stuck: what it does for a
// node ends within writeTimeout. Looks are counted rather than time, so that a process
// that was paused is not taken for one that hangs.
const (
	watchdogInterval = 10 * time.Second
	stuckLooks       = 12
)

// hand is what one worker has in hand.
type hand struct {
	// turns is odd while the worker works on a node.
	turns atomic.Uint64
	node  atomic.Value
	// seen is what turns was at the last of so many looks at which it was the same.
	seen  uint64
	looks int
}

func (h *hand) take(node string) {
	h.node.Store(node)
	h.turns.Add(1)
}

func (h *hand) done() { h.turns.Add(1) }

// stuck looks at the worker once more, and reports whether it was found with the same node
// in hand at stuckLooks looks in a row. The watchdog alone calls it.
func (h *hand) stuck() bool {
	turns := h.turns.Load()
	if turns%2 == 0 || turns != h.seen {
		h.seen, h.looks = turns, 0
		return false
	}
	h.looks++
	return h.looks >= stuckLooks
}

// watchdog calls giveUp with the cause if a worker is stuck, or if writes no longer
// receive a response.
func (c *Controller) watchdog(ctx context.Context, hands []hand, giveUp func(error)) {
	ticker := c.clock.NewTicker(watchdogInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if err := c.writes.lost(c.clock.Now()); err != nil && c.options.GiveUpLease {
			giveUp(err)
		}
		for i := range hands {
			if hands[i].stuck() {
				giveUp(fmt.Errorf("a worker has been stuck at node %s for %s", hands[i].node.Load(), stuckLooks*watchdogInterval))
			}
		}
	}
}

// writePatience is how long a leader may go without being able to write. It is longer
// than a Lease: what keeps this replica from writing keeps others, too, more often than
// not, and it is no use to have them take turns.
const writePatience = 15 * time.Second

// writes tracks whether patches of nodes receive responses. Times are Unix nanoseconds.
type writes struct {
	// answered is true when a patch has received a response since this replica became the
	// leader.
	answered atomic.Bool
	// failing is since when none has been, by the time at which the first of those that
	// were not was sent; 0 while they are.
	failing atomic.Int64
}

// note takes note of what became of a patch that was sent at a time. The API server
// answers also by refusing it.
func (w *writes) note(sent time.Time, outcome string) {
	if outcome != telemetry.PatchError {
		w.answered.Store(true)
		w.failing.Store(0)
		return
	}
	w.failing.CompareAndSwap(0, sent.UnixNano())
}

// lost returns why this replica should not go on leading, if so. One whose patches have
// never been answered goes on: the one that led before it fared no better, and replicas
// would take turns in giving up.
func (w *writes) lost(now time.Time) error {
	failing := w.failing.Load()
	if since := time.Unix(0, failing); failing != 0 && w.answered.Load() && now.Sub(since) >= writePatience {
		return fmt.Errorf("no patch of a node has been answered since %s: another replica may do better", since.UTC().Format(time.RFC3339))
	}
	return nil
}
