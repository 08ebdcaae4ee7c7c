// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/gate"
)

// reconcile brings one node to what Decide says of the newest facts. It
// returns after how long to look again; zero means not before facts change.
func (c *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	set, now := c.set.Load(), c.clock.Now()
	facts, ok := c.gather(name, set)
	switch {
	case !ok && c.feed.NodesSynced():
		c.forget(name)
		return 0, nil
	case !ok:
		return 0, nil // every node is told of once nodes are observed again
	}
	decision, retry := c.decide(set, &facts, now)
	if err := c.apply(ctx, &facts.Node, &decision); err != nil {
		c.releaseSlots(&facts, &decision)
		if errors.Is(err, cluster.ErrGone) {
			return 0, nil // the feed tells of the end of the node, or of the next one
		}
		return 0, fmt.Errorf("applying decision: %w", err)
	}
	c.account(set, &facts, &decision)
	return soonest(retry, decision.Recheck, now), nil
}

// gather collects the facts about a node.
func (c *Controller) gather(name string, set *gateSet) (gate.Facts, bool) {
	facts, ok := c.feed.Facts(name)
	if !ok {
		return gate.Facts{}, false
	}
	facts.Transient = gate.Transient{Prefixes: c.options.TransientTaintPrefixes, GateKeys: set.keys}
	facts.AllowedKeys = c.allowed
	facts.LostSince = c.memory.lostSince(name, facts.Node.UID)
	// The set, not the feed, is what was decided upon: a gate that the feed lost
	// since then must not look deleted to a set that still has to hear of it.
	facts.CompleteSources = map[string]bool{v1alpha1.SourceCRD: set.complete}
	facts.DeletedGates = set.deleted
	return facts, true
}

// decide decides, asks for the permissions that the decision wants, and
// decides again with what was granted.
func (c *Controller) decide(set *gateSet, facts *gate.Facts, now time.Time) (gate.Decision, time.Duration) {
	d := gate.Decide(set.gates, facts, now)
	var retry time.Duration
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if v.Wants == "" {
			continue
		}
		granted, wait := c.budget.grant(v, set.declared[v.Gate], facts.Node.Name, zoneOf(&facts.Node), now)
		if !granted {
			retry = shortest(retry, wait)
			continue
		}
		if facts.Granted == nil {
			facts.Granted = make(map[string]bool)
		}
		facts.Granted[v.Gate] = true
	}
	if facts.Granted != nil {
		d = gate.Decide(set.gates, facts, now)
	}
	return d, retry
}

// apply carries the decision out, in one patch. After a conflict the node is
// read anew, for what was decided upon is not what is there.
func (c *Controller) apply(ctx context.Context, n *gate.Node, d *gate.Decision) error {
	if !d.Changes {
		return nil
	}
	node, err := c.writer.Apply(ctx, n, d)
	c.metrics.patched(err)
	switch {
	case err == nil:
		c.feed.Observe(node)
		return nil
	case errors.Is(err, cluster.ErrConflict):
		c.refresh(ctx, n.Name)
	}
	return err
}

// refresh reads a node anew. If that fails, the feed will bring it.
func (c *Controller) refresh(ctx context.Context, name string) {
	var node corev1.Node
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, &node); err == nil {
		c.feed.Observe(&node)
	}
}

// account tells of a decision that was carried out.
func (c *Controller) account(set *gateSet, facts *gate.Facts, d *gate.Decision) {
	n := &facts.Node
	c.tally.set(n.Name, standings(d, set, zoneOf(n)))
	c.memory.keep(n.Name, n.UID, d)
	c.releaseSlots(facts, d)
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		switch {
		case v.Opened():
			held := c.clock.Now().Sub(v.ClosedSince)
			if v.ClosedSince.IsZero() {
				held = 0
			}
			c.metrics.opened(v, held)
			c.log.Info("gate opened", "gate", v.Gate, "node", n.Name, "reason", v.Reason, "closedSeconds", held.Seconds())
		case v.Closed():
			c.metrics.closed(v)
			c.log.Info("gate closed", "gate", v.Gate, "node", n.Name, "reason", v.Reason)
		}
	}
}

// releaseSlots gives back the budget that this decision was granted: by now
// the tally counts the node, or the write failed.
func (c *Controller) releaseSlots(facts *gate.Facts, d *gate.Decision) {
	for name := range facts.Granted {
		c.budget.release(name, zoneOf(&facts.Node), facts.Node.Name)
	}
}

// forget drops what is kept of a node that is gone.
func (c *Controller) forget(name string) {
	c.tally.set(name, nil)
	c.memory.forget(name)
}

func zoneOf(n *gate.Node) string { return n.Labels[corev1.LabelTopologyZone] }

func soonest(retry time.Duration, recheck time.Time, now time.Time) time.Duration {
	if recheck.IsZero() {
		return retry
	}
	return shortest(retry, max(recheck.Sub(now), time.Millisecond))
}

// shortest is the shorter of two waits, where zero means none.
func shortest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
