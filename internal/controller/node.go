// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

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
	err := c.apply(ctx, &facts.Node, &decision)
	if errors.Is(err, cluster.ErrDenied) && c.applyApart(ctx, set, &facts, &decision, now) {
		return time.Millisecond, nil // the node has changed: the rest is decided anew
	}
	if err != nil {
		c.accountFailure(set, &facts, &decision, err)
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
	c.memory.recall(&facts)
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
	granted, retry := c.ask(set, facts, &d, now)
	if granted == nil {
		return d, retry
	}
	facts.Granted = granted
	d = gate.Decide(set.gates, facts, now)
	for i := range d.Verdicts {
		if retry == 0 && d.Verdicts[i].Wants != "" {
			retry = throttledRetry // wanted only now
		}
	}
	return d, retry
}

// ask asks for what a decision wants, and returns what was granted, and after
// how long to ask again for what was not.
func (c *Controller) ask(set *gateSet, facts *gate.Facts, d *gate.Decision, now time.Time) (map[string]bool, time.Duration) {
	var granted map[string]bool
	var retry time.Duration
	paced := false // one turn is for all of a node's gates
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if v.Wants == "" {
			continue
		}
		if v.Wants != gate.WantPace || !paced {
			ok, wait := c.budget.grant(v, set, facts.Node.Name, facts.Node.Zone(), now)
			if !ok {
				retry = shortest(retry, wait)
				continue
			}
			paced = paced || v.Wants == gate.WantPace
		}
		if granted == nil {
			granted = make(map[string]bool)
		}
		granted[v.Gate] = true
	}
	return granted, retry
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
	case err == nil && node != nil:
		c.feed.Observe(node)
	case errors.Is(err, cluster.ErrConflict), errors.Is(err, cluster.ErrGone):
		c.feed.Refresh(ctx, n.Name)
	}
	return err
}

// applyApart carries out as much of a decision that was denied as concerns one
// taint key alone, and tells whether there was such. What the API server does
// not let us do for one gate must not keep the node's other gates closed.
func (c *Controller) applyApart(ctx context.Context, set *gateSet, facts *gate.Facts, denied *gate.Decision, now time.Time) bool {
	keys := make(map[string]bool)
	for name := range denied.Records {
		if g, ok := set.gate(name); ok && (c.allowed == nil || c.allowed[g.Taint.Key]) {
			keys[g.Taint.Key] = true
		}
	}
	if len(keys) < 2 {
		return false
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		part := *facts
		part.AllowedKeys = map[string]bool{key: true}
		d := gate.Decide(set.gates, &part, now)
		if d.Changes && c.apply(ctx, &part.Node, &d) == nil {
			c.account(set, &part, &d)
			return true
		}
	}
	return false
}

// account tells of a decision that was carried out.
func (c *Controller) account(set *gateSet, facts *gate.Facts, d *gate.Decision) {
	n := &facts.Node
	c.tally.set(n.Name, c.standings(set, facts, d, nil), set.seq)
	c.memory.keep(n, d)
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		switch {
		case v.Opened():
			held := time.Duration(-1) // the node became a member with the gate open
			if !v.ClosedSince.IsZero() {
				held = max(c.clock.Since(v.ClosedSince), 0)
			}
			c.metrics.opened(v, held)
			c.log.Info("gate opened", "gate", v.Gate, "node", n.Name, "reason", v.Reason, "closedSeconds", max(held, 0).Seconds())
		case v.Closed():
			c.metrics.closed(v)
			c.log.Info("gate closed", "gate", v.Gate, "node", n.Name, "reason", v.Reason)
		}
	}
}

// accountFailure takes note of a node that could not be written: it stands as
// it stood. It gives its slots back, but if the write may have been carried
// out all the same.
func (c *Controller) accountFailure(set *gateSet, facts *gate.Facts, d *gate.Decision, err error) {
	n := &facts.Node
	switch {
	case errors.Is(err, cluster.ErrGone):
		c.tally.release(n.Name)
		return
	case errors.Is(err, cluster.ErrConflict), errors.Is(err, cluster.ErrDenied):
		c.tally.release(n.Name)
	}
	c.tally.note(n.Name, c.standings(set, facts, d, err), set.seq)
}

// deniedMax bounds what is kept of the API server's words.
const deniedMax = 512

// standings turns a decision into what the tally keeps, given why it was not
// carried out, or nil if it was.
func (c *Controller) standings(set *gateSet, facts *gate.Facts, d *gate.Decision, failure error) map[string]standing {
	out := make(map[string]standing, len(d.Verdicts))
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		s := standing{
			selected: v.Selected, state: v.After, reason: v.Reason, zone: facts.Node.Zone(), since: v.Since,
			blocked: v.Blocked, contended: v.Contended,
			throttled: v.Wants == gate.WantBudget && c.tally.isSettled(set.since[v.Gate]),
		}
		if g, ok := set.gate(v.Gate); ok {
			s.waitsFor(g, v)
		}
		if failure != nil {
			s.unwritten(v, facts.Node.Records[v.Gate], failure)
		}
		if s.selected || s.state != "" {
			out[v.Gate] = s
		}
	}
	return out
}

// waitsFor takes note of the signal that a closed gate waits for. A gate that
// follows its signals waits for one that is unknown or, where all hold, for any
// of them to stop holding.
func (s *standing) waitsFor(g *gate.Gate, v *gate.Verdict) {
	w := v.Waiting()
	if w < 0 && g.CloseWhen {
		w = min(0, len(v.Readings)-1)
	}
	if w >= 0 && v.After == v1alpha1.StateClosed {
		s.signal, s.reading = g.Signals[w].Name, v.Readings[w]
		// These change without anything to tell.
		s.reading.Recheck, s.reading.Since = time.Time{}, time.Time{}
	}
}

// unwritten takes note that the gate stands as its record says.
func (s *standing) unwritten(v *gate.Verdict, record string, failure error) {
	s.state = v.Before
	if r, err := gate.ParseRecord(record); err == nil {
		s.reason = r.Reason
	}
	if v.Opened() && !v.ClosedSince.IsZero() {
		s.since = v.ClosedSince
	}
	if errors.Is(failure, cluster.ErrDenied) {
		s.denied = clip(failure.Error(), deniedMax)
	}
}

// forget drops what is kept of a node that is gone.
func (c *Controller) forget(name string) {
	c.tally.forget(name)
	c.memory.forget(name)
	c.budget.forget(name)
}

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
