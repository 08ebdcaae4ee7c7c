// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

const (
	// feedTimeout limits the wait for feeds before the first decision, unless they are being
	// received. Signals of a feed that never syncs are unknown; the other gates must work.
	feedTimeout = 30 * time.Second
	// feedTimeoutMax limits the wait for feeds that are being received. A fleet of 100,000
	// nodes may take longer than feedTimeout. Starting earlier would be correct, but each feed
	// that syncs afterwards causes all nodes to be reconciled.
	feedTimeoutMax = 5 * time.Minute
	feedInterval   = 10 * time.Millisecond
)

// awaitFeeds waits until the controller is ready or it is no longer worthwhile to wait. Until
// the gates have been compiled in this term, it waits in any case: a leader without gates would
// write a parameter with which the birth policy closes nothing, and a leader with the gates of
// its previous term would open new gates as deleted. That takes at most readinessrules.MaxWait, and
// the rest of an attempt to list rules. It returns false if the context ends first.
func (c *Controller) awaitFeeds(ctx context.Context) bool {
	ticker := c.clock.NewTicker(feedInterval)
	defer ticker.Stop()
	began, told := c.clock.Now(), false
	for !c.compiled.Load() || c.Ready() != nil {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C():
		}
		waited := c.clock.Since(began)
		switch {
		case waited < feedTimeout, !c.compiled.Load():
		case waited >= feedTimeoutMax, c.clock.Since(c.needsFeed.LastReceived()) >= feedTimeout:
			c.log.Info("starting although some feeds are not synced", "unsynced", c.needsFeed.Unsynced())
			return true
		case !told:
			c.log.Info("waiting for feeds that are still being received", "unsynced", c.needsFeed.Unsynced())
			told = true
		}
	}
	return true
}

// catchUp waits until the gates are compiled as they are now: the watch of a replica that takes over
// may be late, and the former leader has acted on later gates. If that takes too long, gates that are
// not known do not count as deleted until the watch has been replaced, or was not late. It returns
// false if the context ends.
func (c *Controller) catchUp(ctx context.Context) bool {
	err := c.gateFeed.CatchUp(ctx, func(ng *v1alpha1.NodeGate) bool {
		known, declared := c.set.Load().Declared[ng.Name]
		return declared && known.UID == ng.UID && known.Generation >= ng.Generation
	})
	switch {
	case ctx.Err() != nil:
		return false
	case err == nil:
		return true
	}
	c.log.Error(err, "starting although gates may have changed")
	c.settle(reflector.SilentAfter)
	return c.awaitFeeds(ctx)
}
