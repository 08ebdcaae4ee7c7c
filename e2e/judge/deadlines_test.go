// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// forMissingPods gives the gate a deadline that opens it where a pod is missing for a minute.
func forMissingPods(ng *v1alpha1.NodeGate) {
	ng.Spec.Deadline = &v1alpha1.Deadline{PodMissingSeconds: new(int32(60)), Action: v1alpha1.DeadlineOpen}
}

// eitherDaemon changes the gate to open by one of two DaemonSets. Only the first of them exists.
func eitherDaemon(ng *v1alpha1.NodeGate) {
	source := func(name string) v1alpha1.NamedSource {
		return v1alpha1.NamedSource{Name: name, SignalSource: v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "system", Name: name}}}
	}
	ng.Spec.OpenWhen = []v1alpha1.Signal{{Name: "either", AnyOf: []v1alpha1.NamedSource{source("agent"), source("another")}}}
}

// keepingClosed makes the gate's deadline only report overdue nodes.
func keepingClosed(ng *v1alpha1.NodeGate) { ng.Spec.Deadline.Action = v1alpha1.DeadlineKeepClosed }

// reports sets the Ready condition of a node, with the time at which it changes.
func (s *builder) reports(name string, status corev1.ConditionStatus) *builder {
	return s.edit(admin, name, condition("Ready", status), func(n *corev1.Node) {
		n.Status.Conditions[len(n.Status.Conditions)-1].LastTransitionTime = metav1.NewTime(s.now)
	})
}

// outage makes node "a" unreachable for a minute, in which nodegate opens the gate on node "b".
func (s *builder) outage() *builder {
	return s.reports("a", corev1.ConditionUnknown).pass(50*time.Second).opens("b").pass(10*time.Second).reports("a", corev1.ConditionTrue)
}

// silentOverdue closes a gate that its deadline opened on node "a", because the node is unreachable.
func (s *builder) silentOverdue(reason v1alpha1.Reason) *builder {
	s.gate(byLabel, withDeadline).born("a").pass(time.Hour).opensAs("a", reason).reports("a", corev1.ConditionUnknown)
	r := record{State: "Closed", Reason: "NodeSilent", Overdue: true, Boot: "boot-1", Taint: gateTaint + ":NoSchedule", Since: s.now}
	return s.edit(nodegate, "a", withTaint(gateTaint), recorded(r)).pass(time.Second).reports("a", corev1.ConditionTrue)
}

