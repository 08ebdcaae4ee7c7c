// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// recordsSilence records on node "a", as nodegate, for how long it has been unreachable.
func (s *builder) recordsSilence(seconds int64) *builder {
	return s.edit(nodegate, "a", recorded(record{State: "Closed", Reason: "Birth", Boot: "boot-1", Taint: gateTaint + ":NoSchedule", SilentFor: seconds}))
}

// afterOutage creates nodes "a" and "b", and makes "a" unreachable for a minute.
func (s *builder) afterOutage() *builder {
	return s.gate(byLabel, withDeadline).born("b", labelled).born("a").outage()
}

// silenceHistories are histories of the time for which a record shows that the node was unreachable.
var silenceHistories = []history{
	{RuleClosing, "records for how long the node was unreachable", "", func(s *builder) {
		s.afterOutage().recordsSilence(60)
	}},
	{RuleClosing, "records that the node was unreachable for too long", "since the gate closed, it was so for at most 1m7", func(s *builder) {
		s.afterOutage().pass(time.Hour).recordsSilence(69)
	}},
	{RuleClosing, "records that the node was unreachable, which it never was", "it was so for at most 0s", func(s *builder) {
		s.gate(byLabel, withDeadline).born("a").pass(time.Hour).recordsSilence(1)
	}},
	{RuleClosing, "counts an outage twice", "at most 1m7", func(s *builder) {
		s.afterOutage().recordsSilence(60).pass(time.Hour).recordsSilence(120)
	}},
	{RuleClosing, "counts two outages, and not the time between them", "at most 2m9", func(s *builder) {
		s.afterOutage().pass(time.Hour).edit(nodegate, "b", recorded(bornRecord))
		s.pass(time.Minute).outage().recordsSilence(3600)
	}},
	{RuleClosing, "counts two outages", "", func(s *builder) {
		s.afterOutage().recordsSilence(60).pass(time.Hour).outage().recordsSilence(120)
	}},
	{RuleClosing, "counts the time between two outages, because it did not run then", "", func(s *builder) {
		s.afterOutage().pass(time.Hour).outage().recordsSilence(3720)
	}},
	{RuleClosing, "counts an outage that began before the gate closed", "at most 26", func(s *builder) {
		s.gate(byLabel, withDeadline).born("a", labelled).opens("a").pass(time.Minute).reports("a", corev1.ConditionUnknown).pass(30 * time.Second)
		closed := record{State: "Closed", Reason: "NodeSilent", Boot: "boot-1", Taint: gateTaint + ":NoSchedule", Since: s.now}
		s.edit(nodegate, "a", withTaint(gateTaint), recorded(closed)).pass(24*time.Second).reports("a", corev1.ConditionTrue)
		closed.SilentFor = 54
		s.edit(nodegate, "a", recorded(closed))
	}},
	{RuleClosing, "counts an outage since the gate closed", "", func(s *builder) {
		s.gate(byLabel, withDeadline).born("a", labelled).opens("a").pass(time.Minute).reports("a", corev1.ConditionUnknown).pass(30 * time.Second)
		closed := record{State: "Closed", Reason: "NodeSilent", Boot: "boot-1", Taint: gateTaint + ":NoSchedule", Since: s.now}
		s.edit(nodegate, "a", withTaint(gateTaint), recorded(closed)).pass(24*time.Second).reports("a", corev1.ConditionTrue)
		closed.SilentFor = 25
		s.edit(nodegate, "a", recorded(closed))
	}},
	{RuleClosing, "the gate was paused meanwhile, so the record is believed", "", func(s *builder) {
		s.afterOutage().edits(paused).pass(time.Hour).edits(func(ng *v1alpha1.NodeGate) { ng.Spec.Mode, ng.Generation = "", 3 })
		s.outage().recordsSilence(9999)
	}},
}
