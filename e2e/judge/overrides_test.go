// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// nonMember is the record of a node that has one only because an override closes the gate.
var nonMember = record{State: "Open", Reason: "Overridden", Override: "Closed", Taint: gateTaint + ":NoSchedule"}

// openUntil gives the Node an override that opens the gate until a time on the first day.
func openUntil(until string) func(*corev1.Node) { return withOverride("this", "2026-11-01T"+until+"Z") }

// withClosedOverride adds an override that closes the gate.
func withClosedOverride(node *corev1.Node) {
	node.Annotations[v1alpha1.OverrideAnnotationPrefix+"agent"] = fmt.Sprintf(`{"state":"Closed","until":"2026-11-02T00:00:00Z","reason":"test","uid":%q}`, node.UID)
}

// records writes the gate's record on node "a" as nodegate.
func (s *builder) records(state string, reason v1alpha1.Reason, override string) *builder {
	return s.edit(nodegate, "a", recorded(record{
		State: state, Reason: reason, Override: override, Boot: s.bootOf("a"), Taint: gateTaint + ":NoSchedule", Since: s.now,
	}))
}

// overrideClosed closes the gate, which is open on node "a", as nodegate, because of an override.
func (s *builder) overrideClosed() *builder {
	s.edit(admin, "a", withClosedOverride).edit(nodegate, "a", withTaint(gateTaint))
	return s.records("Open", v1alpha1.ReasonSignalsHold, "Closed")
}

// overrideOnly closes a closeWhen gate that is open on node "a", as nodegate, because of an override.
func (s *builder) overrideOnly() *builder {
	return s.edit(admin, "a", withClosedOverride).edit(nodegate, "a", withTaint(gateTaint), recorded(nonMember))
}

