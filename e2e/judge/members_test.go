// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// adopting makes the gate adopt existing nodes whose signals hold.
func adopting(ng *v1alpha1.NodeGate) { ng.Spec.ExistingNodes = v1alpha1.ExistingAdopt }

// ofUnlabelled changes the gate to select nodes that no history has.
func ofUnlabelled(ng *v1alpha1.NodeGate) {
	ng.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "x"}
}

// memberHistories are histories of nodes that are, or are not, members of the gate.
var memberHistories = []history{
	{RuleClosing, "closes on an unreachable node that existed before the gate", "the node is not a member", func(s *builder) {
		s.register("a").pass(time.Hour).gate(byLabel).edit(admin, "a", unreachable).closes("a", v1alpha1.ReasonNodeSilent)
	}},
	{RuleClosing, "closes at the shutdown of a node that existed before the gate", "the node is not a member", func(s *builder) {
		s.register("a").pass(time.Hour).gate(byLabel).edit(admin, "a", announced("")).closes("a", v1alpha1.ReasonNodeShutdown)
	}},
	{RuleClosing, "closes as regressed on a node that existed before the gate", "the node is not a member", func(s *builder) {
		s.register("a").pass(time.Hour).gate(onRegression).closes("a", v1alpha1.ReasonRegression)
	}},
	{RuleClosing, "an OnReboot gate that is open closes as if the node had existed before", "the gate was open", func(s *builder) {
		s.gate(byLabel, closingExisting).twoOpen().edit(otherUser, "a", unlabelled).pass(time.Minute).closes("a", v1alpha1.ReasonExisting)
	}},
	{RuleClosing, "a closed gate records that it closed on an unreachable node", "the gate was closed", func(s *builder) {
		s.gate(byLabel).born("a").edit(admin, "a", unreachable).closes("a", v1alpha1.ReasonNodeSilent)
	}},
	{RuleClosing, "a closed gate records that it closed on an existing node", "the gate was closed", func(s *builder) {
		s.gate(byLabel, closingExisting).born("a").closes("a", v1alpha1.ReasonExisting)
	}},
	{RuleClosing, "a regressed node escapes the budget by a reboot long ago", "closing for it needs budget", func(s *builder) {
		s.gate(onRegression).twoOpen().edit(otherUser, "a", unlabelled).closes("a", v1alpha1.ReasonRegression).reboots("a")
		s.pass(time.Hour).closes("a", v1alpha1.ReasonRebooted)
	}},
	{RuleClosing, "a regressed node reboots", "", func(s *builder) {
		s.gate(onRegression).twoOpen().edit(otherUser, "a", unlabelled).closes("a", v1alpha1.ReasonRegression).reboots("a")
		s.closes("a", v1alpha1.ReasonRebooted)
	}},
	{RuleOpening, "an existing node becomes a member, with the gate open", "the gate ignores existing nodes", func(s *builder) {
		s.register("a", labelled).pass(time.Hour).gate(byLabel).opensAs("a", v1alpha1.ReasonAdopted)
	}},
	{RuleOpening, "an existing node becomes a member as if it were new", "the Node is older than the gate", func(s *builder) {
		s.register("a", labelled).pass(time.Hour).gate(byLabel).opens("a")
	}},
	{RuleOpening, "an existing node is adopted because its signals hold", "", func(s *builder) {
		s.register("a", labelled).pass(time.Hour).gate(byLabel, adopting).opensAs("a", v1alpha1.ReasonAdopted)
	}},
	{RuleOpening, "a node that the gate does not select becomes a member", "the gate does not select the node", func(s *builder) {
		s.gate(byLabel, ofUnlabelled).register("a", labelled).opens("a")
	}},
	{RuleOpening, "a new node becomes a member with the gate open, because its signals hold", "", func(s *builder) {
		s.gate(byLabel).remove(revisions.KindPolicy, "", birthPolicy).register("a", labelled).opens("a")
	}},
	{RuleOpening, "a node with a damaged record keeps the gate open", "", func(s *builder) {
		s.register("a", labelled).pass(time.Hour).gate(byLabel)
		s.edit(admin, "a", func(n *corev1.Node) { n.Annotations[v1alpha1.RecordAnnotationPrefix+"agent"] = "?" }).opensAs("a", v1alpha1.ReasonAdopted)
	}},
	{RuleForeign, "removes the record of an open gate", "the gate exists and selects the node", func(s *builder) {
		s.gate(byLabel).born("a", labelled).opens("a").pass(time.Minute).edit(nodegate, "a", unrecorded)
	}},
	{RuleForeign, "removes the record of an open gate that was deleted", "", func(s *builder) {
		s.gate(byLabel).born("a", labelled).opens("a").remove(revisions.KindNodeGate, "", "agent").pass(time.Minute).edit(nodegate, "a", unrecorded)
	}},
	{RuleForeign, "removes the record of an open gate because a label is missing for a moment", "less than 30s ago", func(s *builder) {
		s.gate(ofLabelled).born("a", labelled).edit(nodegate, "a", withoutTaint(gateTaint), opened).pass(time.Minute)
		s.edit(otherUser, "a", unlabelled).edit(nodegate, "a", unrecorded)
	}},
	{RuleForeign, "removes the record of an open gate that no longer selects the node", "", func(s *builder) {
		s.gate(ofLabelled).born("a", labelled).edit(nodegate, "a", withoutTaint(gateTaint), opened).pass(time.Minute)
		s.edit(otherUser, "a", unlabelled).pass(time.Minute).edit(nodegate, "a", unrecorded)
	}},
	{RuleForeign, "removes the record of an open gate that was deleted and created again for other nodes", "", func(s *builder) {
		s.gate(ofLabelled).born("a", labelled).edit(nodegate, "a", withoutTaint(gateTaint), opened).pass(time.Minute).remove(revisions.KindNodeGate, "", "agent")
		s.gate(ofUnlabelled).pass(-time.Minute).edit(nodegate, "a", unrecorded)
	}},
	{RuleOpening, "opens because it was deleted and created again for other nodes", "", func(s *builder) {
		s.gate(ofLabelled).born("a", labelled).pass(time.Minute).remove(revisions.KindNodeGate, "", "agent").gate(ofUnlabelled).pass(-time.Minute).releases("a")
	}},
	{RuleOpening, "a paused gate opens because it no longer selects the node", "the gate is paused", func(s *builder) {
		s.gate(ofLabelled).born("a", labelled).edits(paused).pass(time.Minute).edit(otherUser, "a", unlabelled).pass(time.Minute).releases("a")
	}},
	{RuleForeign, "removes the record of a closeWhen gate that is open", "", func(s *builder) {
		s.gate(level).register("a").edit(admin, "a", recorded(record{State: "Open", Reason: "SignalsCleared"})).edit(nodegate, "a", unrecorded)
	}},
	{RuleForeign, "removes the record of an earlier Node", "", func(s *builder) {
		s.gate(byLabel).pass(time.Hour).register("a")
		s.edit(admin, "a", recorded(record{State: "Open", Reason: "SignalsHold", Since: begin})).edit(nodegate, "a", unrecorded)
	}},
	{RuleForeign, "removes an override that has not ended", "nodegate does not own it", func(s *builder) {
		s.gate(byLabel).born("a", openUntil("13:00:00")).overrides("a").pass(time.Minute)
		s.edit(nodegate, "a", func(n *corev1.Node) { delete(n.Annotations, v1alpha1.OverrideAnnotationPrefix+"agent") })
	}},
	{RuleForeign, "removes an override that has ended", "", func(s *builder) {
		s.gate(byLabel).born("a", openUntil("13:00:00")).overrides("a").pass(time.Hour)
		s.edit(nodegate, "a", func(n *corev1.Node) { delete(n.Annotations, v1alpha1.OverrideAnnotationPrefix+"agent") })
	}},
	{RuleOpening, "a paused gate opens because of an override", "the gate is paused", func(s *builder) {
		s.gate(byLabel).born("a", openUntil("13:00:00")).edits(paused).pass(time.Minute).overrides("a")
	}},
	{RuleOpening, "a paused gate opens because it is deleted", "", func(s *builder) {
		s.gate(byLabel).born("a").edits(paused).pass(time.Minute).remove(revisions.KindNodeGate, "", "agent").pass(time.Minute).releases("a")
	}},
}

