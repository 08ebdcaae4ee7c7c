// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/signal"
)

// messageMax bounds a condition's message: the API server refuses one of more
// than 32 KiB, and nobody reads one of more than a screen.
const messageMax = 2048

// observed is what all gates' conditions rest on at one moment.
type observed struct {
	set  *gateSet
	sets *gate.DaemonSets
	// deadlocks are what these two may come to, by gate.
	deadlocks map[string][]signal.Deadlock
}

// observe comes after an earlier look, which may be nil.
func (c *Controller) observe(set *gateSet, before *observed) *observed {
	sets := c.feed.DaemonSets()
	if before != nil && before.set == set && before.sets == sets {
		return before
	}
	return &observed{set: set, sets: sets, deadlocks: signal.Deadlocks(set.gates, sets)}
}

// feedsError says what is not observed at present of what these needs take: a
// feed that fails is no other gate's business.
func (c *Controller) feedsError(needs gate.Needs) error {
	if err := c.feed.GatesError(); err != nil {
		return err
	}
	var reading, failing few
	var failure error
	for _, s := range c.feed.StatusOf(needs) {
		reading.addIf(!s.Synced && s.Err == nil, s.Name)
		if failing.addIf(s.Err != nil, s.Name); s.Err != nil && failing.first[0] == s.Name {
			failure = s.Err
		}
	}
	switch {
	case failure != nil:
		return fmt.Errorf("cannot observe %s: %w", failing, failure)
	case reading.count > 0:
		return fmt.Errorf("not observed yet: %s", reading)
	}
	return nil
}

// status says how a gate fares.
func (c *Controller) status(o *observed, ng *v1alpha1.NodeGate, last *reported, s *summary) v1alpha1.NodeGateStatus {
	out := *last.status.DeepCopy()
	out.ObservedGeneration, out.Nodes, out.Waiting = ng.Generation, s.counts, s.waiting
	condition := func(kind string, holds bool, reason, message string) {
		status := metav1.ConditionFalse
		if holds {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&out.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: clip(message, messageMax), ObservedGeneration: ng.Generation,
			LastTransitionTime: metav1.NewTime(c.clock.Now()),
		})
	}
	unless := func(none bool, kind, reason, message string) {
		if none {
			meta.RemoveStatusCondition(&out.Conditions, kind)
			return
		}
		condition(kind, true, reason, message)
	}
	tried := ""
	if ng.Spec.Mode == v1alpha1.ModeDryRun {
		tried = "in this dry run, where no node is changed: "
	}
	a := o.set.acceptance[ng.Name]
	condition(v1alpha1.ConditionAccepted, a.Accepted, a.Reason, a.Message)
	ready, reason, message := c.ready(o, ng, s)
	condition(v1alpha1.ConditionReady, ready, reason, message)
	if c.tally.isSettled(ng.Name) {
		out.Nodes.Throttled = int32(s.throttled.count)
		unless(s.throttled.count == 0, v1alpha1.ConditionThrottled, v1alpha1.ReasonThrottled, tried+s.throttledMessage(ng))
	} else { // what was known before the fleet is looked at stands
		out.Nodes.Throttled = last.status.Nodes.Throttled
	}
	unless(s.contended.count == 0, v1alpha1.ConditionContended, v1alpha1.ReasonContended, fmt.Sprintf(
		"another writer keeps undoing the taint on %s; %s", s.contended, last.other))
	unless(s.overdue.count+s.lapsed.count == 0, v1alpha1.ConditionOverdue, v1alpha1.ReasonOverdue, tried+s.overdueMessage())
	return out
}

// throttledMessage says which nodes wait for budget, and what is wrong with them.
func (s *summary) throttledMessage(ng *v1alpha1.NodeGate) string {
	message := fmt.Sprintf("closing waits on %s: as many nodes of their zone are closed as budget.maxReclosed (%s) allows",
		s.throttled, ng.Spec.Budget.MaxReclosed)
	if s.lost != "" {
		message += "; " + s.lost
	}
	return message
}

// ready says whether all is well with a gate, in the order in which things
// have to be put right.
func (c *Controller) ready(o *observed, ng *v1alpha1.NodeGate, s *summary) (ok bool, reason, message string) {
	if a := o.set.acceptance[ng.Name]; !a.Accepted {
		return false, v1alpha1.ReasonNotAccepted, a.Message
	}
	g, known := o.set.gate(ng.Name)
	if !known {
		return false, v1alpha1.ReasonFeedsNotSynced, "the gate is not compiled yet"
	}
	if g.Mode == v1alpha1.ModePaused {
		return true, v1alpha1.ReasonPaused, pausedMessage(s)
	}
	if err := c.feedsError(g.Needs(o.sets)); err != nil {
		return false, v1alpha1.ReasonFeedsNotSynced, err.Error()
	}
	if missing := c.rights.missingFor(&ng.Spec); missing != "" {
		return false, v1alpha1.ReasonPermissionMissing, missing
	}
	remarks, taints := remarks(g, s), g.Taints()
	for _, named := range g.Signals {
		r := signal.Diagnose(named.Signal, taints, o.sets)
		remark := fmt.Sprintf("signal %s: %s", named.Name, r.Message())
		switch {
		case r.State == gate.NotYet:
			return false, string(r.Reason), remark
		case r.State == gate.Holds && r.Reason != "":
			remarks += "; " + remark
		}
	}
	if deadlock := c.deadlocked(o, g); deadlock != "" {
		return false, v1alpha1.ReasonGatesDeadlocked, deadlock
	}
	if s.denied.count > 0 {
		return false, v1alpha1.ReasonWriteDenied, fmt.Sprintf("the API server denies writing %s: %s", s.denied, s.denial)
	}
	if g.Mode == v1alpha1.ModeDryRun {
		return true, v1alpha1.ReasonInDryRun, "no node is changed, and new ones are not closed: nodes and waiting tell what would be" + remarks + doubts(s)
	}
	if ng.Spec.Follows() {
		return true, v1alpha1.ReasonReady, "everything that closes and opens nodes is observed" + doubts(s) + overrides(s)
	}
	if err := c.birth.proved(ng); err != nil {
		return false, v1alpha1.ReasonBirthNotProved, err.Error()
	}
	return true, v1alpha1.ReasonReady, "new nodes are closed by the API server, and everything that opens them is observed" + remarks + overrides(s)
}

// remarks tell what is not wrong with a gate, and may still not be what its
// author meant.
func remarks(g *gate.Gate, s *summary) string {
	switch {
	case s.counts.Selected == 0:
		return "; nodeSelector selects no node at present"
	case s.outside.count > 0:
		return fmt.Sprintf("; outside the gate, because they were there before it (existingNodes is %s): %s", g.Existing, s.outside)
	}
	return ""
}

// doubts tells where it is unknown whether a gate that follows its signals
// should close.
func doubts(s *summary) string {
	if s.doubtful.count == 0 {
		return ""
	}
	return fmt.Sprintf("; unknown, and so not closed, on %s: %s", s.doubtful, s.doubt)
}

var errNotChecked = errors.New("whether new nodes are closed has not been checked yet")
