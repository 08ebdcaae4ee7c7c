// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/bypass"
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/write"
)

// reconcile evaluates a node and carries out the decision. It returns the time after
// which to evaluate the node again, or zero if that is not necessary before its facts
// change.
func (c *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	if err := c.resolve(ctx, name); err != nil {
		return 0, err
	}
	now := c.clock.Now()
	set, until := c.affected(name, c.set.Load(), now)
	if set.Part != nil && len(set.Gates) == 0 { // no gate reads what has changed
		c.nodes.settle(name, set.Seq, until)
		return soonest(0, until, now), nil
	}
	facts, ok := c.gather(name, set)
	if !ok { // the feed reports every node when its cache is synced again
		if c.nodeFeed.Gone(name) {
			c.forget(name)
		}
		return 0, nil
	}
	if lost := c.nodes.carriedOut(&facts.Node); lost != nil {
		c.reportVerdicts(lost.Set, &lost.Node, lost.Verdicts, nil)
	}
	decision, retry := c.decide(set, &facts, now)
	c.recordFitness(set, &facts.Node, &decision)
	c.omitConditions(&decision)
	err := c.apply(ctx, set, &facts.Node, &decision)
	if errors.Is(err, write.ErrDenied) && decision.Changes {
		if err = c.applyReduced(ctx, set, &facts, &decision, err, now); err == nil {
			return atOnce, nil // the node has changed: decide about the rest again
		}
	}
	if err != nil {
		return 0, c.fail(set, &facts, &decision, err, soonest(retry, gate.Earliest(until, decision.Recheck), now))
	}
	c.account(set, &facts, &decision, false)
	if decision.Changes && len(decision.Conditions) > 0 {
		return atOnce, nil // the conditions need a write of their own
	}
	c.noteSuccess(&facts, &decision)
	switch until = gate.Earliest(until, decision.Recheck); {
	case decision.Again:
		return atOnce, nil
	case decision.Settled:
		c.nodes.settle(name, set.Seq, until)
	}
	return soonest(retry, until, now), nil
}

// fail accounts for a decision whose write failed, and returns the error if the write must be
// retried. What a decision hands on is valid although its conditions could not be written. Then
// the node is also decided about again after a while. If the write was denied, the same applies to
// the gates that the decision does not change, so that their waits do not start again with each
// retry, and end in time.
func (c *Controller) fail(set *gateset.Set, facts *gate.Facts, d *gate.Decision, err error, after time.Duration) error {
	c.accountFailure(set, facts, d, err)
	if errors.Is(err, write.ErrGone) {
		return nil // the feed reports the deletion of the node, or a new node
	}
	covers, least := set.Scope(), time.Duration(0)
	err = fmt.Errorf("applying decision: %w", err)
	switch {
	case !d.Changes: // there were only conditions to write
	case errors.Is(err, write.ErrDenied): // the next decision repeats the write
		covers, least = unchangedBy(d, set), deniedRetryFirst
	default:
		return err
	}
	c.nodes.keep(set, &facts.Node, d, false, covers)
	if after > 0 {
		c.queue.AddAfter(facts.Node.Name, max(after, least))
	}
	return err
}

// resolve reads a node again if the outcome of its last write is unknown. Until then its
// reservations must not be released.
func (c *Controller) resolve(ctx context.Context, name string) error {
	if !c.ledger.IsUncertain(name) {
		return nil
	}
	if err := c.nodeFeed.Refresh(ctx, name); err != nil {
		return fmt.Errorf("reading the node after an uncertain write: %w", err)
	}
	c.ledger.MarkCertain(name)
	return nil
}

// gather collects the facts about a node.
func (c *Controller) gather(name string, set *gateset.Set) (gate.Facts, bool) {
	facts, ok := c.readFacts(name, set)
	if !ok {
		return gate.Facts{}, false
	}
	facts.Transient = gate.Transient{Prefixes: c.options.TransientTaintPrefixes, GateKeys: set.Keys}
	facts.Allowed = c.allowed
	c.nodes.recall(&facts, set)
	facts.Groups = c.groupFacts(set, &facts.Node)
	facts.AllPods = c.inspector.Take(name)
	// These come from the set, not from the feed: a gate that the feed has lost since the
	// set was compiled must not count as deleted.
	facts.CompleteSources = set.Sources
	facts.DeletedGates = set.Deleted
	return facts, true
}

// readFacts returns the facts that the gates of the set read.
func (c *Controller) readFacts(name string, set *gateset.Set) (gate.Facts, bool) {
	if set.Part == nil {
		return c.nodeFeed.Facts(name)
	}
	facts, ok := c.nodeFeed.FactsOf(name, &set.Part.Needs)
	facts.Part = true
	return facts, ok
}