// recordHistories are histories of what nodegate records about an opening or a closing.
var recordHistories = []history{
	{RuleClosing, "closes and records an earlier time", "not that of the write", func(s *builder) {
		s.gate(onRegression).twoOpen().edit(otherUser, "a", unlabelled).edit(nodegate, "a", withTaint(gateTaint), recorded(record{
			State: "Closed", Reason: "Regression", Boot: "boot-1", Taint: gateTaint + ":NoSchedule", Since: s.now.Add(-time.Hour)}))
	}},
	{RuleClosing, "closes and records no time", "not that of the write", func(s *builder) {
		s.gate(onRegression).twoOpen().edit(otherUser, "a", unlabelled).edit(nodegate, "a", withTaint(gateTaint), recorded(record{
			State: "Closed", Reason: "Regression", Boot: "boot-1", Taint: gateTaint + ":NoSchedule"}))
	}},
	{RuleClosing, "replaces the time at which it closed", "the state is from before", func(s *builder) {
		s.gate(onRegression).twoOpen().edit(otherUser, "a", unlabelled).closes("a", v1alpha1.ReasonRegression).pass(time.Hour).closes("a", v1alpha1.ReasonRegression)
	}},
	{RuleClosing, "keeps the time at which a renamed gate closed, in a new boot", "", func(s *builder) {
		s.gate(byLabel).twoOpen().reboots("a").closes("a", v1alpha1.ReasonRebooted).pass(time.Hour).reboots("a")
		closed, _ := recordOf(s.current[revisions.ID{Kind: revisions.KindNode, Name: "a"}].(*corev1.Node), "agent") //nolint:forcetypeassert // a test's own objects
		closed.Boot = s.bootOf("a")
		s.remove(revisions.KindNodeGate, "", "agent").gate(byLabel, renamed).pass(-time.Minute)
		s.edit(nodegate, "a", unrecorded, recordedFor("renamed", closed))
	}},
	{RuleClosing, "closes while the record of a gate with the same taint is removed, which was deleted and exists again", "", func(s *builder) {
		s.gate(byLabel).remove(revisions.KindNodeGate, "", "agent").gate(byLabel).pass(-time.Minute).born("a").gate(byLabel, renamed).pass(-time.Minute)
		s.edits(func(ng *v1alpha1.NodeGate) { ng.Spec.Mode = v1alpha1.ModeDryRun })
		s.edit(nodegate, "a", unrecorded, recordedFor("renamed", record{
			State: "Closed", Reason: "Birth", Boot: "boot-1", Taint: gateTaint + ":NoSchedule", Since: s.now}))
	}},
	{RuleClosing, "corrects a time in the future", "", func(s *builder) {
		r := bornRecord
		r.Since = begin.Add(24 * time.Hour)
		s.gate(byLabel).register("a", withTaint(gateTaint)).edit(admin, "a", recorded(r)).pass(time.Minute).closes("a", v1alpha1.ReasonBirth)
	}},
	{RuleForeign, "opens and records no boot", "the record does not name the node's boot", func(s *builder) {
		s.gate(byLabel).born("a", labelled).edit(nodegate, "a", withoutTaint(gateTaint), recorded(record{State: "Open", Reason: "SignalsHold"}))
	}},
	{RuleForeign, "opens and records another boot", "the record does not name the node's boot", func(s *builder) {
		s.gate(byLabel).born("a", labelled).edit(nodegate, "a", withoutTaint(gateTaint), recorded(record{State: "Open", Reason: "SignalsHold", Boot: "boot-0"}))
	}},
	{RuleForeign, "removes the boot from the record of an open gate", "the record does not name the node's boot", func(s *builder) {
		s.gate(byLabel).born("a", labelled).opens("a").edit(nodegate, "a", recorded(record{State: "Open", Reason: "SignalsHold"}))
	}},
	{RuleForeign, "removes the boot from the record of an open gate that no longer closes again", "", func(s *builder) {
		s.gate(byLabel).born("a", labelled).opens("a")
		s.edits(func(ng *v1alpha1.NodeGate) { ng.Spec.ReclosePolicy, ng.Generation = v1alpha1.RecloseNever, 2 })
		s.edit(nodegate, "a", recorded(record{State: "Open", Reason: "SignalsHold"}))
	}},
	{RuleForeign, "a gate that never closes again opens and records no boot", "", func(s *builder) {
		s.gate(byLabel, func(ng *v1alpha1.NodeGate) { ng.Spec.ReclosePolicy = v1alpha1.RecloseNever }).born("a", labelled)
		s.edit(nodegate, "a", withoutTaint(gateTaint), recorded(record{State: "Open", Reason: "SignalsHold"}))
	}},
}

