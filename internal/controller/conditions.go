// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/birth"
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/signal"
)

// messageMax limits the length of a condition's message. The API server rejects more than
// 32 KiB, and more than a screen is not readable.
const messageMax = 2048

// observed is the input of all gates' conditions at one moment.
type observed struct {
	set  *gateset.Set
	sets *gate.DaemonSets
	// deadlocks has the possible deadlocks of these gates, by gate.
	deadlocks map[string][]signal.Deadlock
}

// observe returns the current input. It returns before, which may be nil, if nothing has
// changed.
func (r *reporter) observe(set *gateset.Set, before *observed) *observed {
	sets := r.needsFeed.DaemonSets()
	if before != nil && before.set == set && before.sets == sets {
		return before
	}
	return &observed{set: set, sets: sets, deadlocks: signal.Deadlocks(set.Gates, sets, nil)}
}

// feedsError returns an error if something in needs is not being observed. Feeds that
// only other gates need are not considered.
func (r *reporter) feedsError(needs gate.Needs) error {
	if err := r.gateFeed.GatesError(); err != nil {
		return err
	}
	var reading, failing fleet.NameList
	var failure error
	for _, s := range r.needsFeed.StatusOf(needs) {
		reading.AddIf(!s.Synced && s.Err == nil, s.Name)
		if failing.AddIf(s.Err != nil, s.Name); s.Err != nil && failing.First[0] == s.Name {
			failure = s.Err
		}
	}
	switch {
	case failure != nil:
		return fmt.Errorf("cannot observe %s: %w", failing, failure)
	case reading.Count > 0:
		return fmt.Errorf("not observed yet: %s", reading)
	}
	return nil
}

// status returns the status of a gate. While the status is inherited, the ledger has a part of the
// fleet only: counts and conditions about nodes do not change, and Ready does not become True.
func (r *reporter) status(o *observed, ng *v1alpha1.NodeGate, last *reported, s *fleet.Summary) v1alpha1.NodeGateStatus {
	out := *last.status.DeepCopy()
	out.PlainOptOut = r.plainOptOut
	now := metav1.NewTime(r.clock.Now()).Rfc3339Copy() // as it is stored
	to := conditionSetter{&out.Conditions, ng.Generation, now}
	if !o.set.Compiling(ng.Name) { // otherwise the previous condition remains
		a := o.set.Acceptance[ng.Name]
		to.set(v1alpha1.ConditionAccepted, a.Accepted, a.Reason, a.Message)
	}
	ready, reason, message := r.ready(o, ng, last, s)
	if !ready || !last.inherited {
		to.set(v1alpha1.ConditionReady, ready, reason, message)
	}
	if !last.inherited {
		out.ObservedGeneration, out.Nodes, out.Waiting = ng.Generation, s.Counts, s.Waiting
		out.NonMembers, out.Groups = s.NonMembersByReason(), r.groupCounts(ng)
		out.Nodes.Throttled = last.status.Nodes.Throttled
		if s.ThrottledKnown {
			out.Nodes.Throttled = int32(s.Throttled.Count)
		}
		setNodeConditions(to, ng, last, s)
	}
	return out
}

// setNodeConditions sets the conditions about problems of nodes, or removes them.
func setNodeConditions(to conditionSetter, ng *v1alpha1.NodeGate, last *reported, s *fleet.Summary) {
	dryRun := ""
	if ng.Spec.Mode == v1alpha1.ModeDryRun {
		dryRun = "dry run, no node is changed: "
	}
	if s.ThrottledKnown { // otherwise the previous condition remains
		to.setIf(s.Throttled.Count > 0, v1alpha1.ConditionThrottled, v1alpha1.ReasonThrottled, dryRun+s.ThrottledMessage(ng))
	}
	if s.Contradicting.Count > 0 {
		to.set(v1alpha1.ConditionContended, true, v1alpha1.ReasonGatesContradict, dryRun+fmt.Sprintf(
			"gates %s would open and close each other endlessly on %s, and keep their state there: change their signals so that none of them depends on what another gate writes", s.Ring, s.Contradicting))
	} else {
		to.setIf(s.Contended.Count > 0, v1alpha1.ConditionContended, v1alpha1.ReasonContended, fmt.Sprintf(
			"another writer keeps reverting the taint on %s; %s", s.Contended, last.contention.writer))
	}
	to.setIf(s.Overdue.Count+s.Lapsed.Count+s.Published.Count > 0, v1alpha1.ConditionOverdue, v1alpha1.ReasonOverdue, dryRun+s.OverdueMessage(ng))
}

// conditionSetter sets conditions of a gate of this generation, at this time.
type conditionSetter struct {
	conditions *[]metav1.Condition
	generation int64
	now        metav1.Time
}

func (t conditionSetter) set(kind string, holds bool, reason, message string) {
	status := metav1.ConditionFalse
	if holds {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(t.conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: gate.Clip(message, messageMax),
		ObservedGeneration: t.generation, LastTransitionTime: t.now,
	})
}

// setIf sets a condition to True, or removes it.
func (t conditionSetter) setIf(holds bool, kind, reason, message string) {
	if holds {
		t.set(kind, true, reason, message)
	} else {
		meta.RemoveStatusCondition(t.conditions, kind)
	}
}

