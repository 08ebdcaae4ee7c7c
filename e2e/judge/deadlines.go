// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/facts"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// unjustifiedByDeadline returns why no deadline opens the gate, or "" if one does. A gate that was
// open already stays open in a new boot, for which it needs its signals.
func (t *trial) unjustifiedByDeadline(c *change, name string, before record) string {
	switch before.State {
	case v1alpha1.StateOpen:
		return t.unjustifiedBySignals(c, name, before)
	case "":
		return "the gate was not closed"
	}
	return whyNone(t.ofGate(t.windowOfBoot(c), c, name), func(m revisions.Moment) string {
		ng, blocked := m.Gate(name), facts.Blocked(m.Node(c.name))
		switch {
		case ng == nil || ng.Spec.Deadline == nil || ng.Spec.Deadline.Action != v1alpha1.DeadlineOpen:
			return "no deadline opens the gate"
		case blocked != "" || t.returnsOverdue(c, name, before):
			return blocked
		}
		return t.notOverdue(c, ng, before)
	})
}

// returnsOverdue reports whether the node returns without a reboot, and the gate's deadline had
// opened it before it closed for that outage.
func (t *trial) returnsOverdue(c *change, gate string, before record) bool {
	return before.Overdue && before.returned(c.before) && t.lastOpening(c, gate) == v1alpha1.ReasonDeadlinePassed
}

// lastOpening returns the reason for which the gate was open last, before it closed. It is
// DeadlinePassed if the history does not show that.
func (t *trial) lastOpening(c *change, gate string) v1alpha1.Reason {
	for _, v := range slices.Backward(t.VersionsOf(revisions.ID{Kind: revisions.KindNode, Name: c.name})) {
		node, _ := v.Object.(*corev1.Node)
		if v.Revision >= c.revision || node == nil || node.UID != c.before.UID {
			continue
		}
		if r, _ := recordOf(node, gate); r.State == v1alpha1.StateOpen {
			return r.Reason
		}
	}
	return v1alpha1.ReasonDeadlinePassed
}

// notOverdue returns why a closed gate's deadline has not passed, or "" if it may have.
func (t *trial) notOverdue(c *change, ng *v1alpha1.NodeGate, before record) (why string) {
	d, ran := ng.Spec.Deadline, t.ranFor(c, ng.Name, before)
	missing := before.Overdue || slices.ContainsFunc(t.window(c), func(m revisions.Moment) bool {
		return t.evaluator(m, c.name, time.Time{}, false).lacksPod(ng)
	})
	why = "no required pod is missing"
	for _, limit := range []struct {
		seconds *int32
		applies bool
	}{{d.ReadySeconds, true}, {d.PodMissingSeconds, missing}} {
		if limit.seconds == nil || !limit.applies {
			continue
		}
		short := time.Duration(*limit.seconds)*time.Second - ran
		if short <= time.Second { // clocks differ
			return ""
		}
		why = fmt.Sprintf("the deadline passes %s later", short.Round(time.Millisecond))
	}
	return why
}

// ranFor returns how long a deadline's clock can have run at most: since the gate closed, in the
// current boot, and not while the node was unreachable.
func (t *trial) ranFor(c *change, gate string, before record) time.Duration {
	since := before.Since
	if since.IsZero() {
		since = c.before.CreationTimestamp.Time
	}
	if facts.Blocked(c.before) == "" { // otherwise, nodegate may not have adopted the boot yet
		since = revisions.Later(since, t.bootsOf(c.name).current(c.before).since)
	}
	stopped := max(time.Duration(before.SilentFor)*time.Second, t.outages().Certain(c.before, since, c.revision, func(from time.Time) bool { return t.keptClock(c, gate, from) }))
	return t.Latest(c.revision).Sub(since) - stopped
}

// keptClock reports whether the gate had a deadline, and was neither paused nor in dry run, from a
// time until a change. Otherwise, outages do not stop the clock.
func (t *trial) keptClock(c *change, gate string, from time.Time) bool {
	for _, v := range slices.Backward(t.VersionsOf(revisions.ID{Kind: revisions.KindNodeGate, Name: gate})) {
		if v.Revision >= c.revision {
			continue
		}
		if ng, ok := v.Object.(*v1alpha1.NodeGate); !ok || ng.Spec.Deadline == nil || !ng.Spec.Enforces() {
			return false
		}
		if t.Latest(v.Revision).Before(from.Add(-t.Lag)) {
			break
		}
	}
	return true
}

// lacksPod reports whether a pod that the gate requires may be missing on the node. A pod that is
// terminating may or may not be.
func (l evaluator) lacksPod(ng *v1alpha1.NodeGate) bool {
	return slices.ContainsFunc(ng.Spec.OpenWhen, func(s v1alpha1.Signal) bool {
		if len(s.AnyOf) == 0 {
			return l.lacks(&s.SignalSource)
		}
		return !slices.ContainsFunc(s.AnyOf, func(a v1alpha1.NamedSource) bool { return !l.lacks(&a.SignalSource) })
	})
}

