// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// evicting gives the gate's taint the effect NoExecute.
func evicting(ng *v1alpha1.NodeGate) { ng.Spec.Taint.Effect = corev1.TaintEffectNoExecute }

// zoneOfThree creates nodes a, b and c. The gate is open on a.
func (s *builder) zoneOfThree() *builder {
	return s.gate(byLabel).born("a", labelled).born("b").born("c").opens("a").pass(time.Minute)
}

// zoneHistories are histories of unreachable nodes.
var zoneHistories = []history{
	{RuleClosing, "closes on an unreachable node", "", func(s *builder) {
		s.gate(byLabel).born("a", labelled).opens("a").edit(admin, "a", unreachable).closes("a", v1alpha1.ReasonNodeSilent)
	}},
	{RuleClosing, "a gate with NoExecute closes on an unreachable node", "a gate with NoExecute does not close on an unreachable node", func(s *builder) {
		s.gate(byLabel, evicting).born("a", labelled).opens("a").edit(admin, "a", unreachable).closes("a", v1alpha1.ReasonNodeSilent)
	}},
	{RuleClosing, "a gate with NoExecute and a recloseTaint closes on an unreachable node", "", func(s *builder) {
		s.gate(byLabel, evicting, reclosing).born("a", labelled).opens("a").edit(admin, "a", unreachable).closesWith("a", v1alpha1.ReasonNodeSilent, againTaint)
	}},
	{RuleClosing, "closes on the last node of a zone that becomes unreachable", "most of its nodes are unreachable", func(s *builder) {
		s.zoneOfThree().edit(admin, "b", unreachable).edit(admin, "c", unreachable).pass(time.Minute)
		s.edit(admin, "a", unreachable).closes("a", v1alpha1.ReasonNodeSilent)
	}},
	{RuleClosing, "closes on one of two unreachable nodes of three", "most of its nodes are unreachable", func(s *builder) {
		s.zoneOfThree().edit(admin, "b", unreachable).pass(time.Minute).edit(admin, "a", unreachable).closes("a", v1alpha1.ReasonNodeSilent)
	}},
	{RuleClosing, "closes on a node before nodegate has observed that others are unreachable", "", func(s *builder) {
		s.zoneOfThree().edit(admin, "b", unreachable).edit(admin, "c", unreachable).edit(admin, "a", unreachable).closes("a", v1alpha1.ReasonNodeSilent)
	}},
	{RuleClosing, "closes on a node before nodegate has observed that another is reachable no longer", "", func(s *builder) {
		s.zoneOfThree().edit(admin, "b", unreachable).edit(admin, "c", unreachable).pass(time.Minute).edit(admin, "b", reachable)
		s.edit(admin, "c", reachable).edit(admin, "b", unreachable).edit(admin, "c", unreachable).edit(admin, "a", unreachable).closes("a", v1alpha1.ReasonNodeSilent)
	}},
	{RuleClosing, "closes on one of two unreachable nodes of four", "", func(s *builder) {
		s.zoneOfThree().born("d").edit(admin, "b", unreachable).pass(time.Minute).edit(admin, "a", unreachable).closes("a", v1alpha1.ReasonNodeSilent)
	}},
	{RuleClosing, "closes on one of two unreachable nodes of three, and nodegate may know a fourth", "", func(s *builder) {
		s.zoneOfThree().born("d").edit(admin, "b", unreachable).pass(time.Minute).remove(revisions.KindNode, "", "d")
		s.edit(admin, "a", unreachable).closes("a", v1alpha1.ReasonNodeSilent)
	}},
	{RuleClosing, "closes on a node of another zone", "", func(s *builder) {
		s.zoneOfThree().edit(admin, "a", func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "z" })
		s.edit(admin, "b", unreachable).edit(admin, "c", unreachable).pass(time.Minute).edit(admin, "a", unreachable).closes("a", v1alpha1.ReasonNodeSilent)
	}},
}
