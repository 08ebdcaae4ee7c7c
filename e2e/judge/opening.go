// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/facts"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// judgeOpening judges a write of nodegate that opens a gate, or makes the node a
// member with the gate open (S1).
func (t *trial) judgeOpening(c *change, gate string, before, after record, recorded bool) {
	reason := cmp.Or(after.Reason, "no record")
	if before.Override == v1alpha1.StateClosed && before.State == v1alpha1.StateOpen {
		reason = v1alpha1.ReasonOverrideEnded
	}
	if after.Override == v1alpha1.StateOpen {
		reason = v1alpha1.ReasonOverridden
	}
	if !recorded {
		reason = t.reasonOfRelease(c, gate, before, reason)
	}
	what := fmt.Sprintf("gate opens: %s", reason)
	notJudged := t.skipped
	why := t.unjustified(c, gate, before, reason, recorded)
	if why != "" {
		t.violation(RuleOpening, c, gate, what, "%s", why)
	}
	if why != "" || t.skipped == notJudged {
		t.checked(RuleOpening, fmt.Sprintf("openings: %s", reason))
	}
}

// reasonToLeave returns why a node is no longer a member of a gate, or "" if it may be one. That
// the gate does not select the node comes last: the node remains a member for a while.
func (t *trial) reasonToLeave(c *change, gate string) (reason v1alpha1.Reason) {
	for _, m := range t.ofGate(t.window(c), c, gate) {
		ng, node := m.Gate(gate), m.Node(c.name)
		switch {
		case ng == nil:
			return v1alpha1.ReasonGateDeleted
		case ng.Spec.Mode == v1alpha1.ModeDryRun:
			return v1alpha1.ReasonDryRun
		case node.Labels[v1alpha1.OptOutLabel] == v1alpha1.OptOutValue:
			return v1alpha1.ReasonOptedOut
		case !facts.Selects(ng, node):
			reason = v1alpha1.ReasonNotSelected
		}
	}
	return reason
}

// reasonOfRelease returns why a gate opens whose record is removed. Because no record
// states the reason, it is derived from the facts; none is returned if there is no such
// fact.
func (t *trial) reasonOfRelease(c *change, gate string, before record, none v1alpha1.Reason) v1alpha1.Reason {
	if reason := t.reasonToLeave(c, gate); reason != "" {
		return reason
	}
	ng := t.Moment(c.revision - 1).Gate(gate)
	switch {
	case before.State == v1alpha1.StateOpen && before.Override == v1alpha1.StateClosed: // only the override closed it
		return v1alpha1.ReasonOverrideEnded
	case before.Reason == v1alpha1.ReasonExistingIdle:
		return v1alpha1.ReasonNotIdle
	case ng != nil && ng.Spec.Follows() && ng.Spec.Reopen == v1alpha1.ReopenManual:
		return v1alpha1.ReasonOpenedByHand
	case ng != nil && ng.Spec.Taint.Key == v1alpha1.TaintOutOfService && !facts.IsUnreachable(c.before):
		return v1alpha1.ReasonNodeReturned
	case ng != nil && ng.Spec.Follows():
		return v1alpha1.ReasonSignalsCleared
	}
	return none
}

// unjustifiedRelease returns why no committed fact justifies the opening of a gate whose record
// is removed, or "" if one does. released is false if the reason is not one of these.
func (t *trial) unjustifiedRelease(c *change, gate string, reason v1alpha1.Reason) (why string, released bool) {
	switch reason {
	case v1alpha1.ReasonGateDeleted, v1alpha1.ReasonDryRun, v1alpha1.ReasonOptedOut, v1alpha1.ReasonNodeReturned:
		return "", true // reasonOfRelease has verified it
	case v1alpha1.ReasonNotSelected:
		return t.stillMember(c, gate), true
	case v1alpha1.ReasonNotIdle:
		return t.isIdle(c), true
	}
	return "", false
}

