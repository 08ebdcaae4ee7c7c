// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// againTaint is the key of the gate's recloseTaint in these histories.
const againTaint = "example.com/agent-again"

// reclosing gives the gate a recloseTaint.
func reclosing(ng *v1alpha1.NodeGate) {
	ng.Spec.RecloseTaint = &v1alpha1.Taint{Key: againTaint, Effect: corev1.TaintEffectNoSchedule}
}

// unrelated renames the gate and gives it another taint.
func unrelated(ng *v1alpha1.NodeGate) {
	ng.Name, ng.Spec.Taint.Key = "unrelated", "example.com/unrelated"
}

// taintHistories are histories of taints that no record holds.
var taintHistories = []history{
	{RuleForeign, "closes with a foreign taint, according to the record", "it is not a taint of the gate", func(s *builder) {
		s.gate(onRegression).twoOpen().edit(otherUser, "a", unlabelled)
		s.closesWith("a", v1alpha1.ReasonRegression, "example.com/foreign")
	}},
	{RuleForeign, "takes over a foreign taint by its record, and removes it", "it is not a taint of the gate", func(s *builder) {
		s.gate(byLabel).born("a", withTaint("example.com/foreign"))
		s.edit(nodegate, "a", withoutTaint(gateTaint), recorded(record{State: "Closed", Reason: "Birth", Boot: "boot-1", Taint: "example.com/foreign:NoSchedule"}))
		s.edit(otherUser, "a", labelled).edit(nodegate, "a", withoutTaint("example.com/foreign"), recorded(record{State: "Open", Reason: "SignalsHold", Boot: "boot-1"}))
	}},
	{RuleForeign, "closes, and adds its taint in a later write", "the node does not carry it", func(s *builder) {
		s.gate(onRegression).twoOpen().edit(otherUser, "a", unlabelled)
		s.edit(nodegate, "a", recorded(record{State: "Closed", Reason: "Regression", Boot: "boot-1", Taint: gateTaint + ":NoSchedule", Since: s.now}))
		s.edit(nodegate, "a", withTaint(gateTaint))
	}},
	{RuleForeign, "closes with a taint that the node carries already", "", func(s *builder) {
		s.gate(byLabel).register("a", withTaint(gateTaint)).edit(nodegate, "a", recorded(record{State: "Closed", Reason: "Adopted", Boot: "boot-1", Taint: gateTaint + ":NoSchedule", Since: s.now}))
	}},
	{RuleForeign, "replaces its taint by another one that is not the gate's", "it is not a taint of the gate", func(s *builder) {
		s.gate(byLabel).born("a").edit(nodegate, "a", withoutTaint(gateTaint)).closesWith("a", v1alpha1.ReasonBirth, "example.com/foreign")
	}},
	{RuleForeign, "replaces its taint after the gate was edited", "", func(s *builder) {
		s.gate(byLabel).born("a").edits(func(ng *v1alpha1.NodeGate) { ng.Spec.Taint.Key, ng.Generation = againTaint, 2 })
		s.edit(nodegate, "a", withoutTaint(gateTaint), withTaint(againTaint), recorded(record{State: "Closed", Reason: "Birth", Boot: "boot-1", Taint: againTaint + ":NoSchedule"}))
	}},
	{RuleQuiet, "a closed gate keeps the taint from before it was edited", "which is not its taint", func(s *builder) {
		s.gate(byLabel).born("a").edits(func(ng *v1alpha1.NodeGate) { ng.Spec.Taint.Key = againTaint })
	}},
	{RuleQuiet, "the taint of a closed gate has another value", `its taint has value "other"`, func(s *builder) {
		s.gate(byLabel).born("a").edit(otherUser, "a", func(n *corev1.Node) { n.Spec.Taints[0].Value = "other" })
	}},
	{RuleQuiet, "a taint has the value of another gate that is closed with it", "", func(s *builder) {
		s.gate(byLabel).gate(byLabel, renamed, func(ng *v1alpha1.NodeGate) { ng.Spec.Taint.Value = "other" })
		s.born("a", recordedFor("renamed", record{State: "Closed", Reason: "Birth", Boot: "boot-1", Taint: gateTaint + "=other:NoSchedule"}), func(n *corev1.Node) { n.Spec.Taints[0].Value = "other" })
	}},
	{RuleClosing, "recloses with recloseTaint", "", func(s *builder) {
		s.gate(onRegression, reclosing).twoOpen().edit(otherUser, "a", unlabelled).closesWith("a", v1alpha1.ReasonRegression, againTaint)
	}},
	{RuleClosing, "recloses with the taint for new nodes", "it is not the gate's taint for this node", func(s *builder) {
		s.gate(onRegression, reclosing).twoOpen().edit(otherUser, "a", unlabelled).closes("a", v1alpha1.ReasonRegression)
	}},
	{RuleClosing, "closes on a new node with recloseTaint", "it is not the gate's taint for this node", func(s *builder) {
		s.gate(byLabel, reclosing).remove(revisions.KindPolicy, "", birthPolicy).register("a").closesWith("a", v1alpha1.ReasonBirth, againTaint)
	}},
	{RuleClosing, "records a closed node as adopted, so that it needs no budget", "the node is a member, with the gate closed", func(s *builder) {
		s.gate(onRegression).twoOpen().edit(otherUser, "a", unlabelled).edit(otherUser, "b", unlabelled)
		s.closes("a", v1alpha1.ReasonRegression).pass(time.Minute).closes("a", v1alpha1.ReasonAdopted).closes("b", v1alpha1.ReasonRegression)
	}},
	{RuleClosing, "records a closed node as new, so that it needs no budget", "the node is a member, with the gate closed", func(s *builder) {
		s.gate(onRegression).twoOpen().edit(otherUser, "a", unlabelled).edit(otherUser, "b", unlabelled)
		s.closes("a", v1alpha1.ReasonRegression).pass(time.Minute).closes("a", v1alpha1.ReasonBirth).closes("b", v1alpha1.ReasonRegression)
	}},
	{RuleClosing, "a node with the closed record of an earlier Node is closed as new", "", func(s *builder) {
		s.gate(byLabel).pass(time.Hour).register("a", recorded(record{State: "Closed", Reason: "Regression", Taint: gateTaint + ":NoSchedule", Since: begin})).closes("a", v1alpha1.ReasonBirth)
	}},
	{RuleOpening, "opens without a record, which a user has removed", "this is not a reason for opening", func(s *builder) {
		s.gate(byLabel).born("a", labelled).edit(admin, "a", unrecorded).pass(time.Minute).edit(nodegate, "a", withoutTaint(gateTaint))
	}},
	{RuleOpening, "removes its taint from an existing node without adopting it", "this is not a reason for opening", func(s *builder) {
		s.register("a", withTaint(gateTaint), labelled).pass(time.Hour).gate(byLabel).edit(nodegate, "a", withoutTaint(gateTaint))
	}},
	{RuleOpening, "removes its recloseTaint from an existing node without adopting it", "this is not a reason for opening", func(s *builder) {
		s.register("a", withTaint(againTaint), labelled).pass(time.Hour).gate(byLabel, reclosing).edit(nodegate, "a", withoutTaint(againTaint))
	}},
	{RuleOpening, "adopts its taint on a node that is fit, and opens at once", "", func(s *builder) {
		s.register("a", withTaint(gateTaint), labelled).pass(time.Hour).gate(byLabel).opens("a")
	}},
	{RuleOpening, "adopts its taint on a node that is not fit, and opens at once", "signal label does not hold", func(s *builder) {
		s.register("a", withTaint(gateTaint)).pass(time.Hour).gate(byLabel).opens("a")
	}},
	{RuleOpening, "keeps its taint off a node on which it is open", "", func(s *builder) {
		s.gate(byLabel).born("a", labelled).opens("a").edit(otherUser, "a", withTaint(gateTaint), unlabelled)
		s.pass(time.Minute).edit(nodegate, "a", withoutTaint(gateTaint))
	}},
	{RuleOpening, "keeps its recloseTaint off a node on which it is closed", "", func(s *builder) {
		s.gate(byLabel, reclosing).born("a", labelled).opens("a").born("b").edit(otherUser, "b", withTaint(againTaint))
		s.pass(time.Minute).edit(nodegate, "b", withoutTaint(againTaint))
	}},
	{RuleOpening, "keeps its taint off a node that a new gate with this taint selects", "", func(s *builder) {
		s.gate(byLabel).born("a", labelled).opens("a").edit(otherUser, "a", withTaint(gateTaint)).gate(byLabel, renamed).pass(-time.Minute)
		s.edit(nodegate, "a", withoutTaint(gateTaint))
	}},
	{RuleOpening, "a closeWhen gate keeps its taint off a node that a new gate with this taint selects", "", func(s *builder) {
		s.gate(level, renamed).register("a", withTaint(gateTaint), condition("BadDisk", corev1.ConditionFalse)).register("b", labelled)
		s.gate(byLabel).pass(-time.Minute).opens("b").edit(nodegate, "a", withoutTaint(gateTaint))
	}},
	{RuleQuiet, "a deleted gate's taint is left without a record", "nodegate has left its taint", func(s *builder) {
		s.gate().born("a").remove(revisions.KindNodeGate, "", "agent").edit(nodegate, "a", unrecorded)
	}},
	{RuleQuiet, "a taint is left on a node that the gate no longer selects", "nodegate has left its taint", func(s *builder) {
		s.gate(ofLabelled).born("a", labelled).pass(time.Minute).edit(otherUser, "a", unlabelled).pass(leavesAfter).edit(nodegate, "a", unrecorded)
	}},
	{RuleQuiet, "a taint is left that the gate no longer has", "nodegate has left its taint", func(s *builder) {
		s.gate().born("a").edits(func(ng *v1alpha1.NodeGate) { ng.Spec.Taint.Key = againTaint })
		s.edit(nodegate, "a", withTaint(againTaint), recorded(record{State: "Closed", Reason: "Birth", Boot: "boot-1", Taint: againTaint + ":NoSchedule"}))
	}},
	{RuleQuiet, "a deleted gate's taint is removed with its record", "", func(s *builder) {
		s.gate().born("a").remove(revisions.KindNodeGate, "", "agent").pass(time.Second).gate(unrelated).releases("a")
	}},
	{RuleQuiet, "another writer adds the taint again after the gate was deleted", "", func(s *builder) {
		s.gate().born("a").remove(revisions.KindNodeGate, "", "agent").pass(time.Second).gate(unrelated).releases("a").edit(otherUser, "a", withTaint(gateTaint))
	}},
	{RuleQuiet, "a user removes the record of a deleted gate", "", func(s *builder) {
		s.gate().born("a").remove(revisions.KindNodeGate, "", "agent").pass(time.Second).gate(unrelated).edit(admin, "a", unrecorded)
	}},
	{RuleQuiet, "a renamed gate takes over the taint", "", func(s *builder) {
		s.gate(byLabel).born("a").remove(revisions.KindNodeGate, "", "agent").gate(byLabel, renamed).edit(nodegate, "a", unrecorded, recordedFor("renamed", bornRecord))
	}},
	{RuleQuiet, "a kubelet registers with a taint that was left on an earlier Node", "", func(s *builder) {
		s.gate().born("a").remove(revisions.KindNodeGate, "", "agent").edit(nodegate, "a", unrecorded)
		s.remove(revisions.KindNode, "", "a").register("a", withTaint(gateTaint)).pass(time.Second).gate(unrelated)
	}},
}