// decide makes a decision, requests the grants that it wants, and decides again with what
// was granted.
func (c *Controller) decide(set *gateset.Set, facts *gate.Facts, now time.Time) (gate.Decision, time.Duration) {
	d := gate.Decide(set.Gates, facts, now)
	granted, retry := c.requestGrants(set, facts, &d, now)
	if granted == nil {
		return d, retry
	}
	facts.Granted = granted
	d = gate.Decide(set.Gates, facts, now)
	for i := range d.Verdicts {
		if want := d.Verdicts[i].Wants; retry == 0 && want != "" && want != gate.WantCondition {
			retry = fleet.ThrottledRetry // wanted only now
		}
	}
	return d, retry
}

// requestGrants requests what a decision wants. It returns what was granted, and the time
// after which to request the rest again.
func (c *Controller) requestGrants(set *gateset.Set, facts *gate.Facts, d *gate.Decision, now time.Time) (map[string]bool, time.Duration) {
	var granted map[string]bool
	var retry time.Duration
	paced := false // one grant of pace is for all gates of the node
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		switch v.Wants {
		case "":
			continue
		case gate.WantPods, gate.WantIdle:
			retry = shortest(retry, c.inspect(v, &facts.Node, now))
			continue
		case gate.WantCondition:
			if c.permissions.missing(patchNodeStatus) {
				continue
			}
		}
		if v.Wants == gate.WantPace && v.DryRun { // nothing is written
			put(&granted, v.Gate, true)
			continue
		}
		if v.Wants != gate.WantPace || !paced {
			// now is from before the facts were read, and so may be the counts: a pause since then must not be missed.
			ok, wait := c.budget.Grant(v, v.Wants == gate.WantCondition || set.Queues(v), &facts.Node, c.clock.Now())
			if !ok {
				retry = shortest(retry, wait)
				continue
			}
			paced = paced || v.Wants == gate.WantPace
		}
		put(&granted, v.Gate, true)
	}
	return granted, retry
}

// inspect handles a want that requires a list of all pods of the node. It does not wait
// for the list: it returns the time after which to ask again, or zero if the node will be
// evaluated when it has been inspected. Nodes that could not be closed anyway are not
// inspected.
func (c *Controller) inspect(v *gate.Verdict, n *gate.Node, now time.Time) time.Duration {
	switch {
	case v.Wants == gate.WantIdle:
		return c.inspector.Later(n.Name, now)
	case c.permissions.missing(listPods):
		return wait.Jitter(bypass.InspectRetry, 0.1)
	case v.Before == v1alpha1.StateClosed:
		return c.inspector.Ask(n.Name, now, nil, v.DryRun)
	}
	scope, name := fleet.BudgetScope{Gate: v.Gate, Zone: n.Zone()}, n.Name
	if delay := c.budget.Delay(scope, name); delay > 0 {
		return delay
	}
	return c.inspector.Ask(name, now, func() bool { return c.budget.Delay(scope, name) == 0 }, v.DryRun)
}

// apply carries out a decision in one patch. After a conflict it reads the node again,
// because the stored state is outdated.
func (c *Controller) apply(ctx context.Context, set *gateset.Set, n *gate.Node, d *gate.Decision) error {
	if !d.Changes && len(d.Conditions) == 0 {
		return nil
	}
	sent := c.clock.Now()
	node, err := c.writer.Apply(ctx, n, d)
	c.metrics.Patched(err)
	c.responses.Record(n.Name, sent, c.clock.Now(), err)
	c.noteConditions(n, d, err)
	if d.Changes {
		c.nodes.noteWrite(set, n, d, err)
	}
	switch {
	case err == nil && node != nil:
		c.nodeFeed.Observe(node)
	case errors.Is(err, write.ErrConflict), errors.Is(err, write.ErrGone):
		if err := c.nodeFeed.Refresh(ctx, n.Name); err != nil {
			c.log.V(1).Info("cannot read node", "node", n.Name, "error", err.Error())
		}
	}
	return err
}

// account records and reports a decision that was carried out, or a part of one.
func (c *Controller) account(set *gateset.Set, facts *gate.Facts, d *gate.Decision, part bool) {
	n := &facts.Node
	c.recordStates(set, n.Name, c.gateStates(set, facts, d, nil), true)
	c.nodes.keep(set, n, d, part, set.Scope())
	waits := c.nodes.signalWaits(set, n, d, c.clock.Now())
	c.reportOverrides(set, n, d, part)
	c.reportVerdicts(set, n, d.Verdicts, waits)
}

// reportVerdicts reports verdicts that were carried out, given the waits for the signals of gates
// that opened.
func (c *Controller) reportVerdicts(set *gateset.Set, n *gate.Node, verdicts []gate.Verdict, waits map[string][]time.Duration) {
	now := c.clock.Now()
	var t transitions
	for i := range verdicts {
		v := &verdicts[i]
		switch {
		case v.DryRun:
			c.logDryRun(n, v)
			continue
		case v.Opened():
			c.accountOpening(set, n, v, waits[v.Gate])
		case v.WasNeverOpen():
			c.log.Info("new node carries the gate's taint, recording it", "gate", v.Gate, "node", n.Name)
		case v.Closed():
			c.metrics.Closed(v)
			c.log.Info("gate closed", append([]any{"gate", v.Gate, "node", n.Name, "reason", v.Reason}, overrideFields(v)...)...)
		}
		g, _ := set.Gate(v.Gate)
		if g != nil && v.PassedDeadline {
			c.reportDeadline(set, n, g, v)
		}
		t.add(g, v, now)
	}
	c.reportTransitions(set, n, &t)
}

