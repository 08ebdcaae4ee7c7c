// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/facts"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// isBudgeted reports whether closing for this reason needs budget.
func isBudgeted(reason v1alpha1.Reason) bool {
	switch reason {
	case v1alpha1.ReasonRegression, v1alpha1.ReasonExisting, v1alpha1.ReasonExistingIdle, v1alpha1.ReasonSignalsHold, v1alpha1.ReasonRebootedUnobserved, v1alpha1.ReasonGroupIncomplete:
		return true
	}
	return false
}

// isClosedUnderBudget reports whether the node counts against the gate's budget.
func isClosedUnderBudget(node *corev1.Node, gate string) bool {
	r, _ := recordOf(node, gate)
	return r.needsBudget()
}

// judgeClosing judges a write of nodegate that closes a gate, or changes the recorded
// reason of a closed gate (S4).
func (t *trial) judgeClosing(c *change, gate string, before, after record) {
	reason := after.Reason
	switch {
	case after.Override == v1alpha1.StateClosed:
		reason = v1alpha1.ReasonOverridden
	case before.Override == v1alpha1.StateOpen: // the gate's own state is judged separately
		reason = v1alpha1.ReasonOverrideEnded
	}
	what := fmt.Sprintf("gate closes: %s", reason)
	t.checked(RuleClosing, fmt.Sprintf("closings: %s", reason))
	if why := t.unjustifiedClosing(c, gate, before, after, reason); why != "" {
		t.violation(RuleClosing, c, gate, what, "%s", why)
	}
	t.judgeRole(c, gate, before, after)
	if !isBudgeted(reason) || before.needsBudget() || facts.TaintOn(c.before, after.taint()) != nil { // a taint that exists changes nothing for pods
		return
	}
	t.checked(RuleClosing, "closings under a budget")
	if closed, allowed := t.budget(c, gate, isClosedUnderBudget); closed > allowed {
		t.violation(RuleClosing, c, gate, what, "with this node, %d nodes of the zone are closed, but the budget is %d", closed, allowed)
	}
}

// unjustifiedClosing returns why no moment of the window supports the recorded reason, or
// "" if one does.
func (t *trial) unjustifiedClosing(c *change, gate string, before, after record, reason v1alpha1.Reason) string {
	if before.own().State != v1alpha1.StateClosed && t.isRefused(c, gate) {
		return "the gate is not accepted"
	}
	return whyNone(t.ofGate(t.window(c), c, gate), func(m revisions.Moment) string {
		ng := m.Gate(gate)
		switch {
		case ng == nil:
			return "the gate does not exist"
		case ng.Spec.Mode == v1alpha1.ModePaused || ng.Spec.Mode == v1alpha1.ModeDryRun:
			return "the gate is in mode " + string(ng.Spec.Mode)
		case !facts.Selects(ng, m.Node(c.name)):
			return "the gate does not select the node"
		}
		return t.unfounded(c, m, ng, before, after, reason)
	})
}

// unfounded returns why one moment does not support the reason, or "" if it does.
func (t *trial) unfounded(c *change, m revisions.Moment, ng *v1alpha1.NodeGate, before, after record, reason v1alpha1.Reason) string {
	node := m.Node(c.name)
	unless := func(is bool, why string) string {
		if is {
			return ""
		}
		return why
	}
	if why := cmp.Or(t.unfoundedState(c, ng, before.own(), reason), t.unfoundedDetaching(c, m, ng, reason)); why != "" {
		return why
	}
	switch reason {
	case v1alpha1.ReasonBirth, v1alpha1.ReasonAdopted:
		return t.unfoundedAdmission(c, m, ng, before, reason)
	case v1alpha1.ReasonOverridden:
		o, inForce := facts.OverrideOf(node, ng.Name, t.Earliest(c.revision))
		return unless(inForce && o.State == v1alpha1.StateClosed, "no override requests it")
	case v1alpha1.ReasonOverrideEnded:
		o, inForce := facts.OverrideOf(node, ng.Name, t.Latest(c.revision))
		if inForce && o.State == v1alpha1.StateOpen {
			return "an override keeps the gate open"
		}
		return unless(before.Override == v1alpha1.StateOpen, "no override kept the gate open")
	case v1alpha1.ReasonRebooted, v1alpha1.ReasonRebootedUnobserved, v1alpha1.ReasonNodeSilent, v1alpha1.ReasonNodeShutdown:
		return t.unfoundedByBoot(c, m, ng, before, after, reason)
	}
	if reason == v1alpha1.ReasonGroupIncomplete {
		return t.unfoundedByGroup(c, m, ng)
	}
	return t.unfoundedBySignals(c, m, ng, before, reason)
}

