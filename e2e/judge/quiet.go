// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/facts"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// judgeQuiet judges the final state, node by node and gate by gate (L).
func (t *trial) judgeQuiet() {
	m := t.Moment(t.To)
	for _, node := range m.AllNodes() {
		for _, ng := range m.Gates() {
			t.judgeFinal(node, ng)
		}
		for _, name := range recordsOf(node) {
			if r, _ := recordOf(node, name); m.Gate(name) == nil {
				t.checked(RuleQuiet, "records of gates that do not exist")
				t.finalViolation(node, name, r, "the gate does not exist")
			}
		}
		t.judgeFinalTaints(node)
		t.judgeLeftTaints(node)
		t.judgeFinalConditions(node)
	}
	t.judgeRepeats()
}

// repeats is the number of patches of one version of a Node that may change nothing.
// There may be some, because each of two leaders may repeat a patch of the other.
const repeats = 3

// judgeRepeats judges that nodegate does not patch a Node repeatedly without effect.
// Such a patch is answered with the Node's current revision.
func (t *trial) judgeRepeats() {
	for _, v := range t.Nodes() {
		answered := t.Writes(v.Revision)
		if v.Revision < t.From || v.Object == nil || len(answered) == 0 {
			continue
		}
		patches, last := 0, revisions.Write{}
		for _, w := range answered[1:] {
			if w.User == t.Controller && w.Verb == "patch" {
				patches, last = patches+1, w
			}
		}
		if patches > repeats {
			t.violation(RuleQuiet, &change{revision: v.Revision, name: v.Name, by: last, known: true}, "",
				fmt.Sprintf("%d patches changed nothing", patches), "a Node in its desired state must not be patched")
		}
	}
}

// finalViolation adds a violation in the final state to the verdict.
func (t *trial) finalViolation(node *corev1.Node, gate string, r record, why string) {
	state := r.effective()
	if state == "" {
		state = "without a record"
	}
	c := &change{revision: t.To, name: node.Name}
	t.violation(RuleQuiet, c, gate, fmt.Sprintf("finally the gate is %s (%s)", state, r.Reason), "%s", why)
	found := &t.verdict.Violations[len(t.verdict.Violations)-1]
	found.At, found.Who = t.End, ""
}

// judgeFinal judges one gate on one node.
func (t *trial) judgeFinal(node *corev1.Node, ng *v1alpha1.NodeGate) {
	r, recorded := recordOf(node, ng.Name)
	member := facts.Selects(ng, node)
	if why := t.unjudged(node, ng); why != "" && (member || recorded) {
		t.notJudged(RuleQuiet, why)
		return
	}
	o, inForce := facts.OverrideOf(node, ng.Name, t.End)
	switch {
	case !member || !ng.Spec.Enforces():
		if recorded && !t.leaving(node, ng) {
			t.checked(RuleQuiet, "nodes that are not members of the gate")
			t.finalViolation(node, ng.Name, r, "the gate does not select the node, or is in dry run")
		}
	case inForce:
		t.checked(RuleQuiet, "nodes under an override")
		if r.effective() != o.State {
			t.finalViolation(node, ng.Name, r, "an override requests "+o.State)
		}
	case r.Override != "":
		t.checked(RuleQuiet, "nodes under an override")
		t.finalViolation(node, ng.Name, r, "this is due to an override that is not in force")
	case ng.Spec.Follows():
		t.judgeFinalLevel(node, ng, r)
	default:
		t.judgeFinalGate(node, ng, r, recorded)
	}
}

// unjudged returns why the final state of a gate on a node is not judged, or "" if it
// is.
func (t *trial) unjudged(node *corev1.Node, ng *v1alpha1.NodeGate) string {
	switch {
	case ng.Spec.Mode == v1alpha1.ModePaused:
		return "nodes of paused gates"
	case ng.Spec.Mode == v1alpha1.ModeDryRun:
		return ""
	case t.contended(node, ng):
		return "nodes of gates that are contended"
	case !hasCondition(ng, v1alpha1.ConditionAccepted, metav1.ConditionTrue):
		return "nodes of gates that are not accepted"
	}
	return ""
}

