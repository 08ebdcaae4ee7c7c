// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/nodegate/nodegate/internal/bypass"
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
)

// Start runs the leader until the context ends, and then completes the work in progress.
// If the leader cannot continue (see watchdog), Start returns an error and abandons work
// that hangs.
func (c *Controller) Start(ctx context.Context) error {
	defer c.queue.ShutDown()
	if !c.awaitFeeds(ctx) || !c.catchUp(ctx) {
		return nil
	}
	c.bypass = bypass.New(bypass.Options{
		Pods: c.pods, Gates: c.set.Load, Facts: c.nodeFeed.Facts, Gone: c.nodeFeed.Gone,
		MayList:  func() bool { return !c.permissions.missing(listPods) },
		MayEvict: func() bool { return !c.permissions.missing(evictPods) },
		Events:   c.events, Metrics: c.metrics, Log: c.log, Clock: c.clock,
	})
	c.ledger.FollowRewinds(c.nodeFeed.Rewinds)
	c.leading.Store(true)
	defer c.leading.Store(false)
	c.responses = responses{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	workers := make([]workerState, c.options.Workers)
	for i := range workers {
		running.Go(func() { c.work(ctx, &workers[i]) })
	}
	running.Go(func() { c.resync.Run(ctx) })
	running.Go(func() { c.runBudget(ctx) })
	running.Go(func() { c.newReporter().run(ctx, c.counted, c.birth.AllProved(), c.permissions.reviewed) })
	running.Go(func() { c.birth.Run(ctx, c.clock, &c.set) })
	running.Go(func() {
		c.guards.Run(ctx, c.clock, c.nodeFeed.NodeNames, func() []string { return c.set.Load().Objects() })
	})
	running.Go(func() { c.watchPermissions(ctx) })
	running.Go(func() { c.inspector.Run(ctx) })
	running.Go(func() { c.bypass.Run(ctx) })
	running.Go(func() { c.events.Run(ctx) })
	c.resyncAll()
	err := c.watchdog(ctx, workers)
	c.queue.ShutDown()
	if err != nil {
		return err
	}
	running.Wait()
	return nil
}

// takeOver is called before Start unless this is the first leader. For a while, the number of
// closed nodes is unknown, and no budget is granted:
//
//   - What the previous leader wrote last may not have been observed yet, also if it released the
//     Lease.
//   - It may have abandoned writes that still take effect.
//   - It may have been paused, and close nodes under a budget until it notices (see
//     fleet.Ledger.Heartbeat).
//
// Nor is it known whether a gate that is missing from files was deleted.
func (c *Controller) takeOver() {
	c.settleFiles()
	c.delayBudgets(fleet.PausedAfter + fleet.CountInterval)
}

// delayBudgets makes the controller grant no budget for some time.
func (c *Controller) delayBudgets(by time.Duration) {
	c.budgetsFrom = gate.Latest(c.budgetsFrom, c.clock.Now().Add(by))
}

// caughtUpAfter is the time without budget after nodes were listed in an earlier state. Either the
// watch delivers within it what has happened since, or the state was restored from a backup.
const caughtUpAfter = 30 * time.Second

// runBudget enables the budget when the state of the whole fleet is known. Then it
// enqueues queued nodes, as many as the budget allows, through the resyncer, so that they
// do not delay new work.
func (c *Controller) runBudget(ctx context.Context) {
	ticker := c.clock.NewTicker(fleet.CountInterval)
	defer ticker.Stop()
	for {
		if c.ledger.Heartbeat(c.clock.Now()) {
			c.log.Info("process was paused, reconciling all nodes before granting budget")
			// Another replica may lead, and what it has written may not have been observed yet.
			c.delayBudgets(c.options.LeaseDuration + fleet.CountInterval)
			c.resyncAll()
		}
		if c.ledger.NoteRewind() {
			c.log.Info("nodes were listed in an earlier state, reconciling all of them before granting budget")
			c.delayBudgets(caughtUpAfter)
			c.resyncAll()
		}
		select {
		case <-ctx.Done():
			return
		case <-c.resync.Done():
			c.countFleet()
		case <-ticker.C():
			c.countFleet()
			if !c.mayCount() {
				continue
			}
			if due := append(c.ledger.Due(), c.groups.Outdated()...); len(due) > 0 { // waking for none costs idle CPU
				c.resync.Add(due)
			}
		}
	}
}

// mayCount reports whether the nodes that are known are the whole fleet, and only this
// replica closes them.
func (c *Controller) mayCount() bool {
	return c.nodeFeed.NodesSynced() && !c.clock.Now().Before(c.budgetsFrom)
}

// countFleet enables the budget if every node has been evaluated with the current gates. The
// status does not wait until budget may be granted.
func (c *Controller) countFleet() {
	seq := c.set.Load().Seq
	if !c.nodeFeed.NodesSynced() || c.ledger.IsCountedFor(seq) {
		return
	}
	if c.ledger.SetFleet(c.nodeFeed.NodeNames(), seq, c.mayCount()) {
		c.noteCounted()
	}
}

// Ready is a readiness check. It returns nil if the gates are known, and everything that
// they need is observed.
func (c *Controller) Ready() error {
	if err := c.unsynced(); err != nil {
		return err
	}
	set := c.set.Load()
	if set.Seq == 0 {
		return errors.New("the gates have not been compiled yet")
	}
	// The pods of DaemonSets that have just been read are not watched yet.
	if !reflect.DeepEqual(*c.needs.Load(), set.Needs(c.needsFeed.DaemonSets())) {
		return errors.New("the pods of the gates' DaemonSets are not watched yet")
	}
	return c.unsynced() // the needs may have changed just now
}

func (c *Controller) unsynced() error {
	if unsynced := c.needsFeed.Unsynced(); len(unsynced) > 0 {
		return fmt.Errorf("not observed yet: %s", fleet.NewNameList(unsynced))
	}
	return nil
}