// unfoundedAdmission is unfounded for nodes that become members with the gate closed. A node on
// which an openWhen gate was open was a member, unless the record is that of an earlier Node.
func (t *trial) unfoundedAdmission(c *change, m revisions.Moment, ng *v1alpha1.NodeGate, before record, reason v1alpha1.Reason) string {
	former := !before.Since.IsZero() && before.Since.Before(c.before.CreationTimestamp.Time)
	own, _ := recordOf(c.before, ng.Name)
	switch {
	case before.State == v1alpha1.StateOpen && !former && !ng.Spec.Follows():
		return "the gate was open"
	case own.State == v1alpha1.StateClosed && !former && !ng.Spec.Follows():
		return "the node is a member, with the gate closed"
	case reason == v1alpha1.ReasonBirth && ng.Spec.Follows():
		return "a closeWhen gate closes on no node because it is new"
	case reason == v1alpha1.ReasonBirth:
		return t.notNew(c, ng)
	case !facts.CarriesAny(m.Node(c.name), ng) && !before.closed():
		return "the node does not carry the taint"
	}
	return ""
}

// unfoundedByBoot is unfounded for reboots, unreachable nodes and shutdowns.
func (t *trial) unfoundedByBoot(c *change, m revisions.Moment, ng *v1alpha1.NodeGate, before, after record, reason v1alpha1.Reason) string {
	node := m.Node(c.name)
	wasOpen := before.State == v1alpha1.StateOpen
	switch {
	case wasOpen && ng.Spec.ReclosePolicy == v1alpha1.RecloseNever || ng.Spec.Follows():
		return "the gate's spec does not reclose it"
	case reason == v1alpha1.ReasonNodeSilent:
		return t.unfoundedUnreachable(c, m, ng, wasOpen)
	case reason == v1alpha1.ReasonNodeShutdown && !facts.IsShuttingDown(node):
		return "the node does not report a shutdown"
	case reason == v1alpha1.ReasonNodeShutdown:
		return ""
	case before.Boot == "" || before.Boot == after.Boot || node.Status.NodeInfo.BootID != after.Boot:
		return "the node's boot ID is the recorded one"
	case reason == v1alpha1.ReasonRebooted && (wasOpen || isBudgeted(before.Reason)):
		return t.longAgo(c, m)
	case !wasOpen:
		return ""
	}
	return t.unfoundedUnobserved(c, m, ng)
}

// unfoundedUnreachable is unfounded for unreachable nodes.
func (t *trial) unfoundedUnreachable(c *change, m revisions.Moment, ng *v1alpha1.NodeGate, wasOpen bool) string {
	switch {
	case !facts.IsUnreachable(m.Node(c.name)):
		return "the node's Ready condition is not Unknown"
	case !wasOpen:
		return ""
	case effectOf(ng) == corev1.TaintEffectNoExecute:
		return "a gate with NoExecute does not close on an unreachable node"
	case t.certainlyPartitioned(c, facts.ZoneOf(m.Node(c.name))):
		return "the node's zone may be partitioned: most of its nodes are unreachable"
	}
	return ""
}

// unfoundedUnobserved is unfounded for a boot whose start was not observed.
func (t *trial) unfoundedUnobserved(c *change, m revisions.Moment, ng *v1alpha1.NodeGate) string {
	if effectOf(ng) == corev1.TaintEffectNoExecute {
		return "a gate with NoExecute does not close for a boot whose start was not observed"
	}
	if why := t.noneLost(c, m, ng, true); why != "" {
		return "the start of the boot was not observed, and no signal is false: " + why
	}
	return ""
}

// since returns the moment or, if it is earlier than the creation of the gate, the
// moment of the creation: nodegate did not read pods for the gate before that.
func (t *trial) since(m revisions.Moment, ng *v1alpha1.NodeGate) revisions.Moment {
	if versions := t.VersionsOf(revisions.ID{Kind: revisions.KindNodeGate, Name: ng.Name}); len(versions) > 0 {
		m.Revision = max(m.Revision, versions[len(versions)-1].Created)
	}
	return m
}

// longAgo returns how long ago the node's boot began, or "" if it is recent enough for
// closing without budget.
func (t *trial) longAgo(c *change, m revisions.Moment) string {
	l := t.evaluator(m, c.name, t.Earliest(c.revision), true)
	current := l.boots.current(l.node)
	age := t.Earliest(c.revision).Sub(t.Latest(current.from))
	if age > provenAfter+t.Lag {
		return fmt.Sprintf("the boot began %s ago, and closing for it needs budget", age.Round(time.Second))
	}
	return ""
}