// contended reports whether the gate is Contended and other writers have written its
// taint on the node more than once.
func (t *trial) contended(node *corev1.Node, ng *v1alpha1.NodeGate) bool {
	return meta.IsStatusConditionTrue(ng.Status.Conditions, v1alpha1.ConditionContended) &&
		slices.ContainsFunc(ng.Spec.Taints(), func(own v1alpha1.Taint) bool { return t.foreignTaints[taintOf{node.Name, own.Key, own.Effect}] > 1 })
}

// taintOf identifies a taint of a Node by key and effect.
type taintOf struct {
	node, key string
	effect    corev1.TaintEffect
}

// noteForeignTaints counts the taints that another writer adds or removes.
func (t *trial) noteForeignTaints(c *change) {
	if c.own || c.before == nil {
		return
	}
	for _, taint := range slices.Concat(c.before.Spec.Taints, c.after.Spec.Taints) {
		if carries(c.before, taint) != carries(c.after, taint) {
			t.foreignTaints[taintOf{c.name, taint.Key, taint.Effect}]++
		}
	}
}

// leaving reports whether the gate selected the node so recently that the node may
// still be a member.
func (t *trial) leaving(node *corev1.Node, ng *v1alpha1.NodeGate) bool {
	if !ng.Spec.Enforces() || node.Labels[v1alpha1.OptOutLabel] == v1alpha1.OptOutValue {
		return false
	}
	for _, revision := range t.Relevant(node.Name, t.End.Add(-leavesAfter-t.Quiet), t.To+1) {
		m := t.Moment(revision)
		if then, spec := m.Node(node.Name), m.Gate(ng.Name); then != nil && spec != nil && facts.Selects(spec, then) {
			return true
		}
	}
	return false
}

// judgeFinalTaints judges that taints and records agree.
func (t *trial) judgeFinalTaints(node *corev1.Node) {
	m := t.Moment(t.To)
	for _, ng := range m.Gates() {
		r, recorded := recordOf(node, ng.Name)
		if !ng.Spec.Enforces() || !hasCondition(ng, v1alpha1.ConditionAccepted, metav1.ConditionTrue) || t.contended(node, ng) || !facts.Selects(ng, node) {
			continue
		}
		t.checked(RuleQuiet, "nodes' taints of a gate")
		why := ""
		if r.closed() {
			why = closedWrongly(node, ng, r)
		} else if (recorded || ng.Spec.Follows() && ng.Spec.Reopen != v1alpha1.ReopenManual) && hasUnrecordedTaint(node, ng) {
			why = "its taint is present"
		}
		if why != "" {
			t.finalViolation(node, ng.Name, r, why)
		}
	}
}

// steady returns the reading of the gate's signals in the final state. The result
// steady is false if the reading or the gate's record has changed within wait.
func (t *trial) steady(node *corev1.Node, ng *v1alpha1.NodeGate, wait time.Duration) (result reading, why string, steady bool) {
	record, _ := recordOf(node, ng.Name)
	for i, revision := range t.Relevant(node.Name, t.End.Add(-wait), t.To+1) {
		m := t.Moment(revision)
		then := m.Node(node.Name)
		if then == nil || then.UID != node.UID {
			return result, why, false
		}
		if was, _ := recordOf(then, ng.Name); was.effective() != record.effective() {
			return result, why, false
		}
		// A reading can change by time alone, so it is also evaluated Quiet before the end.
		for _, now := range []time.Time{t.End, t.End.Add(-t.Quiet)} {
			r, because := t.reads(m, node.Name, ng, now)
			if i == 0 && now.Equal(t.End) {
				result, why = r, because
			} else if r != result {
				return result, why, false
			}
		}
	}
	return result, why, true
}

// reads returns the combined reading of the gate's signals on a node.
func (t *trial) reads(m revisions.Moment, node string, ng *v1alpha1.NodeGate, now time.Time) (reading, string) {
	if ng.Spec.Follows() {
		return t.evaluator(m, node, now, false).all(ng.Spec.CloseWhen)
	}
	result, why := t.evaluator(m, node, now, true).all(ng.Spec.OpenWhen)
	if no := facts.Blocked(m.Node(node)); result == holds && no != "" {
		return unknown, no
	}
	return result, why
}