// overrideHistories are histories in which the own state of an overridden gate changes.
var overrideHistories = []history{
	{RuleOpening, "opens for good under an override that opens it, without a reason", "this is not a reason for opening", func(s *builder) {
		s.gate(byLabel).born("a", openUntil("13:00:00")).overrides("a").records("Open", v1alpha1.ReasonBirth, "")
	}},
	{RuleOpening, "opens for good under an override that opens it, although its signals do not hold", "signal label does not hold", func(s *builder) {
		s.gate(byLabel).born("a", openUntil("13:00:00")).overrides("a").records("Open", v1alpha1.ReasonSignalsHold, "")
	}},
	{RuleOpening, "opens for good under an override that opens it, because its signals hold", "", func(s *builder) {
		s.gate(byLabel).born("a", openUntil("13:00:00")).overrides("a").edit(otherUser, "a", labelled).records("Open", v1alpha1.ReasonSignalsHold, "")
	}},
	{RuleOpening, "loses its record under an override that opens it, without a reason", "this is not a reason for opening", func(s *builder) {
		s.gate(byLabel).born("a", openUntil("13:00:00")).overrides("a").edit(nodegate, "a", unrecorded)
	}},
	{RuleOpening, "opens under an override that closes it, although its signals do not hold", "signal label does not hold", func(s *builder) {
		s.gate(byLabel).born("a").edit(admin, "a", withClosedOverride).records("Open", v1alpha1.ReasonSignalsHold, "Closed")
	}},
	{RuleOpening, "opens under an override that closes it, because its signals hold", "", func(s *builder) {
		s.gate(byLabel).born("a", labelled).edit(admin, "a", withClosedOverride).records("Open", v1alpha1.ReasonSignalsHold, "Closed")
	}},
	{RuleOpening, "a closeWhen gate opens under an override that closes it, although its signals hold", "all signals of the closeWhen gate hold", func(s *builder) {
		s.gate(level).register("a", condition("BadDisk", corev1.ConditionTrue)).closes("a", v1alpha1.ReasonSignalsHold)
		s.edit(admin, "a", withClosedOverride).edit(nodegate, "a", recorded(nonMember))
	}},
	{RuleOpening, "a closeWhen gate opens under an override that closes it, because a signal does not hold", "", func(s *builder) {
		s.gate(level).register("a", condition("BadDisk", corev1.ConditionTrue)).closes("a", v1alpha1.ReasonSignalsHold)
		s.edit(otherUser, "a", withClosedOverride, condition("BadDisk", corev1.ConditionFalse)).edit(nodegate, "a", recorded(nonMember))
	}},
	{RuleClosing, "closes under an override that closes it, although its signals hold", "no signal has stopped holding", func(s *builder) {
		s.gate(onRegression).twoOpen().overrideClosed().records("Closed", v1alpha1.ReasonRegression, "")
	}},
	{RuleClosing, "closes under an override that closes it, because of a regression", "", func(s *builder) {
		s.gate(onRegression).twoOpen().overrideClosed().edit(otherUser, "a", unlabelled).records("Closed", v1alpha1.ReasonRegression, "")
	}},
	{RuleClosing, "a second node regresses under an override that opens it, on a budget of one", "the budget is 1", func(s *builder) {
		s.gate(onRegression).twoOpen().edit(otherUser, "a", unlabelled).edit(otherUser, "b", unlabelled).closes("b", v1alpha1.ReasonRegression)
		s.records("Closed", v1alpha1.ReasonRegression, "Open")
	}},
	{RuleClosing, "a node on which only an override closes the gate becomes a member", "", func(s *builder) {
		s.register("a").pass(time.Hour).gate(byLabel, closingExisting)
		s.edit(admin, "a", withClosedOverride).edit(nodegate, "a", withTaint(gateTaint), recorded(nonMember))
		s.records("Closed", v1alpha1.ReasonExisting, "")
	}},
	{RuleOpening, "a closeWhen gate opens at the end of an override, while its signal is unknown", "", func(s *builder) {
		s.gate(level).register("a", condition("BadDisk", corev1.ConditionUnknown)).overrideOnly().pass(24 * time.Hour).releases("a")
	}},
	{RuleOpening, "a closeWhen gate with reopen Manual opens at the end of an override, while its signal is unknown", "", func(s *builder) {
		s.gate(level, manual).register("a", condition("BadDisk", corev1.ConditionUnknown)).overrideOnly().pass(24 * time.Hour).releases("a")
	}},
	{RuleOpening, "a closeWhen gate opens before the end of an override", "an override keeps the gate closed", func(s *builder) {
		s.gate(level).register("a", condition("BadDisk", corev1.ConditionUnknown)).overrideOnly().releases("a")
	}},
	{RuleClosing, "closes under an override that closes it, because its group lacks this node", "", func(s *builder) {
		s.openPair(closingInPairs).overrideClosed().pass(time.Hour).records("Closed", v1alpha1.ReasonGroupIncomplete, "")
	}},
	{RuleClosing, "closes because its group lacks a node on which an override closes the gate", "", func(s *builder) {
		s.openPair(closingInPairs).overrideClosed().pass(time.Hour).records("Closed", v1alpha1.ReasonGroupIncomplete, "")
		s.edit(otherUser, "a", labelled).pass(time.Minute).closes("b", v1alpha1.ReasonGroupIncomplete)
	}},
	{RuleClosing, "closes because an override is no longer valid", "", func(s *builder) {
		s.gate(byLabel).born("a", openUntil("13:00:00")).overrides("a")
		s.edit(admin, "a", withOverride("this", "2026-12-01T00:00:00Z")).pass(time.Minute).closes("a", v1alpha1.ReasonOverrideEnded)
	}},
	{RuleClosing, "a node that counts against the budget closes for another reason", "", func(s *builder) {
		s.gate(onRegression).twoOpen().edit(otherUser, "a", unlabelled).closes("a", v1alpha1.ReasonRegression)
		s.edit(admin, "a", openUntil("20:00:00")).edit(nodegate, "a", withoutTaint(gateTaint)).records("Closed", v1alpha1.ReasonRegression, "Open")
		s.gate(onRegression, func(ng *v1alpha1.NodeGate) { ng.Spec.Budget.MaxReclosed = new(intstr.FromInt32(0)) })
		s.pass(time.Minute).reboots("a").pass(2*time.Minute).records("Closed", v1alpha1.ReasonRebootedUnobserved, "Open")
	}},
	{RuleClosing, "closes again at the end of an override, and was closed for a boot before", "", func(s *builder) {
		s.gate(byLabel).born("a", labelled, openUntil("12:05:00")).opens("a").edit(otherUser, "a", unlabelled).reboots("a")
		s.closes("a", v1alpha1.ReasonRebooted).edit(nodegate, "a", withoutTaint(gateTaint)).records("Closed", v1alpha1.ReasonRebooted, "Open")
		s.pass(time.Hour).closes("a", v1alpha1.ReasonRebooted)
	}},
	{RuleClosing, "closes again at the end of an override, and was closed at the node's creation", "", func(s *builder) {
		s.gate(byLabel).born("a", openUntil("12:05:00")).overrides("a").pass(time.Hour).closes("a", v1alpha1.ReasonOverrideEnded)
	}},
	{RuleClosing, "closes again before the end of an override", "an override keeps the gate open", func(s *builder) {
		s.gate(byLabel).born("a", openUntil("13:00:00")).overrides("a").pass(time.Minute).closes("a", v1alpha1.ReasonOverrideEnded)
	}},
}