// effectOf returns the effect of the taint with which the gate recloses.
func effectOf(ng *v1alpha1.NodeGate) corev1.TaintEffect {
	if ng.Spec.RecloseTaint != nil {
		return ng.Spec.RecloseTaint.Effect
	}
	return ng.Spec.Taint.Effect
}

// unfoundedBySignals is unfounded for the reasons that need budget.
func (t *trial) unfoundedBySignals(c *change, m revisions.Moment, ng *v1alpha1.NodeGate, before record, reason v1alpha1.Reason) string {
	existing := ng.Spec.ExistingNodes
	wants := false
	switch reason {
	case v1alpha1.ReasonSignalsHold:
		r, why := t.evaluator(m, c.name, t.Latest(c.revision), false).all(ng.Spec.CloseWhen)
		if wants = ng.Spec.Follows(); wants && r != holds && r != notJudged {
			return why
		}
	case v1alpha1.ReasonRegression:
		wants = ng.Spec.ReclosePolicy == v1alpha1.RecloseOnRegression
		if why := t.noneLost(c, m, ng, true); wants && why != "" {
			return "no signal has stopped holding: " + why
		}
	case v1alpha1.ReasonExisting, v1alpha1.ReasonExistingIdle:
		wants = existing == v1alpha1.ExistingCloseIfIdle || existing == v1alpha1.ExistingClose && reason == v1alpha1.ReasonExisting
		if why := t.unfoundedExisting(c, m, ng, before, reason); wants && why != "" {
			return why
		}
	default:
		return "this is not a reason for closing"
	}
	if !wants {
		return "the gate's spec does not close it for this reason"
	}
	return ""
}

// unfoundedExisting is unfounded for nodes that existed before the gate. The signals matter when
// such a node becomes a member, but not when the reason of a closed gate changes. The node had no
// record, so nodegate need not know what is from before its boot.
func (t *trial) unfoundedExisting(c *change, m revisions.Moment, ng *v1alpha1.NodeGate, before record, reason v1alpha1.Reason) string {
	switch {
	case reason == v1alpha1.ReasonExistingIdle && slices.ContainsFunc(t.since(m, ng).Pods(c.name), facts.IsWorkload):
		return "a workload is on the node"
	case before.State == v1alpha1.StateClosed, t.noneLost(c, m, ng, true) == "":
		return ""
	}
	if why := t.noneLost(c, m, ng, false); why != "" {
		return "no signal is false: " + why
	}
	return ""
}

// noneLost returns why the signals of an openWhen gate do not close it: all hold, or those that do
// not are unknown. It returns "" otherwise. Time may have passed since nodegate read the signals.
func (t *trial) noneLost(c *change, m revisions.Moment, ng *v1alpha1.NodeGate, evidence bool) (why string) {
	for _, now := range []time.Time{t.Earliest(c.revision).Add(-t.Lag), t.Latest(c.revision)} {
		r, because := t.evaluator(m, c.name, now, evidence).all(ng.Spec.OpenWhen)
		if r != holds && r != unknown {
			return ""
		}
		why = cmp.Or(because, "all hold")
	}
	return why
}

// budget returns the number of nodes in the node's zone that count against the gate's
// budget, and the highest number that any moment of the window allows. Nodes that were
// moved to the zone within the window do not count.
func (t *trial) budget(c *change, gate string, counts func(node *corev1.Node, gate string) bool) (n, allowed int) {
	window := t.window(c)
	zone := facts.ZoneOf(c.after)
	for _, m := range t.ofGate(window, c, gate) {
		if ng := m.Gate(gate); ng != nil {
			allowed = max(allowed, maxReclosed(ng, m, zone))
		}
	}
	for _, node := range t.Moment(c.revision).AllNodes() {
		if !counts(node, gate) || facts.ZoneOf(node) != zone {
			continue
		}
		moved := slices.ContainsFunc(window, func(m revisions.Moment) bool {
			earlier := m.Node(node.Name)
			return earlier != nil && earlier.UID == node.UID && facts.ZoneOf(earlier) != zone
		})
		if !moved {
			n++
		}
	}
	return n, allowed
}

// maxReclosed returns how many nodes of a zone may be closed under the gate's budget.
func maxReclosed(ng *v1alpha1.NodeGate, m revisions.Moment, zone string) int {
	selected := 0
	for _, node := range m.AllNodes() {
		if facts.ZoneOf(node) == zone && facts.Selects(ng, node) {
			selected++
		}
	}
	budget := intstr.FromString("20%")
	if ng.Spec.Budget.MaxReclosed != nil {
		budget = *ng.Spec.Budget.MaxReclosed
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(&budget, selected, true)
	if err != nil {
		return 0
	}
	return n
}
