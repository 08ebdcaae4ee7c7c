// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// soaking makes the gate open only when its signals have held for a minute.
func soaking(ng *v1alpha1.NodeGate) { ng.Spec.Timing.OpenAfterSeconds = 60 }

// levelByLabel changes the gate to close while the node has a label.
func levelByLabel(ng *v1alpha1.NodeGate) {
	byLabel(ng)
	ng.Spec.CloseWhen, ng.Spec.OpenWhen, ng.Spec.Budget.MaxReclosed = ng.Spec.OpenWhen, nil, one()
}

// soakHistories are histories of openAfterSeconds.
var soakHistories = []history{
	{RuleOpening, "opens before its signal has held for long enough", "openAfterSeconds", func(s *builder) {
		s.gate(byLabel, soaking).born("a").pass(time.Minute).edit(otherUser, "a", labelled).pass(50 * time.Second).opens("a")
	}},
	{RuleOpening, "opens when its signal has held for long enough", "", func(s *builder) {
		s.gate(byLabel, soaking).born("a").pass(time.Minute).edit(otherUser, "a", labelled).pass(time.Minute).opens("a")
	}},
	{RuleOpening, "opens when the node has not existed for long enough", "openAfterSeconds", func(s *builder) {
		s.gate(byLabel, soaking).born("a", labelled).pass(30 * time.Second).opens("a")
	}},
	{RuleOpening, "opens before its signal has held again for long enough", "openAfterSeconds", func(s *builder) {
		s.gate(byLabel, soaking).born("a", labelled).pass(time.Hour).edit(otherUser, "a", unlabelled).pass(time.Minute)
		s.edit(otherUser, "a", labelled).pass(30 * time.Second).opens("a")
	}},
	{RuleOpening, "opens although its signal did not hold for a moment, which nodegate need not observe", "", func(s *builder) {
		s.gate(byLabel, soaking).born("a", labelled).pass(time.Hour).edit(otherUser, "a", unlabelled).pass(time.Second)
		s.edit(otherUser, "a", labelled).pass(59 * time.Second).opens("a")
	}},
	{RuleOpening, "opens because of its deadline although its signal has not held for long enough", "", func(s *builder) {
		s.gate(byLabel, soaking, withDeadline).born("a").pass(time.Minute).edit(otherUser, "a", labelled).opens("a")
	}},
	{RuleOpening, "opens at once on a node that returns without a reboot", "", func(s *builder) {
		s.gate(byLabel, soaking).born("a", labelled).pass(time.Minute).opens("a").pass(time.Hour).edit(admin, "a", unreachable)
		s.closes("a", v1alpha1.ReasonNodeSilent).pass(time.Minute).edit(admin, "a", reporting).opens("a")
	}},
	{RuleOpening, "a closeWhen gate opens before its signal has stopped holding for long enough", "openAfterSeconds", func(s *builder) {
		s.gate(levelByLabel, soaking).register("a", labelled).closes("a", v1alpha1.ReasonSignalsHold).pass(time.Hour)
		s.edit(otherUser, "a", unlabelled).pass(30 * time.Second).releases("a")
	}},
	{RuleOpening, "a closeWhen gate opens when its signal has stopped holding for long enough", "", func(s *builder) {
		s.gate(levelByLabel, soaking).register("a", labelled).closes("a", v1alpha1.ReasonSignalsHold).pass(time.Hour)
		s.edit(otherUser, "a", unlabelled).pass(time.Minute).releases("a")
	}},
	{RuleOpening, "opens on a condition that has held for long enough by the node's clock", "", func(s *builder) {
		s.gate(byNet, soaking).born("a").pass(time.Minute)
		s.edit("system:node:a", "a", condition("Net", corev1.ConditionTrue), func(n *corev1.Node) {
			n.Status.Conditions[len(n.Status.Conditions)-1].LastTransitionTime = metav1.NewTime(s.now.Add(-time.Hour))
		}).opens("a")
	}},
}

// refused makes the gate report that it is not in force.
func refused(ng *v1alpha1.NodeGate) { ng.Status.Conditions[0].Status = metav1.ConditionFalse }

// refusalHistories are histories of what a gate must not do at all.
var refusalHistories = []history{
	{RuleClosing, "a gate that is not accepted closes", "the gate is not accepted", func(s *builder) {
		s.gate(onRegression).twoOpen().edits(refused).pass(time.Minute).edit(otherUser, "a", unlabelled).closes("a", v1alpha1.ReasonRegression)
	}},
	{RuleClosing, "a gate closes just before it reports that it is accepted", "", func(s *builder) {
		s.gate(onRegression).twoOpen().edits(refused).pass(time.Minute).edit(otherUser, "a", unlabelled).closes("a", v1alpha1.ReasonRegression)
		s.edits(func(ng *v1alpha1.NodeGate) { ng.Status.Conditions[0].Status = metav1.ConditionTrue })
	}},
	{RuleClosing, "a gate that is not accepted is closed in a new boot", "", func(s *builder) {
		s.gate(byLabel).born("a").edits(refused).pass(time.Minute).reboots("a").closes("a", v1alpha1.ReasonRebooted)
	}},
	{RuleClosing, "a closeWhen gate closes on a new node", "a closeWhen gate closes on no node because it is new", func(s *builder) {
		s.gate(level).register("a", condition("BadDisk", corev1.ConditionFalse)).closes("a", v1alpha1.ReasonBirth)
	}},
	{RuleForeign, "adds a NoExecute taint without its time", "its timeAdded", func(s *builder) {
		s.gate(byLabel, evicting).remove(revisions.KindPolicy, "", birthPolicy).register("a").edit(nodegate, "a", s.evicts(nil))
	}},
	{RuleForeign, "adds a NoExecute taint with an earlier time", "its timeAdded", func(s *builder) {
		s.gate(byLabel, evicting).remove(revisions.KindPolicy, "", birthPolicy).register("a").edit(nodegate, "a", s.evicts(new(metav1.NewTime(s.now.Add(-time.Hour)))))
	}},
	{RuleForeign, "adds a NoExecute taint with its time", "", func(s *builder) {
		s.gate(byLabel, evicting).remove(revisions.KindPolicy, "", birthPolicy).register("a").edit(nodegate, "a", s.evicts(new(metav1.NewTime(s.now.Truncate(time.Second)))))
	}},
}

// evicts closes a gate with NoExecute on a new node.
func (s *builder) evicts(added *metav1.Time) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: gateTaint, Effect: corev1.TaintEffectNoExecute, TimeAdded: added})
		recorded(record{State: "Closed", Reason: "Birth", Boot: "boot-1", Taint: gateTaint + ":NoExecute", Since: s.now})(n)
	}
}
