// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// closingExisting makes the gate close on existing nodes.
func closingExisting(ng *v1alpha1.NodeGate) { ng.Spec.ExistingNodes = v1alpha1.ExistingClose }

// byNet changes the gate to wait for a condition of the node.
func byNet(ng *v1alpha1.NodeGate) {
	ng.Spec.OpenWhen[0].SignalSource = v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{Type: "Net", Status: "True"}}
}

// existingHistories are histories of nodes that existed before the gate.
var existingHistories = []history{
	{RuleClosing, "closes on an existing node because a signal does not hold", "", func(s *builder) {
		s.register("a").pass(time.Hour).gate(byLabel, closingExisting).closes("a", v1alpha1.ReasonExisting)
	}},
	{RuleClosing, "closes on an existing node although its signals hold", "no signal is false: all hold", func(s *builder) {
		s.register("a", labelled).pass(time.Hour).gate(byLabel, closingExisting).closes("a", v1alpha1.ReasonExisting)
	}},
	{RuleClosing, "closes on an existing node whose signals have just begun to hold", "", func(s *builder) {
		s.register("a").pass(time.Hour).gate(byLabel, closingExisting).edit(otherUser, "a", labelled).closes("a", v1alpha1.ReasonExisting)
	}},
	{RuleClosing, "closes on an existing node although its signal is unknown", "no signal is false: signal agent: condition Net is Unknown", func(s *builder) {
		s.register("a", condition("Net", corev1.ConditionUnknown)).pass(time.Hour).gate(byNet, closingExisting).closes("a", v1alpha1.ReasonExisting)
	}},
	{RuleClosing, "closes on an existing node because a condition has not had its status for long enough", "", func(s *builder) {
		s.register("a", condition("Net", corev1.ConditionTrue)).pass(time.Hour)
		s.gate(byNet, closingExisting, func(ng *v1alpha1.NodeGate) { ng.Spec.OpenWhen[0].Condition.ForSeconds = 60 })
		s.edit("system:node:a", "a", func(n *corev1.Node) {
			n.Status.Conditions[1].LastTransitionTime.Time = s.now.Add(-time.Minute)
		}).closes("a", v1alpha1.ReasonExisting)
	}},
	{RuleClosing, "closes on an existing node because its daemon is known from an earlier Node", "", func(s *builder) {
		s.daemonSet().register("a").runs("a", "c1", true).pass(time.Minute).remove(revisions.KindNode, "", "a").register("a").pass(time.Second)
		s.gate(closingExisting).pass(-time.Minute).closes("a", v1alpha1.ReasonExisting)
	}},
	{RuleClosing, "closes on an idle node although its signals hold", "no signal is false: all hold", func(s *builder) {
		s.idle(func() { s.edit(otherUser, "a", labelled).pass(time.Minute) }, func() {})
	}},
	{RuleClosing, "confirms that a closed node is idle, and its signals hold", "", func(s *builder) {
		s.idle(func() {}, func() {}).pass(time.Minute).edit(otherUser, "a", labelled).pass(time.Minute).closes("a", v1alpha1.ReasonExisting)
	}},
}
