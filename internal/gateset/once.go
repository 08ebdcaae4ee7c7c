// SPDX-License-Identifier: Apache-2.0

package gateset

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/signal"
)

// StatusUse specifies which of the rejections that the controller has reported in the
// gates' condition Accepted are taken into account.
type StatusUse int

const (
	// IgnoreStatus means that no rejection counts, only the spec and the key policy.
	IgnoreStatus StatusUse = iota
	// StatusForUnknownPolicy means that a rejection counts if it is based on a part of the
	// key policy that is unknown here (nil).
	StatusForUnknownPolicy
	// TrustStatus means that every rejection counts. It is for callers that do not know
	// the key policy.
	TrustStatus
)

// Of compiles gates that were read once from the API server, and determines which are in
// force. It compiles all expressions before it returns.
func Of(declared []v1alpha1.NodeGate, policy gate.KeyPolicy, use StatusUse) *Set {
	set, none := newSet(Snapshot{Source: v1alpha1.SourceCRD, Complete: true}), &Set{}
	for i := range declared {
		set.add(&declared[i], none, signal.Compile)
	}
	set.accept(policy)
	for name, ng := range set.Declared {
		reported, rejected := reportedRejection(ng)
		if rejected && use.counts(set.Acceptance[name], reported, &policy) {
			set.Acceptance[name] = reported
		}
	}
	set.apply(policy)
	return set
}

// NotServed explains what happens to a gate of which only records on nodes are known, if the API server
// does not serve NodeGates: it is unknown whether the gate was deleted.
const NotServed = "the API server does not serve NodeGates: until it does, the gate's taints and records stay, because it is unknown whether " +
	"the gate was deleted; apply the CustomResourceDefinition, and the gates directly afterwards, or, if the gate should not exist, run 'kubectl gate release --gate' with its name"

// DeclaredInFile explains why nothing but records on nodes is known of a gate from a file.
const DeclaredInFile = "the gate is declared in a file that only the controller reads (--gates)"

// NoteEdits sets Gate.Edited of the gates whose signals are not those of an earlier set. New includes
// this.
func (s *Set) NoteEdits(before *Set, at time.Time) {
	for i := range s.Gates {
		g := &s.Gates[i]
		if was, known := before.Declared[g.Name]; known && !sameSignals(was, s.Declared[g.Name]) {
			g.Edited = at
		}
	}
}

// Reported compiles gates that were read once from the API server. Only the controller
// knows the key policy, so the gates' status determines which are in force, and whether
// nodes can opt out by the label that kubelets can set.
func Reported(declared []v1alpha1.NodeGate) *Set {
	return Of(declared, gate.KeyPolicy{PlainOptOut: PlainOptOut(declared)}, TrustStatus)
}

// PlainOptOut reports whether the opt-out label that kubelets can set excludes nodes from
// gates. The administrator decides this, and the gates' status contains it.
func PlainOptOut(declared []v1alpha1.NodeGate) bool {
	for i := range declared {
		if declared[i].Status.PlainOptOut {
			return true
		}
	}
	return false
}

// reportedRejection returns the acceptance in the gate's status if the controller has
// rejected the current spec.
func reportedRejection(ng *v1alpha1.NodeGate) (gate.Acceptance, bool) {
	c := meta.FindStatusCondition(ng.Status.Conditions, v1alpha1.ConditionAccepted)
	if c == nil || c.Status != metav1.ConditionFalse || c.ObservedGeneration != ng.Generation {
		return gate.Acceptance{}, false
	}
	return gate.Acceptance{Reason: c.Reason, Message: c.Message}, true
}

// counts reports whether a reported rejection replaces the acceptance computed here.
func (u StatusUse) counts(computed, reported gate.Acceptance, policy *gate.KeyPolicy) bool {
	switch u {
	case TrustStatus:
		return true
	case StatusForUnknownPolicy:
		unknown := reported.Reason == v1alpha1.ReasonTaintKeyNotAllowed && policy.Allowed == nil ||
			reported.Reason == v1alpha1.ReasonOwnedByNodeReadinessRule && policy.Managed == nil
		return computed.Accepted && unknown
	}
	return false
}