// accountOpening records and reports the opening of one gate, given the waits for its
// signals.
func (c *Controller) accountOpening(set *gateset.Set, n *gate.Node, v *gate.Verdict, waits []time.Duration) {
	held := time.Duration(-1) // the node became a member with the gate open
	if !v.ClosedSince.IsZero() {
		held = max(c.clock.Since(v.ClosedSince), 0)
	}
	c.metrics.Opened(v, held)
	if g, ok := set.Gate(v.Gate); ok {
		c.metrics.Waited(g, waits)
	}
	c.log.Info("gate opened", append([]any{"gate", v.Gate, "node", n.Name, "reason", v.Reason,
		"closedSeconds", max(held, 0).Seconds()}, overrideFields(v)...)...)
	if v.Closure != nil && set.HandlesBypassed(v.Gate) {
		c.bypass.Opened(n, v)
	}
}

// accountFailure records a node whose write failed: its states have not changed. Its
// reservations are released if retrying is pointless. They are kept for an immediate
// retry, and if the write may have been carried out.
func (c *Controller) accountFailure(set *gateset.Set, facts *gate.Facts, d *gate.Decision, err error) {
	n := &facts.Node
	switch {
	case errors.Is(err, write.ErrGone):
		c.ledger.Release(n.Name)
		return
	case errors.Is(err, write.ErrDenied):
		c.ledger.Release(n.Name)
	case !errors.Is(err, write.ErrConflict):
		c.ledger.MarkUncertain(n.Name)
	}
	c.recordStates(set, n.Name, c.gateStates(set, facts, d, err), false)
}

// gateStates returns the states that the ledger stores for a decision. failure is the
// error that prevented the decision from being carried out, or nil.
func (c *Controller) gateStates(set *gateset.Set, facts *gate.Facts, d *gate.Decision, failure error) []fleet.GateState {
	out := make([]fleet.GateState, 0, len(d.Verdicts))
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		s := fleet.GateState{
			Gate: v.Gate, Selected: v.Selected, State: v.After, Reason: v.Reason, Zone: facts.Node.Zone(), Since: v.Since,
			Blocked: v.Obstacle(), Contended: v.Contended, Overdue: v.Overdue, Ring: v.Ring, NonMember: v.NonMember,
			Throttled: c.throttled(&facts.Node, v), Queued: set.Queues(v), Ignored: gate.Clip(d.Ignored[v.Gate], ignoredMax),
			Published: published(d, v), ConditionQueued: v.Wants == gate.WantCondition && !c.permissions.missing(patchNodeStatus),
		}
		s.SetOverride(v)
		if g, ok := set.Gate(v.Gate); ok {
			s.SetWaitsFor(g, v)
			s.SetUndecided(g, v)
		} else {
			s.Unlisted = v.Held
		}
		switch {
		case failure == nil:
		case v.DryRun: // the simulated state changes with the next decision
			s.SetUnwritten(v, facts.Shadow[v.Gate])
		default:
			s.SetUnwritten(v, facts.Node.Records[v.Gate])
			c.setCause(&s, failure, facts.Node.Name, d)
		}
		if s.Selected || s.State != "" {
			out = append(out, s)
		}
	}
	return out
}

// published reports whether the node has the gate's condition after a decision was carried
// out. If the decision has other changes, conditions are written by the next one.
func published(d *gate.Decision, v *gate.Verdict) bool {
	if d.Changes {
		return v.WasPublished
	}
	return v.Published
}

// throttled reports whether a verdict waits for budget: to close, or to check whether the
// node must be closed.
func (c *Controller) throttled(n *gate.Node, v *gate.Verdict) bool {
	checks := v.Wants == gate.WantPods && v.Before != v1alpha1.StateClosed
	return v.Wants == gate.WantBudget || checks && !c.ledger.Admits(fleet.BudgetScope{Gate: v.Gate, Zone: n.Zone()}, n.Name)
}

// forget drops all state of a deleted node.
func (c *Controller) forget(name string) {
	c.ledger.Forget(name)
	c.forgetFitness(name)
	c.budget.Forget(name)
	c.inspector.Forget(name)
	c.nodes.forget(name)
}

// atOnce is the time after which a decision is repeated that does not wait for anything.
const atOnce = time.Millisecond

// soonest returns the time until a retry or a recheck, whichever is earlier; zero means
// none.
func soonest(retry time.Duration, recheck time.Time, now time.Time) time.Duration {
	if recheck.IsZero() {
		return retry
	}
	return shortest(retry, max(recheck.Sub(now), atOnce))
}

// shortest returns the shorter of two durations; zero means none.
func shortest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