// lacks is lacksPod for one signal, or one of its alternatives.
func (l evaluator) lacks(s *v1alpha1.SignalSource) bool {
	switch {
	case s.DaemonSet != nil:
		return !slices.ContainsFunc(l.DaemonSets(), func(ds *appsv1.DaemonSet) bool {
			return ds.Namespace == s.DaemonSet.Namespace && ds.Name == s.DaemonSet.Name && l.hasPodOf(ds)
		})
	case s.DaemonSets != nil:
		return slices.ContainsFunc(l.DaemonSets(), func(ds *appsv1.DaemonSet) bool { return l.requires(s.DaemonSets, ds) && !l.hasPodOf(ds) })
	case s.Pods != nil:
		selector, err := s.Pods.Selector.AsSelector()
		return err != nil || !l.hasPod(s.Pods.Namespace, selector, func(pod *corev1.Pod) bool { return !facts.IsFinished(pod) })
	case s.Completed != nil:
		selector, err := s.Completed.Selector.AsSelector()
		return err != nil || !l.hasPod(s.Completed.Namespace, selector, func(*corev1.Pod) bool { return true })
	}
	return false
}

// hasPodOf reports whether a pod of the DaemonSet certainly exists on the node, ready or not.
func (l evaluator) hasPodOf(ds *appsv1.DaemonSet) bool {
	selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
	return err == nil && l.hasPod(ds.Namespace, selector, func(pod *corev1.Pod) bool { return notOf(ds, pod) == "" })
}

// hasPod reports whether such a pod certainly exists on the node.
func (l evaluator) hasPod(namespace string, selector labels.Selector, counts func(*corev1.Pod) bool) bool {
	return slices.ContainsFunc(l.Pods(l.node.Name), func(pod *corev1.Pod) bool {
		return pod.Namespace == namespace && selector.Matches(labels.Set(pod.Labels)) && pod.DeletionTimestamp == nil && !facts.IsMirror(pod) && counts(pod)
	})
}

// judgeOverdue judges that a record shows that the gate's deadline has passed only when it has
// (S4). A gate that its deadline opened remains overdue when it closes for an outage.
func (t *trial) judgeOverdue(c *change, gate string, before, after record) {
	opened := before.State == v1alpha1.StateOpen && before.Reason == v1alpha1.ReasonDeadlinePassed
	if !after.Overdue || before.Overdue || after.State != v1alpha1.StateClosed || opened && after.awaitsBoot() {
		return
	}
	t.checked(RuleClosing, "deadlines that have passed")
	why := whyNone(t.specs(c, gate), func(ng *v1alpha1.NodeGate) string {
		switch {
		case ng == nil || ng.Spec.Deadline == nil:
			return "the gate has no deadline"
		case before.State != v1alpha1.StateClosed:
			return "the gate was not closed"
		}
		return t.notOverdue(c, ng, before)
	})
	if why != "" {
		t.violation(RuleClosing, c, gate, "nodegate records that the gate's deadline has passed", "%s", why)
	}
}

// judgeFinalDeadline judges a node on which a gate is closed and a signal does not hold (L): its
// deadline must not have passed unless the record shows that, and must not open the gate.
func (t *trial) judgeFinalDeadline(node *corev1.Node, ng *v1alpha1.NodeGate, r record) {
	d, wait := ng.Spec.Deadline, t.Quiet+heartbeatSkew
	if d == nil || r.Override != "" || facts.Blocked(node) != "" || !t.couldOpen(node, ng, wait) {
		return
	}
	since := revisions.Later(revisions.Later(r.Since, t.bootsOf(node.Name).current(node).since), node.CreationTimestamp.Time)
	passed := func(seconds *int32) bool {
		return seconds != nil && !t.End.Before(since.Add(time.Duration(int64(*seconds)+r.SilentFor)*time.Second+wait))
	}
	if !passed(d.ReadySeconds) && (!passed(d.PodMissingSeconds) || !t.lackedPod(node, ng, wait)) {
		return
	}
	t.checked(RuleQuiet, "nodes on which a gate is closed after its deadline")
	switch {
	case d.Action == v1alpha1.DeadlineOpen:
		t.finalViolation(node, ng.Name, r, "its deadline opens it, and has passed")
	case !r.Overdue:
		t.finalViolation(node, ng.Name, r, "its deadline has passed, and its record does not show it")
	}
}

// lackedPod reports whether a pod that the gate requires was certainly missing on the node for a
// while before the end: the node had no pods at all.
func (t *trial) lackedPod(node *corev1.Node, ng *v1alpha1.NodeGate, wait time.Duration) bool {
	return !slices.ContainsFunc(t.Relevant(node.Name, t.End.Add(-wait), t.To+1), func(revision int64) bool {
		l := t.evaluator(t.Moment(revision), node.Name, time.Time{}, false)
		return len(l.Pods(node.Name)) > 0 || !l.lacksPod(ng)
	})
}

// couldOpen reports whether the node has not been blocked, and the gate not been edited, for a
// while before the end.
func (t *trial) couldOpen(node *corev1.Node, ng *v1alpha1.NodeGate, wait time.Duration) bool {
	for _, revision := range t.Relevant(node.Name, t.End.Add(-wait), t.To+1) {
		m := t.Moment(revision)
		then, gate := m.Node(node.Name), m.Gate(ng.Name)
		if then == nil || then.UID != node.UID || facts.Blocked(then) != "" || gate == nil || gate.UID != ng.UID || gate.Generation != ng.Generation {
			return false
		}
	}
	return true
}