// judgeFinalGate judges the final state of an openWhen gate on a node.
func (t *trial) judgeFinalGate(node *corev1.Node, ng *v1alpha1.NodeGate, r record, recorded bool) {
	timing := &ng.Spec.Timing
	wait := t.Quiet
	if r.closed() {
		wait += time.Duration(max(timing.MinClosedSeconds, timing.OpenAfterSeconds)) * time.Second
		if timing.OpenAfterSeconds > 0 {
			wait += heartbeatSkew
		}
	}
	result, why, steady := t.steady(node, ng, wait)
	switch {
	case !steady:
		t.notJudged(RuleQuiet, "nodes of which something changed just before the end")
		return
	case result == notJudged:
		t.notJudged(RuleQuiet, why)
		return
	}
	switch {
	case !recorded:
		t.judgeUnrecorded(node, ng, result)
	case r.closed():
		t.checked(RuleQuiet, "nodes on which a gate is closed")
		switch {
		case result == holds && ng.Spec.OpenTogether != nil:
			t.judgeFinalGroup(node, ng, r)
		case result == holds:
			t.finalViolation(node, ng.Name, r, "all signals have held for long enough")
		case result == notYet:
			t.judgeFinalDeadline(node, ng, r)
		}
	default:
		t.checked(RuleQuiet, "nodes on which a gate is open")
		t.judgeFinalOpen(node, ng, r, result)
		t.judgeFinalLoss(node, ng, r)
	}
}

// judgeUnrecorded judges a node that the gate selects and that has no record of it.
func (t *trial) judgeUnrecorded(node *corev1.Node, ng *v1alpha1.NodeGate, result reading) {
	t.checked(RuleQuiet, "nodes without a record of a gate that selects them")
	isNew := !node.CreationTimestamp.Before(&ng.CreationTimestamp) && t.End.Sub(node.CreationTimestamp.Time) < newFor-t.Quiet
	existing := ng.Spec.ExistingNodes
	switch {
	case isNew:
		t.finalViolation(node, ng.Name, record{}, "the node is new to the gate")
	case hasUnrecordedTaint(node, ng):
		t.finalViolation(node, ng.Name, record{}, "the node carries the gate's taint but is not adopted")
	case result == holds && existing != "" && existing != v1alpha1.ExistingIgnore:
		t.finalViolation(node, ng.Name, record{}, "its signals hold, and the gate adopts existing nodes")
	case result == notYet && existing == v1alpha1.ExistingClose && facts.Blocked(node) == "" && t.hasBudget(node, ng):
		t.finalViolation(node, ng.Name, record{}, "the gate closes existing nodes, and there is budget")
	}
}

// judgeFinalOpen judges a node on which a gate is open.
func (t *trial) judgeFinalOpen(node *corev1.Node, ng *v1alpha1.NodeGate, r record, result reading) {
	effect := effectOf(ng)
	boot := node.Status.NodeInfo.BootID
	switch {
	case ng.Spec.ReclosePolicy == v1alpha1.RecloseNever:
	case r.Boot != "" && boot != "" && r.Boot != boot:
		t.judgeUnseenBoot(node, ng, r, result)
	case facts.IsShuttingDown(node):
		t.finalViolation(node, ng.Name, r, "the node is shutting down")
	case facts.IsUnreachable(node) && effect != corev1.TaintEffectNoExecute && !partitioned(t.Moment(t.To), facts.ZoneOf(node)):
		t.finalViolation(node, ng.Name, r, "the node's Ready condition is Unknown")
	case ng.Spec.ReclosePolicy == v1alpha1.RecloseOnRegression && result == notYet && r.Reason != v1alpha1.ReasonDeadlinePassed:
		t.judgeRegressed(node, ng, r)
	}
}

// judgeUnseenBoot judges an open gate whose record is from an earlier boot. If the
// start of the boot was not observed, the gate may wait for its signals, for budget,
// and for the minute after which pods from before the boot count. A gate with NoExecute
// does not close for such a boot, and waits for the minute regardless of its signals.
func (t *trial) judgeUnseenBoot(node *corev1.Node, ng *v1alpha1.NodeGate, r record, reads reading) {
	if effectOf(ng) == corev1.TaintEffectNoExecute {
		t.notJudged(RuleQuiet, unjudgedBoot)
		return
	}
	waits := reads == unknown || reads == notYet && !t.hasBudget(node, ng) || reads == holds && facts.ReadyStatus(node) != corev1.ConditionTrue
	if !waits {
		t.finalViolation(node, ng.Name, r, "the node has rebooted since then")
	}
}

