// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

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
			c.lateNodes.note()
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

// catchUpNodes waits until the watch of Nodes is not late, and has all of them evaluated again. If that
// takes too long, budget is granted nevertheless: nodes that are not fit would stay open.
func (c *Controller) catchUpNodes(ctx context.Context) {
	if err := c.nodeFeed.CatchUpNodes(ctx); err != nil && ctx.Err() == nil {
		c.log.Error(err, "granting budget although nodes may have changed")
	}
	c.ledger.Recount()
	c.resyncAll()
}

// lateNodes tracks whether the watch of Nodes may be late. The zero value is not usable.
type lateNodes struct {
	wake reflector.Wake
	// noted counts the times at which the watch may have been late, and handled those after which it
	// has caught up.
	noted, handled atomic.Int64
}

// note records that the watch may be late now.
func (l *lateNodes) note() {
	l.noted.Add(1)
	l.wake.Send()
}

// pending reports whether the watch may still be late.
func (l *lateNodes) pending() bool { return l.handled.Load() < l.noted.Load() }

// run calls catchUp whenever the watch may be late, until the context ends.
func (l *lateNodes) run(ctx context.Context, catchUp func(context.Context)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		noted := l.noted.Load()
		catchUp(ctx)
		l.handled.Store(noted)
	}
}

// mayCount reports whether the nodes that are known are the whole fleet, and only this
// replica closes them.
func (c *Controller) mayCount() bool {
	return c.nodeFeed.NodesSynced() && !c.lateNodes.pending() && !c.clock.Now().Before(c.budgetsFrom)
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

// termsOf returns the budgets of the gates.
func termsOf(s *gateset.Set) map[string]fleet.BudgetTerms {
	all := make(map[string]fleet.BudgetTerms, len(s.Declared))
	for name, ng := range s.Declared {
		all[name] = fleet.BudgetTerms{Budget: ng.Spec.Budget.MaxReclosed, Since: s.Since[name]}
	}
	return all
}
