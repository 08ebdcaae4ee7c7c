// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// stamping gives the gate an annotation for the time at which it opens.
func stamping(ng *v1alpha1.NodeGate) { ng.Spec.OpenedAtAnnotation = "x" }

// notAllowed makes the gate report that the administrator has not allowed its annotation.
func notAllowed(ng *v1alpha1.NodeGate) {
	ng.Status.Conditions[0].Reason = v1alpha1.ReasonStampNotAllowed
}

// stamped adds the annotation, with the time that was a while ago.
func (s *builder) stamped(ago time.Duration) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Annotations["x"] = strconv.FormatInt(s.now.Add(-ago).Unix(), 10) }
}

// openRecord is the record of a gate that is open because its signals hold.
var openRecord = record{State: "Open", Reason: "SignalsHold", Boot: "boot-1", Taint: gateTaint + ":NoSchedule"}

func opened(n *corev1.Node) { recorded(openRecord)(n) }

// stampHistories are histories of the annotation with the time at which a gate opened.
var stampHistories = []history{
	{RuleForeign, "opens without its annotation", "its openedAtAnnotation x is missing", func(s *builder) {
		s.gate(byLabel, stamping).born("a", labelled).opens("a")
	}},
	{RuleForeign, "opens and leaves the annotation of an earlier opening", "its openedAtAnnotation x", func(s *builder) {
		s.gate(byLabel, stamping).born("a", labelled, s.stamped(time.Hour)).opens("a")
	}},
	{RuleForeign, "opens and writes a time before the opening", "its openedAtAnnotation x", func(s *builder) {
		s.gate(byLabel, stamping).born("a", labelled).pass(time.Hour).edit(nodegate, "a", withoutTaint(gateTaint), opened, s.stamped(time.Hour))
	}},
	{RuleForeign, "opens and writes a time after the opening", "its openedAtAnnotation x", func(s *builder) {
		s.gate(byLabel, stamping).born("a", labelled).edit(nodegate, "a", withoutTaint(gateTaint), opened, s.stamped(-time.Hour))
	}},
	{RuleForeign, "opens and writes its annotation", "", func(s *builder) {
		s.gate(byLabel, stamping).born("a", labelled).edit(nodegate, "a", withoutTaint(gateTaint), opened, s.stamped(0))
	}},
	{RuleForeign, "opens without an annotation that is not allowed", "", func(s *builder) {
		s.gate(byLabel, stamping).edits(notAllowed).pass(time.Minute).born("a", labelled).opens("a")
	}},
	{RuleForeign, "opens without an annotation that it has just got", "", func(s *builder) {
		s.gate(byLabel).born("a", labelled).edits(func(ng *v1alpha1.NodeGate) { stamping(ng); ng.Generation = 2 }).opens("a")
	}},
	{RuleForeign, "a closeWhen gate opens without its annotation", "its openedAtAnnotation x is missing", func(s *builder) {
		s.gate(level, stamping).register("a", condition("BadDisk", corev1.ConditionTrue)).closes("a", v1alpha1.ReasonSignalsHold)
		s.edit("system:node:a", "a", condition("BadDisk", corev1.ConditionFalse)).releases("a")
	}},
	{RuleForeign, "opens without its annotation, because it no longer exists", "", func(s *builder) {
		s.gate(level, stamping).register("a", condition("BadDisk", corev1.ConditionTrue)).closes("a", v1alpha1.ReasonSignalsHold)
		s.remove(revisions.KindNodeGate, "", "agent").releases("a")
	}},
	{RuleForeign, "closes and writes its annotation", "no gate with this openedAtAnnotation opens", func(s *builder) {
		s.gate(byLabel, stamping).twoOpen().reboots("a").edit(nodegate, "a", s.stamped(0)).closes("a", v1alpha1.ReasonRebooted)
	}},
	{RuleForeign, "writes its annotation while it is closed", "no gate with this openedAtAnnotation opens", func(s *builder) {
		s.gate(byLabel, stamping).born("a").edit(nodegate, "a", s.stamped(0))
	}},
	{RuleForeign, "a gate without the annotation opens, and it is written", "no gate with this openedAtAnnotation opens", func(s *builder) {
		s.gate(byLabel, stamping, unrelated).gate(byLabel).born("a", labelled, withTaint("example.com/unrelated"), recordedFor("unrelated", record{
			State: "Closed", Reason: "Birth", Boot: "boot-1", Taint: "example.com/unrelated:NoSchedule"}))
		s.edit(nodegate, "a", withoutTaint(gateTaint), opened, s.stamped(0))
	}},
	{RuleForeign, "adopts its taint and opens at once, and writes its annotation", "", func(s *builder) {
		s.register("a", withTaint(gateTaint), labelled).pass(time.Hour).gate(byLabel, stamping)
		s.edit(nodegate, "a", withoutTaint(gateTaint), opened, s.stamped(0))
	}},
	{RuleForeign, "another writer changes the annotation", "", func(s *builder) {
		s.gate(byLabel, stamping).born("a").edit(otherUser, "a", s.stamped(0))
	}},
}
