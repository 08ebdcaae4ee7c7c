// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/nodegate/nodegate/internal/bypass"
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/nodequeue"
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	workers := make([]nodequeue.Worker, c.options.Workers)
	for i := range workers {
		running.Go(func() { c.work(ctx, &workers[i]) })
	}
	running.Go(func() { c.resync.Run(ctx) })
	running.Go(func() { c.runBudget(ctx) })
	running.Go(func() { c.lateNodes.run(ctx, c.catchUpNodes) })
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
//   - What the previous leader wrote may not have been observed yet, also if it released the Lease:
//     the watch of Nodes may be late.
//   - It may have abandoned writes that still take effect.
//   - It may have been paused, and close nodes under a budget until it notices (see
//     fleet.Ledger.Heartbeat).
//
// Nor is it known whether a gate that is missing from files was deleted.
func (c *Controller) takeOver() {
	c.settleFiles()
	c.delayBudgets(fleet.PausedAfter + fleet.CountInterval)
	c.lateNodes.note()
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