// detaching makes the gate detach volumes from nodes with a bad disk.
func detaching(ng *v1alpha1.NodeGate) {
	level(ng)
	ng.Spec.Taint = v1alpha1.Taint{Key: v1alpha1.TaintOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}
	ng.Spec.Acknowledge = []v1alpha1.Acknowledgement{v1alpha1.AcknowledgeVolumeDetach, v1alpha1.AcknowledgePodEviction}
}

// detaches closes such a gate on node "a", as nodegate.
func (s *builder) detaches(reason v1alpha1.Reason) *builder {
	return s.edit(nodegate, "a", func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: v1alpha1.TaintOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
	}, recorded(record{State: "Closed", Reason: reason, Taint: v1alpha1.TaintOutOfService + "=nodeshutdown:NoExecute", Boot: "boot-1", Since: s.now}))
}

// outOfServiceHistories are histories of a gate that detaches volumes.
var outOfServiceHistories = []history{
	{RuleClosing, "detaches volumes from a node that is Ready", "the node's Ready condition is not Unknown", func(s *builder) {
		s.gate(detaching).register("a", condition("BadDisk", corev1.ConditionTrue)).detaches(v1alpha1.ReasonSignalsHold)
	}},
	{RuleClosing, "detaches volumes from a node that was unreachable within the lag", "the node's Ready condition is not Unknown", func(s *builder) {
		s.gate(detaching).register("a", condition("BadDisk", corev1.ConditionTrue)).reports("a", corev1.ConditionUnknown).pass(2 * time.Minute)
		s.reports("a", corev1.ConditionTrue).detaches(v1alpha1.ReasonSignalsHold)
	}},
	{RuleClosing, "detaches volumes from a node that has just become unreachable", "unreachable for less than a minute", func(s *builder) {
		s.gate(detaching).register("a", condition("BadDisk", corev1.ConditionTrue)).reports("a", corev1.ConditionUnknown)
		s.pass(30 * time.Second).detaches(v1alpha1.ReasonSignalsHold)
	}},
	{RuleClosing, "detaches volumes from a node that has been unreachable for a minute", "", func(s *builder) {
		s.gate(detaching).register("a", condition("BadDisk", corev1.ConditionTrue)).reports("a", corev1.ConditionUnknown)
		s.pass(time.Minute + time.Second).detaches(v1alpha1.ReasonSignalsHold)
	}},
	{RuleClosing, "detaches volumes from a node whose machine was shut down", "", func(s *builder) {
		s.gate(detaching).register("a", condition("BadDisk", corev1.ConditionTrue), withTaint(v1alpha1.TaintCloudShutdown))
		s.reports("a", corev1.ConditionUnknown).pass(time.Second).detaches(v1alpha1.ReasonSignalsHold)
	}},
	{RuleClosing, "detaches volumes in a partitioned zone", "the node's zone may be partitioned", func(s *builder) {
		s.gate(detaching).register("a", condition("BadDisk", corev1.ConditionTrue)).register("b").register("c")
		for _, name := range []string{"a", "b", "c"} {
			s.reports(name, corev1.ConditionUnknown)
		}
		s.pass(time.Hour).detaches(v1alpha1.ReasonSignalsHold)
	}},
	{RuleClosing, "detaches volumes because a user requests it", "closes only because its signals hold", func(s *builder) {
		s.gate(detaching).register("a", named("this"), condition("BadDisk", corev1.ConditionTrue)).reports("a", corev1.ConditionUnknown).pass(time.Hour)
		s.edit(admin, "a", withClosedOverride).edit(nodegate, "a", recorded(record{State: "Open", Reason: "Overridden", Override: "Closed", Taint: v1alpha1.TaintOutOfService + "=nodeshutdown:NoExecute"}))
	}},
	{RuleQuiet, "volumes stay detached although the node has returned", "the node has returned", func(s *builder) {
		s.gate(detaching).register("a", condition("BadDisk", corev1.ConditionTrue)).reports("a", corev1.ConditionUnknown)
		s.pass(time.Hour).detaches(v1alpha1.ReasonSignalsHold).reports("a", corev1.ConditionTrue)
	}},
	{RuleQuiet, "the node has returned, and its volumes are attached again", "", func(s *builder) {
		s.gate(detaching).register("a", condition("BadDisk", corev1.ConditionTrue)).reports("a", corev1.ConditionUnknown)
		s.pass(time.Hour).detaches(v1alpha1.ReasonSignalsHold).reports("a", corev1.ConditionTrue)
		s.edit(nodegate, "a", withoutTaint(v1alpha1.TaintOutOfService), unrecorded)
	}},
}