// unjustified returns why no committed fact justifies the opening, or "" if one does.
func (t *trial) unjustified(c *change, gate string, before record, reason v1alpha1.Reason, recorded bool) string {
	if reason != v1alpha1.ReasonNodeReturned && t.isPaused(c, gate) {
		return "the gate is paused"
	}
	if why, released := t.unjustifiedRelease(c, gate, reason); released && !recorded {
		return why
	}
	switch reason {
	case v1alpha1.ReasonOverridden, v1alpha1.ReasonOverrideEnded:
		return t.unjustifiedByOverride(c, gate, before, reason)
	case v1alpha1.ReasonOpenedByHand:
		return t.unjustifiedByHand(c, gate, before)
	case v1alpha1.ReasonDeadlinePassed:
		return t.unjustifiedByDeadline(c, gate, before)
	case v1alpha1.ReasonSignalsHold:
		return cmp.Or(t.notAdmitted(c, gate, before, reason), t.unjustifiedBySignals(c, gate, before), t.unjustifiedByGroup(c, gate, before))
	case v1alpha1.ReasonAdopted, v1alpha1.ReasonSignalsCleared:
		return cmp.Or(t.notAdmitted(c, gate, before, reason), t.unjustifiedBySignals(c, gate, before))
	}
	return "this is not a reason for opening"
}

// unjustifiedByOverride returns why no override opens the gate, or does so by its end, or "".
func (t *trial) unjustifiedByOverride(c *change, gate string, before record, reason v1alpha1.Reason) string {
	if reason == v1alpha1.ReasonOverridden {
		if o, inForce := facts.OverrideOf(c.before, gate, t.Earliest(c.revision)); !inForce || o.State != v1alpha1.StateOpen {
			return "no override requests it"
		}
		return ""
	}
	if before.Override != v1alpha1.StateClosed {
		return "no override kept the gate closed"
	}
	if o, inForce := facts.OverrideOf(c.before, gate, t.Latest(c.revision)); inForce && o.State == v1alpha1.StateClosed {
		return "an override keeps the gate closed"
	}
	return ""
}

// isPaused reports whether the gate was paused in the whole window. It then opens only when it is
// deleted, enters dry run, or must not detach volumes any longer.
func (t *trial) isPaused(c *change, gate string) bool {
	specs := t.specs(c, gate)
	return len(specs) > 0 && !slices.ContainsFunc(specs, func(ng *v1alpha1.NodeGate) bool { return ng == nil || ng.Spec.Mode != v1alpha1.ModePaused })
}

// unjustifiedByHand returns why no user opened a gate with reopen Manual, or "" if one did. If the
// gate was open already, it was edited to an openWhen gate and stays open in a new boot.
func (t *trial) unjustifiedByHand(c *change, gate string, before record) string {
	manual := func(ng *v1alpha1.NodeGate) bool {
		return ng != nil && ng.Spec.Follows() && ng.Spec.Reopen == v1alpha1.ReopenManual
	}
	switch {
	case before.State == v1alpha1.StateOpen:
		return t.unjustifiedBySignals(c, gate, before)
	case !slices.ContainsFunc(t.specs(c, gate), manual):
		return "the gate is not reopened manually"
	case facts.TaintOn(c.before, before.taint()) != nil:
		return "the gate is reopened manually, and no other writer has removed its taint"
	}
	return ""
}

// leavesAfter is how long a gate must not have selected a node before the node stops
// being a member.
const leavesAfter = 30 * time.Second

// stillMember returns why the node is still a member: the gate selected it less than
// leavesAfter ago. It returns "" otherwise.
func (t *trial) stillMember(c *change, gate string) string {
	since := t.Earliest(c.revision).Add(t.Lag - leavesAfter)
	for _, revision := range t.Relevant(c.name, since, c.revision) {
		m := t.Moment(revision)
		ng, node := m.Gate(gate), m.Node(c.name)
		if t.Latest(revision).After(t.Earliest(c.revision).Add(-t.Lag)) || ng == nil || node == nil || node.UID != c.before.UID {
			continue
		}
		if facts.Selects(ng, node) {
			return fmt.Sprintf("the gate selected the node less than %s ago", leavesAfter)
		}
	}
	return ""
}