// deadlineHistories are histories of deadlines.
var deadlineHistories = []history{
	{RuleOpening, "opens because a pod is missing that exists", "no required pod is missing", func(s *builder) {
		s.gate(forMissingPods).daemonSet().born("a").runs("a", "c1", false).pass(time.Hour).opensByDeadline("a")
	}},
	{RuleOpening, "opens because a pod is missing", "", func(s *builder) {
		s.gate(forMissingPods).daemonSet().born("a").pass(time.Minute).opensByDeadline("a")
	}},
	{RuleOpening, "opens because a pod has been missing for less than the limit", "the deadline passes", func(s *builder) {
		s.gate(forMissingPods).daemonSet().born("a").pass(50 * time.Second).opensByDeadline("a")
	}},
	{RuleOpening, "opens because a pod was missing within the lag", "", func(s *builder) {
		s.gate(forMissingPods).daemonSet().born("a").pass(time.Minute).runs("a", "c1", false).opensByDeadline("a")
	}},
	{RuleOpening, "opens because a pod is missing, and a mirror pod exists", "", func(s *builder) {
		s.gate(forMissingPods).daemonSet().born("a")
		s.runs("a", "c1", false, func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} })
		s.pass(time.Hour).opensByDeadline("a")
	}},
	{RuleOpening, "opens because a DaemonSet is missing", "", func(s *builder) {
		s.gate(forMissingPods).born("a").pass(time.Hour).opensByDeadline("a")
	}},
	{RuleOpening, "opens because a pod is missing, and one of two alternatives has its pod", "no required pod is missing", func(s *builder) {
		s.gate(forMissingPods, eitherDaemon).daemonSet().born("a").runs("a", "c1", false).pass(time.Hour).opensByDeadline("a")
	}},
	{RuleOpening, "opens because the pods of both alternatives are missing", "", func(s *builder) {
		s.gate(forMissingPods, eitherDaemon).daemonSet().born("a").pass(time.Hour).opensByDeadline("a")
	}},
	{RuleOpening, "opens because a run is missing that has not finished", "no required pod is missing", func(s *builder) {
		s.gate(byRun, forMissingPods).born("a").finishes("run", "boot-1", corev1.PodRunning).pass(time.Hour).opensByDeadline("a")
	}},
	{RuleOpening, "opens because a run is missing", "", func(s *builder) {
		s.gate(byRun, forMissingPods).born("a").pass(time.Hour).opensByDeadline("a")
	}},
	{RuleOpening, "opens because one of several pods by label is missing", "no required pod is missing", func(s *builder) {
		s.gate(forMissingPods, byAnnotation).daemonSet().born("a").runs("a", "c1", false).pass(time.Hour).opensByDeadline("a")
	}},
	{RuleOpening, "opens because the node has not been ready for long, and no pod is missing", "", func(s *builder) {
		s.gate(forMissingPods, func(ng *v1alpha1.NodeGate) { ng.Spec.Deadline.ReadySeconds = new(int32(600)) })
		s.daemonSet().born("a").runs("a", "c1", false).pass(10 * time.Minute).opensByDeadline("a")
	}},
	{RuleOpening, "counts the time of an outage towards the deadline", "the deadline passes", func(s *builder) {
		s.gate(byLabel, withDeadline).born("b", labelled).born("a").pass(10 * time.Second).outage().opensByDeadline("a")
	}},
	{RuleOpening, "opens when the deadline has passed without the time of an outage", "", func(s *builder) {
		s.gate(byLabel, withDeadline).born("b", labelled).born("a").pass(10 * time.Second).outage().pass(50 * time.Second).opensByDeadline("a")
	}},
	{RuleOpening, "counts the time of an outage that nodegate did not observe", "", func(s *builder) {
		s.gate(byLabel, withDeadline).born("a").reports("a", corev1.ConditionUnknown).pass(time.Minute)
		s.reports("a", corev1.ConditionTrue).opensByDeadline("a")
	}},
	{RuleOpening, "counts the time of an outage while the gate was paused", "", func(s *builder) {
		s.gate(byLabel, withDeadline).gate(byLabel, unrelated).born("a").register("b", labelled).edits(paused).reports("a", corev1.ConditionUnknown)
		s.pass(50*time.Second).edit(nodegate, "b", recordedFor("unrelated", openRecord)).pass(10*time.Second).reports("a", corev1.ConditionTrue)
		s.edits(func(ng *v1alpha1.NodeGate) { ng.Spec.Mode, ng.Generation = v1alpha1.ModeEnforce, 3 }).opensByDeadline("a")
	}},
	{RuleOpening, "counts the time before the reboot towards the deadline", "the deadline passes", func(s *builder) {
		s.gate(byLabel, withDeadline).born("a").pass(time.Minute).reboots("a").pass(10 * time.Second).opensByDeadline("a")
	}},
	{RuleOpening, "a paused gate opens because of its deadline", "the gate is paused", func(s *builder) {
		s.gate(byLabel, withDeadline).born("a").edits(paused).pass(time.Hour).opensByDeadline("a")
	}},
	{RuleOpening, "a node becomes a member with the gate open, because of a deadline", "the gate was not closed", func(s *builder) {
		s.register("a").pass(time.Hour).gate(byLabel, withDeadline).opensByDeadline("a")
	}},
	{RuleOpening, "opens again when the node returns, because the deadline had opened it", "", func(s *builder) {
		s.silentOverdue(v1alpha1.ReasonDeadlinePassed).opensByDeadline("a")
	}},
	{RuleOpening, "opens when the node returns, as if the deadline had opened it", "the deadline passes", func(s *builder) {
		s.silentOverdue(v1alpha1.ReasonSignalsHold).opensByDeadline("a")
	}},
	{RuleOpening, "opens again when the node returns after a reboot, because the deadline had opened it", "the deadline passes", func(s *builder) {
		s.silentOverdue(v1alpha1.ReasonDeadlinePassed).reboots("a").opensByDeadline("a")
	}},
	{RuleOpening, "stays open in a new boot, because its deadline opened it", "signal label does not hold", func(s *builder) {
		s.gate(byLabel, withDeadline).born("a").pass(time.Hour).opensByDeadline("a").pass(time.Hour).reboots("a").opensByDeadline("a")
	}},
	{RuleOpening, "ends the exception of a deadline although a signal does not hold", "signal label does not hold", func(s *builder) {
		s.gate(byLabel, withDeadline).born("a").pass(time.Hour).opensByDeadline("a").pass(time.Minute).opens("a")
	}},
	{RuleOpening, "ends the exception of a deadline because the signals hold", "", func(s *builder) {
		s.gate(byLabel, withDeadline).born("a").pass(time.Hour).opensByDeadline("a").pass(time.Minute).edit(otherUser, "a", labelled).opens("a")
	}},
	{RuleClosing, "closes as regressed although its deadline opened it", "its deadline opened it", func(s *builder) {
		s.gate(onRegression, withDeadline).born("a").pass(time.Hour).opensByDeadline("a").closes("a", v1alpha1.ReasonRegression)
	}},
	{RuleClosing, "records that a deadline has passed too early", "the deadline passes", func(s *builder) {
		s.gate(byLabel, withDeadline).born("a").pass(10*time.Second).edit(nodegate, "a", overdue)
	}},
	{RuleClosing, "records that a deadline has passed", "", func(s *builder) {
		s.gate(byLabel, withDeadline, keepingClosed).born("a").pass(time.Minute).edit(nodegate, "a", overdue)
	}},
	{RuleClosing, "records that a deadline has passed which the gate does not have", "the gate has no deadline", func(s *builder) {
		s.gate(byLabel).born("a").pass(time.Hour).edit(nodegate, "a", overdue)
	}},
	{RuleForeign, "nodegate publishes the condition of an unreachable node", "the node's Ready condition is Unknown", func(s *builder) {
		s.gate(publishing).born("a", overdue, unreachable).pass(time.Minute).edit(nodegate, "a", published)
	}},
	{RuleQuiet, "a deadline never opens the gate", "its deadline opens it", func(s *builder) {
		s.gate(byLabel, withDeadline).born("a").pass(time.Hour)
	}},
	{RuleQuiet, "the gate is closed on a node that is being set up, after its deadline", "", func(s *builder) {
		s.gate(byLabel, withDeadline).born("a", overdue, withTaint("node.cloudprovider.kubernetes.io/uninitialized")).pass(time.Hour)
	}},
	{RuleQuiet, "a deadline for missing pods has passed, and the pod exists", "", func(s *builder) {
		s.gate(forMissingPods).daemonSet().born("a").runs("a", "c1", false).pass(time.Hour)
	}},
	{RuleQuiet, "a pod is missing, and its deadline never opens the gate", "its deadline opens it", func(s *builder) {
		s.gate(forMissingPods).daemonSet().born("a").pass(time.Hour)
	}},
	{RuleQuiet, "a pod is missing, and its deadline has just not passed", "", func(s *builder) {
		s.gate(forMissingPods).daemonSet().born("a").pass(10 * time.Second)
	}},
	{RuleQuiet, "a pod is missing since just before the end", "", func(s *builder) {
		s.gate(forMissingPods).daemonSet().born("a").runs("a", "c1", false).pass(time.Hour).remove(revisions.KindPod, "system", "agent-a").pass(-time.Minute)
	}},
	{RuleQuiet, "a pod that terminates may or may not be missing", "", func(s *builder) {
		s.gate(forMissingPods).daemonSet().born("a")
		s.runs("a", "c1", false, func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(s.now)) }).pass(time.Hour)
	}},
	{RuleQuiet, "a pod is missing, and the record never shows that its deadline has passed", "its record does not show it", func(s *builder) {
		s.gate(forMissingPods, keepingClosed).daemonSet().born("a").pass(time.Hour)
	}},
	{RuleQuiet, "the record never shows that the deadline has passed", "its deadline has passed, and its record does not show it", func(s *builder) {
		s.gate(byLabel, withDeadline, keepingClosed).born("a").pass(time.Hour)
	}},
	{RuleQuiet, "the record shows that the deadline has passed", "", func(s *builder) {
		s.gate(byLabel, withDeadline, keepingClosed).born("a", overdue).pass(time.Hour)
	}},
}
