// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/gate"
)

// reconcile brings one node to what Decide says of the newest facts. It
// returns after how long to look again; zero means not before facts change.
func (c *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	if err := c.resolve(ctx, name); err != nil {
		return 0, err
	}
	now := c.clock.Now()
	set, until := c.begin(name, c.set.Load(), now)
	if set.part != nil && len(set.gates) == 0 { // no gate looks at what has changed
		c.looks.rest(name, set.seq, until)
		return soonest(0, until, now), nil
	}
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
	if errors.Is(err, cluster.ErrDenied) {
		if err = c.applyLess(ctx, set, &facts, &decision, err, now); err == nil {
			return time.Millisecond, nil // the node has changed: the rest is decided anew
		}
	}
	if err != nil {
		c.accountFailure(set, &facts, &decision, err)
		if errors.Is(err, cluster.ErrGone) {
			return 0, nil // the feed tells of the end of the node, or of the next one
		}
		return 0, fmt.Errorf("applying decision: %w", err)
	}
	c.account(set, &facts, &decision, false)
	if until = sooner(until, decision.Recheck); decision.Settled {
		c.looks.rest(name, set.seq, until)
	}
	return soonest(retry, until, now), nil
}

// resolve reads a node anew of which it is not known whether it was written:
// what it holds of a budget must not be given to another before.
func (c *Controller) resolve(ctx context.Context, name string) error {
	if !c.tally.isDoubtful(name) {
		return nil
	}
	if err := c.feed.Refresh(ctx, name); err != nil {
		return fmt.Errorf("finding out whether a write was carried out: %w", err)
	}
	c.tally.trust(name)
	return nil
}

// gather collects the facts about a node.
func (c *Controller) gather(name string, set *gateSet) (gate.Facts, bool) {
	facts, ok := c.look(name, set)
	if !ok {
		return gate.Facts{}, false
	}
	facts.Transient = gate.Transient{Prefixes: c.options.TransientTaintPrefixes, GateKeys: set.keys}
	facts.Allowed = c.allowed
	c.memory.recall(&facts)
	facts.AllPods = c.inspector.take(name)
	// The set, not the feed, is what was decided upon: a gate that the feed lost
	// since then must not look deleted to a set that still has to hear of it.
	facts.CompleteSources = set.sources
	facts.DeletedGates = set.deleted
	return facts, true
}

// look asks the feed for what the gates look at.
func (c *Controller) look(name string, set *gateSet) (gate.Facts, bool) {
	if set.part == nil {
		return c.feed.Facts(name)
	}
	facts, ok := c.feed.FactsOf(name, &set.part.Needs)
	facts.Part = true
	return facts, ok
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
		switch v.Wants {
		case "":
			continue
		case gate.WantPods, gate.WantIdle:
			retry = shortest(retry, c.inspect(v, &facts.Node, now))
			continue
		}
		if v.Wants == gate.WantPace && v.DryRun { // nothing is written
			granted = with(granted, v.Gate)
			continue
		}
		if v.Wants != gate.WantPace || !paced {
			ok, wait := c.budget.grant(v, set, &facts.Node, now)
			if !ok {
				retry = shortest(retry, wait)
				continue
			}
			paced = paced || v.Wants == gate.WantPace
		}
		granted = with(granted, v.Gate)
	}
	return granted, retry
}

func with(set map[string]bool, name string) map[string]bool {
	if set == nil {
		set = make(map[string]bool)
	}
	set[name] = true
	return set
}

// inspect answers a want that takes a list of all of the node's pods. It does
// not wait for it: it returns after how long to ask again, or zero if the node
// is decided about anew as soon as the list is there. What could not be closed
// anyway is not looked at.
func (c *Controller) inspect(v *gate.Verdict, n *gate.Node, now time.Time) time.Duration {
	switch {
	case v.Wants == gate.WantIdle:
		return c.inspector.later(n.Name, now, inspectAgain)
	case c.rights.lacks(listPods):
		return wait.Jitter(inspectRetry, 0.1)
	case v.Before != v1alpha1.StateClosed:
		if delay := c.budget.delay(slot{v.Gate, n.Zone()}, n.Name); delay > 0 {
			return delay
		}
	}
	return c.inspector.ask(n.Name, now, v.Before == v1alpha1.StateClosed, v.DryRun)
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
		if err := c.feed.Refresh(ctx, n.Name); err != nil {
			c.log.V(1).Info("cannot read node", "node", n.Name, "error", err.Error())
		}
	}
	return err
}

// account tells of a decision that was carried out, or of a part of one.
func (c *Controller) account(set *gateSet, facts *gate.Facts, d *gate.Decision, part bool) {
	n := &facts.Node
	c.stand(set, n.Name, c.standings(set, facts, d, nil), true)
	c.memory.keep(n, d, part, set.scope())
	now := c.clock.Now()
	waits := c.holding.look(set, n, d, now)
	var told transitions
	c.tellOverrides(set, n, d, part)
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		switch {
		case v.DryRun:
			c.tellDryRun(n, v)
			continue
		case v.Opened():
			held := time.Duration(-1) // the node became a member with the gate open
			if !v.ClosedSince.IsZero() {
				held = max(c.clock.Since(v.ClosedSince), 0)
			}
			c.metrics.opened(v, held)
			if g, ok := set.gate(v.Gate); ok {
				c.metrics.waited(g, waits[v.Gate])
			}
			c.log.Info("gate opened", append([]any{"gate", v.Gate, "node", n.Name, "reason", v.Reason,
				"closedSeconds", max(held, 0).Seconds()}, overrideFields(v)...)...)
			if v.Closure != nil && set.minds(v.Gate) {
				c.bypass.opened(n, v)
			}
		case v.Closed():
			c.metrics.closed(v)
			c.log.Info("gate closed", append([]any{"gate", v.Gate, "node", n.Name, "reason", v.Reason}, overrideFields(v)...)...)
		}
		g, _ := set.gate(v.Gate)
		if g != nil && v.PassedDeadline {
			c.tellDeadline(set, n, g, v)
		}
		told.add(g, v, now)
	}
	c.tellTransitions(set, n, &told)
}