// judgeRegressed judges an open gate with a signal that does not hold: it must close
// when one of its signals has not held for closeAfterSeconds, if there is budget.
func (t *trial) judgeRegressed(node *corev1.Node, ng *v1alpha1.NodeGate, r record) {
	for i := range ng.Spec.OpenWhen {
		wait := secondsOr(ng.Spec.Timing.CloseAfterSeconds, 120)
		if s := &ng.Spec.OpenWhen[i]; s.DaemonSet != nil || s.DaemonSets != nil || s.Pods != nil || s.AnyOf != nil {
			wait = max(wait, secondsOr(ng.Spec.Timing.RolloutGraceSeconds, 600))
		}
		alone := *ng
		alone.Spec.OpenWhen = ng.Spec.OpenWhen[i : i+1]
		if result, why, steady := t.steady(node, &alone, t.Quiet+wait); steady && result == notYet && t.hasBudget(node, ng) {
			t.finalViolation(node, ng.Name, r, "a signal has regressed, and there is budget: "+why)
			return
		}
	}
}

func secondsOr(n *int32, otherwise int32) time.Duration {
	if n != nil {
		otherwise = *n
	}
	return time.Duration(otherwise) * time.Second
}

// judgeFinalLevel judges the final state of a closeWhen gate on a node.
func (t *trial) judgeFinalLevel(node *corev1.Node, ng *v1alpha1.NodeGate, r record) {
	timing := &ng.Spec.Timing
	wait := t.Quiet
	if r.closed() {
		wait += time.Duration(max(timing.MinClosedSeconds, timing.OpenAfterSeconds)) * time.Second
	}
	result, why, steady := t.steady(node, ng, wait)
	manual := ng.Spec.Reopen == v1alpha1.ReopenManual
	switch {
	case !steady:
		t.notJudged(RuleQuiet, "nodes of which something changed just before the end")
	case ng.Spec.Taint.Key == v1alpha1.TaintOutOfService:
		t.judgeFinalDetached(node, ng, r)
	case result == notJudged:
		t.notJudged(RuleQuiet, why)
	case result == unknown:
		t.notJudged(RuleQuiet, "closeWhen gates with an unknown signal")
	case result == holds && !r.closed():
		t.checked(RuleQuiet, "nodes on which a closeWhen gate must close")
		if t.hasBudget(node, ng) && (!manual || r.Reason != v1alpha1.ReasonOpenedByHand) {
			t.finalViolation(node, ng.Name, r, "all signals of the closeWhen gate hold, and there is budget")
		}
	case result == notYet && r.closed() && !manual:
		t.checked(RuleQuiet, "nodes on which a closeWhen gate must open")
		t.finalViolation(node, ng.Name, r, "a signal of the closeWhen gate does not hold: "+why)
	default:
		t.checked(RuleQuiet, "nodes of a closeWhen gate")
	}
}

// judgeFinalDetached judges the final state of a gate that detaches volumes. Whether it must close
// is not judged.
func (t *trial) judgeFinalDetached(node *corev1.Node, ng *v1alpha1.NodeGate, r record) {
	if facts.IsUnreachable(node) {
		t.notJudged(RuleQuiet, "unreachable nodes of gates that detach volumes")
		return
	}
	t.checked(RuleQuiet, "reachable nodes of gates that detach volumes")
	if r.closed() {
		t.finalViolation(node, ng.Name, r, "the node has returned, so its volumes must not be detached")
	}
}

// hasBudget reports whether one more node of the zone could be closed in the final
// state.
func (t *trial) hasBudget(node *corev1.Node, ng *v1alpha1.NodeGate) bool {
	return t.admits(node, ng, isClosedUnderBudget)
}

// admits reports whether the gate's budget allows, in the final state, one more of the nodes of
// the node's zone that count.
func (t *trial) admits(node *corev1.Node, ng *v1alpha1.NodeGate, counts func(node *corev1.Node, gate string) bool) bool {
	m, zone, n := t.Moment(t.To), facts.ZoneOf(node), 0
	for _, other := range m.AllNodes() {
		if facts.ZoneOf(other) == zone && counts(other, ng.Name) {
			n++
		}
	}
	return n < maxReclosed(ng, m, zone)
}
