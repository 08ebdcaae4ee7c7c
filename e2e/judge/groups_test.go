// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// inPairs changes the gate to open on two nodes of a rack together.
func inPairs(ng *v1alpha1.NodeGate) {
	onRegression(ng)
	ng.Spec.Budget.MaxReclosed = new(intstr.FromString("100%"))
	ng.Spec.OpenTogether = &v1alpha1.OpenTogether{LabelKey: "rack", AtLeast: intstr.FromInt32(2)}
}

// bySize changes it to open on all nodes of a rack, of which a label declares the number.
func bySize(ng *v1alpha1.NodeGate) {
	inPairs(ng)
	ng.Spec.OpenTogether.AtLeast, ng.Spec.OpenTogether.SizeLabelKey = intstr.FromString("100%"), "size"
}

func closingInPairs(ng *v1alpha1.NodeGate) {
	inPairs(ng)
	ng.Spec.CloseTogether = v1alpha1.CloseTogetherWhenIncomplete
}

func inRack(name string) func(*corev1.Node) {
	return func(node *corev1.Node) { node.Labels["rack"] = name }
}

func sized(node *corev1.Node) { node.Labels["size"] = "2" }

// pair creates the gate and two nodes of a rack, of which a is fit.
func (s *builder) pair(gate func(*v1alpha1.NodeGate)) *builder {
	return s.gate(gate).born("a", inRack("r1"), labelled).born("b", inRack("r1"))
}

// openPair is pair with both nodes fit and open.
func (s *builder) openPair(gate func(*v1alpha1.NodeGate)) *builder {
	return s.pair(gate).edit(admin, "b", labelled).opens("a").opens("b").pass(time.Minute)
}

var groupHistories = []history{
	{RuleOpening, "a group opens when both nodes are fit", "", func(s *builder) {
		s.openPair(inPairs)
	}},
	{RuleOpening, "a node opens without its group", "in group r1, at most 1 nodes are fit, of at least 2", func(s *builder) {
		s.pair(inPairs).opens("a")
	}},
	{RuleOpening, "a node opens with a fit node of another group", "in group r1, at most 1 nodes are fit, of at least 2", func(s *builder) {
		s.gate(inPairs).born("a", inRack("r1"), labelled).born("b", inRack("r2"), labelled).opens("a")
	}},
	{RuleOpening, "a node opens with a node that was fit within the lag", "", func(s *builder) {
		s.pair(inPairs).edit(admin, "b", labelled).edit(admin, "b", unlabelled).opens("a")
	}},
	{RuleOpening, "a node opens with a node that was fit before the lag", "at most 1 nodes are fit", func(s *builder) {
		s.pair(inPairs).edit(admin, "b", labelled).edit(admin, "b", unlabelled).pass(time.Minute).opens("a")
	}},
	{RuleOpening, "a node opens with a node on which a user closes the gate", "at most 1 nodes are fit", func(s *builder) {
		s.pair(inPairs).edit(nodegate, "b", labelled, recorded(record{State: "Open", Override: "Closed", Taint: gateTaint + ":NoSchedule"})).pass(time.Minute).opens("a")
	}},
	{RuleOpening, "a node without a group opens", "the node has no group", func(s *builder) {
		s.gate(inPairs).born("a", labelled).opens("a")
	}},
	{RuleOpening, "a group of known size opens", "", func(s *builder) {
		s.pair(bySize).edit(admin, "b", labelled, sized).opens("a").opens("b")
	}},
	{RuleOpening, "a group of unknown size opens", "the size of the node's group is unknown", func(s *builder) {
		s.pair(bySize).edit(admin, "b", labelled).opens("a")
	}},
	{RuleOpening, "a node returns without a reboot, and its group is incomplete", "", func(s *builder) {
		s.openPair(inPairs).edit(admin, "a", unreachable).closes("a", v1alpha1.ReasonNodeSilent)
		s.edit(admin, "b", unlabelled).closes("b", v1alpha1.ReasonRegression).pass(time.Minute)
		s.edit(admin, "a", reachable).opens("a")
	}},
	{RuleClosing, "a group that has lost a node closes", "", func(s *builder) {
		s.openPair(closingInPairs).edit(admin, "b", unlabelled).closes("b", v1alpha1.ReasonRegression).closes("a", v1alpha1.ReasonGroupIncomplete)
	}},
	{RuleClosing, "it closes without closeTogether", "the gate's spec does not close it for this reason", func(s *builder) {
		s.openPair(inPairs).edit(admin, "b", unlabelled).closes("b", v1alpha1.ReasonRegression).closes("a", v1alpha1.ReasonGroupIncomplete)
	}},
	{RuleClosing, "a complete group closes", `group "r1" is complete`, func(s *builder) {
		s.openPair(closingInPairs).closes("a", v1alpha1.ReasonGroupIncomplete)
	}},
	{RuleClosing, "it closes on a budget of one", "with this node, 2 nodes of the zone are closed, but the budget is 1", func(s *builder) {
		s.openPair(func(ng *v1alpha1.NodeGate) { closingInPairs(ng); ng.Spec.Budget.MaxReclosed = one() })
		s.edit(admin, "b", unlabelled).closes("b", v1alpha1.ReasonRegression).closes("a", v1alpha1.ReasonGroupIncomplete)
	}},
	{RuleQuiet, "a node waits for its group", "", func(s *builder) {
		s.pair(inPairs)
	}},
	{RuleQuiet, "a complete group does not open", "all signals have held for long enough, and the group is complete", func(s *builder) {
		s.pair(inPairs).edit(admin, "b", labelled)
	}},
	{RuleQuiet, "an incomplete group stays open without closeTogether", "", func(s *builder) {
		s.openPair(inPairs).edit(admin, "b", unlabelled).closes("b", v1alpha1.ReasonRegression)
	}},
	{RuleQuiet, "an incomplete group stays open with closeTogether", "the group is incomplete, and there is budget", func(s *builder) {
		s.openPair(closingInPairs).edit(admin, "b", unlabelled).closes("b", v1alpha1.ReasonRegression)
	}},
	{RuleQuiet, "an incomplete group waits for budget", "", func(s *builder) {
		s.openPair(func(ng *v1alpha1.NodeGate) { closingInPairs(ng); ng.Spec.Budget.MaxReclosed = one() })
		s.edit(admin, "b", unlabelled).closes("b", v1alpha1.ReasonRegression)
	}},
}