// accountFailure takes note of a node that could not be written: it stands as
// it stood. It gives its slots back if there is nothing to be had with them. It
// keeps them for the next attempt where that follows at once, and where the write
// may have been carried out all the same.
func (c *Controller) accountFailure(set *gateSet, facts *gate.Facts, d *gate.Decision, err error) {
	n := &facts.Node
	switch {
	case errors.Is(err, cluster.ErrGone):
		c.tally.release(n.Name)
		return
	case errors.Is(err, cluster.ErrDenied):
		c.tally.release(n.Name)
	case !errors.Is(err, cluster.ErrConflict):
		c.tally.doubt(n.Name)
	}
	c.stand(set, n.Name, c.standings(set, facts, d, err), false)
}

// standings turns a decision into what the tally keeps, given why it was not
// carried out, or nil if it was.
func (c *Controller) standings(set *gateSet, facts *gate.Facts, d *gate.Decision, failure error) []standing {
	out := make([]standing, 0, len(d.Verdicts))
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		s := standing{
			gate: v.Gate, selected: v.Selected, state: v.After, reason: v.Reason, zone: facts.Node.Zone(), since: v.Since,
			blocked: v.Obstacle(), contended: v.Contended, overdue: v.Overdue,
			throttled: c.throttled(&facts.Node, v), queued: set.queues(v), ignored: clip(d.Ignored[v.Gate], ignoredMax),
		}
		s.overridden(v)
		if g, ok := set.gate(v.Gate); ok {
			s.waitsFor(g, v)
			s.doubts(g, v)
		} else {
			s.stranger = v.Held
		}
		switch {
		case failure == nil:
		case v.DryRun: // it goes this step with the next decision
			s.unwritten(v, facts.Shadow[v.Gate], "")
		default:
			s.unwritten(v, facts.Node.Records[v.Gate], denialOf(v.Gate, d, failure))
		}
		if s.selected || s.state != "" {
			out = append(out, s)
		}
	}
	return out
}

// throttled tells whether a verdict waits for budget: to close, or to find out
// whether the node is to be closed.
func (c *Controller) throttled(n *gate.Node, v *gate.Verdict) bool {
	looks := v.Wants == gate.WantPods && v.Before != v1alpha1.StateClosed
	return v.Wants == gate.WantBudget || looks && !c.tally.admits(slot{v.Gate, n.Zone()}, n.Name)
}

// waitsFor takes note of the signal that a closed gate waits for, or because of
// which a gate waits for budget. A gate that follows its signals waits for one that
// is unknown or, where all hold, for any of them to stop holding.
func (s *standing) waitsFor(g *gate.Gate, v *gate.Verdict) {
	if len(g.Signals) == 0 && v.After == v1alpha1.StateClosed {
		s.reading.Reason = v1alpha1.ReadingInvalidSpec
	}
	w := v.Waiting()
	if s.throttled { // for what it is to be closed
		w = slices.IndexFunc(v.Readings, func(r gate.Reading) bool { return r.State == gate.NotYet })
	}
	if w < 0 && g.CloseWhen {
		w = min(0, len(v.Readings)-1)
	}
	if w >= 0 && (v.After == v1alpha1.StateClosed || s.throttled) {
		s.signal, s.reading = g.Signals[w].Name, v.Readings[w]
		// These change without anything to tell.
		s.reading.Recheck, s.reading.Since, s.reading.Longer = time.Time{}, time.Time{}, false
	}
}

// doubts takes note of a signal that is unknown where it may hide a reason to
// close: nobody waits there, so that nothing else tells of it.
func (s *standing) doubts(g *gate.Gate, v *gate.Verdict) {
	if !g.CloseWhen || !v.Selected || v.After == v1alpha1.StateClosed {
		return
	}
	for i := range v.Readings {
		if v.Readings[i].State == gate.Unknown {
			s.doubt = "signal " + g.Signals[i].Name + ": " + v.Readings[i].Message()
			return
		}
	}
}

// unwritten takes note that the gate stands as its record says, and of what the
// API server said if it denied to have that changed.
func (s *standing) unwritten(v *gate.Verdict, record, denial string) {
	s.state = v.Before
	if r, err := gate.ParseRecord(record); err == nil {
		s.reason, s.overdue = r.Reason, r.Overdue
		s.own, s.ownReason = r.State, r.Reason
		s.underOverride = s.underOverride || r.Override != ""
	}
	if v.Opened() && !v.ClosedSince.IsZero() {
		s.since = v.ClosedSince
	}
	s.denied = denial
}

// forget drops what is kept of a node that is gone.
func (c *Controller) forget(name string) {
	c.tally.forget(name)
	c.memory.forget(name)
	c.holding.forget(name)
	c.budget.forget(name)
	c.inspector.forget(name)
	c.looks.forget(name)
}

// sooner is the earlier of two times, where zero means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
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