// unjustifiedBySignals returns why the gate's signals do not open it, or "" if they do. Each
// signal, and the node itself, may come from a different moment, because nodegate
// watches them separately.
func (t *trial) unjustifiedBySignals(c *change, name string, before record) string {
	window := t.windowOfBoot(c)
	now := t.Latest(c.revision)
	if len(window) == 0 {
		return "the Node was re-created or rebooted just before"
	}
	return whyNone(t.specs(c, name), func(ng *v1alpha1.NodeGate) (why string) {
		switch {
		case ng == nil:
			return "the gate does not exist"
		case ng.Spec.Mode == v1alpha1.ModePaused:
			return "the gate is paused"
		case ng.Spec.Follows() && ng.Spec.Reopen == v1alpha1.ReopenManual && before.State == v1alpha1.StateClosed:
			return "the gate is reopened manually"
		case ng.Spec.Follows():
			why = t.clearedIn(window, c, ng.Spec.CloseWhen, now)
		default:
			why = t.holdIn(window, c, ng, now)
		}
		return cmp.Or(why, t.tooSoon(c, ng, before), t.tooBrief(c, ng, before))
	})
}

// holdIn returns which of a gate's signals held in no moment of the window, or why
// signals may not open the gate in any. It returns "" if they open it.
func (t *trial) holdIn(window []revisions.Moment, c *change, ng *v1alpha1.NodeGate, now time.Time) string {
	open, first := false, ""
	for _, m := range window {
		why := facts.Blocked(m.Node(c.name))
		open, first = open || why == "", cmp.Or(first, why)
	}
	if !open {
		return first
	}
	for i := range ng.Spec.OpenWhen {
		s := &ng.Spec.OpenWhen[i]
		best, first := notYet, ""
		for _, m := range window {
			l := t.evaluator(m, c.name, now, true)
			l.doubtful = holds
			r, why := l.signal(s)
			if best, first = max(best, r), cmp.Or(first, why); best == holds {
				break
			}
		}
		switch best {
		case holds:
		case notJudged:
			t.notJudged(RuleOpening, first)
		default:
			return fmt.Sprintf("signal %s does not hold: %s", s.Name, first)
		}
	}
	return ""
}

// clearedIn returns why a closeWhen gate must stay closed, or "" if one of its signals
// did not hold in some moment of the window.
func (t *trial) clearedIn(window []revisions.Moment, c *change, signals []v1alpha1.Signal, now time.Time) string {
	worst, why := holds, ""
	for _, m := range window {
		r, because := t.evaluator(m, c.name, now, false).all(signals)
		if r < worst {
			worst, why = r, because
		}
		if worst == notYet {
			return ""
		}
	}
	switch worst {
	case notJudged:
		t.notJudged(RuleOpening, why)
		return ""
	case unknown:
		return "no signal has stopped holding: " + why
	}
	return "all signals of the closeWhen gate hold"
}

// tooSoon returns how much of minClosedSeconds was left when the gate opened, or "" if
// none was. It tolerates a second, because clocks differ.
func (t *trial) tooSoon(c *change, ng *v1alpha1.NodeGate, before record) string {
	least := time.Duration(ng.Spec.Timing.MinClosedSeconds) * time.Second
	if least == 0 || !before.closed() || before.Reason == v1alpha1.ReasonAdopted {
		return ""
	}
	if before.returned(c.before) {
		return ""
	}
	since := before.Since
	if since.IsZero() || before.Reason == v1alpha1.ReasonBirth {
		since = c.before.CreationTimestamp.Time
	}
	if short := since.Add(least).Sub(t.Latest(c.revision)); short > time.Second {
		return fmt.Sprintf("minClosedSeconds ends %s later", short.Round(time.Millisecond))
	}
	return ""
}

// isIdle returns a message if the node is idle in every moment of the window, or "" if
// a workload was on it in one.
func (t *trial) isIdle(c *change) string {
	for _, m := range t.window(c) {
		if slices.ContainsFunc(m.Pods(c.name), facts.IsWorkload) {
			return ""
		}
	}
	return "the node is still idle"
}