// ready returns whether a gate is ready. Problems are checked in the order in which they
// must be fixed.
func (r *reporter) ready(o *observed, ng *v1alpha1.NodeGate, last *reported, s *fleet.Summary) (ok bool, reason, message string) {
	switch a := o.set.Acceptance[ng.Name]; {
	case o.set.Compiling(ng.Name):
		return false, a.Reason, a.Message
	case !a.Accepted:
		return false, v1alpha1.ReasonNotAccepted, a.Message
	}
	g, known := o.set.Gate(ng.Name)
	if !known {
		return false, v1alpha1.ReasonFeedsNotSynced, "the gate is not compiled yet"
	}
	if err := r.birth.NotRemoved(ng.Name); err != nil {
		return false, v1alpha1.ReasonBirthNotProved, fmt.Sprintf("new nodes may still be closed, although the gate must not close on them: %v", err)
	}
	if g.Mode == v1alpha1.ModePaused {
		return true, v1alpha1.ReasonPaused, pausedMessage(s)
	}
	if reason, message := r.unmet(o, g, ng); reason != "" {
		return false, reason, message
	}
	remarks := s.Remarks()
	if reason, message := diagnose(g, o, &remarks); reason != "" {
		return false, reason, message
	}
	if deadlock := r.deadlocked(o, g); deadlock != "" {
		return false, v1alpha1.ReasonGatesDeadlocked, deadlock
	}
	if s.Denied.Count > 0 {
		return false, v1alpha1.ReasonWriteDenied, fmt.Sprintf("the API server denies writing %s: %s", s.Denied, s.Denial)
	}
	was := meta.FindStatusCondition(last.status.Conditions, v1alpha1.ConditionReady)
	if failing := s.FailingMessage(was != nil && was.Reason == v1alpha1.ReasonWriteFailing); failing != "" {
		return false, v1alpha1.ReasonWriteFailing, failing
	}
	if reason, message := r.unproved(g, ng, last); reason != "" {
		return false, reason, message
	}
	if g.Mode == v1alpha1.ModeDryRun {
		return true, v1alpha1.ReasonInDryRun, "no node is changed, and new nodes are not closed: status.nodes and status.waiting show what the gate would do" + remarks + s.UndecidedText()
	}
	if ng.Spec.Follows() {
		return true, v1alpha1.ReasonReady, "everything that the gate depends on is observed" + s.UndecidedText() + s.OverridesText()
	}
	return true, v1alpha1.ReasonReady, "the API server closes new nodes, and everything that the gate depends on is observed" + remarks + s.OverridesText()
}

// unproved returns what the API server does not do for a gate, or not provably, or "".
func (r *reporter) unproved(g *gate.Gate, ng *v1alpha1.NodeGate, last *reported) (reason, message string) {
	if g.Mode != v1alpha1.ModeDryRun && !ng.Spec.Follows() {
		if err := r.birth.Proved(ng); err != nil && !awaitsProof(err, ng, last) {
			return v1alpha1.ReasonBirthNotProved, err.Error()
		}
	}
	if err := r.birth.TolerationsError(ng.Name); err != nil {
		return v1alpha1.ReasonTolerationsNotWritten, fmt.Sprintf("the gate works, but the API server does not add tolerations of its taints "+
			"to all DaemonSets that it waits for: %v; apply the manifests of this version again, or run 'kubectl gate tolerate'", err)
	}
	if missing := r.guards.Missing(); missing != "" {
		return v1alpha1.ReasonGuardNotProved, "gates work, but " + missing
	}
	return "", ""
}

// awaitsProof reports whether a gate with this result of probes was Ready under the previous
// leader, and has not been probed since. It remains Ready until the first probe, because a new
// leader needs seconds to probe many gates.
func awaitsProof(result error, ng *v1alpha1.NodeGate, last *reported) bool {
	was := meta.FindStatusCondition(last.status.Conditions, v1alpha1.ConditionReady)
	return errors.Is(result, birth.ErrNotChecked) && was != nil && was.Status == metav1.ConditionTrue && was.ObservedGeneration == ng.Generation
}

// unmet returns what a gate needs that is not observed or not permitted, or "".
func (r *reporter) unmet(o *observed, g *gate.Gate, ng *v1alpha1.NodeGate) (reason, message string) {
	if err := cmp.Or(o.set.ObjectsError(g), r.feedsError(g.Needs(o.sets))); err != nil {
		return v1alpha1.ReasonFeedsNotSynced, err.Error()
	}
	if missing := r.permissions.missingFor(&ng.Spec); missing != "" {
		return v1alpha1.ReasonPermissionMissing, missing
	}
	return "", ""
}

// diagnose returns the problem of the first signal that cannot hold at present, or "". It
// adds other facts about signals to remarks.
func diagnose(g *gate.Gate, o *observed, remarks *string) (reason, message string) {
	for _, named := range g.Signals {
		r := signal.Diagnose(named.Signal, g.Taints(), o.sets)
		remark := fmt.Sprintf("signal %s: %s", named.Name, r.Message())
		switch {
		case r.State == gate.NotYet:
			return string(r.Reason), remark
		case r.State == gate.Holds && r.Reason != "":
			*remarks += "; " + remark
		}
	}
	return "", ""
}
