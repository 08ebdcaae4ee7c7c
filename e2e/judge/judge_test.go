// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// history is a history that violates a rule, or complies with it.
type history struct {
	rule Rule
	name string
	// why is a substring of the violation; empty if the history complies.
	why   string
	build func(*builder)
}

// histories are histories by rule. Those with a why violate the rule; the others comply.
var histories = []history{
	// S1: No gate opens against the newest committed facts.
	{RuleOpening, "opens when its daemon is ready", "", func(s *builder) {
		s.daemonGate().runs("a", "c1", true).opens("a")
	}},
	{RuleOpening, "opens although its daemon is not ready", "is not ready", func(s *builder) {
		s.daemonGate().runs("a", "c1", false).opens("a")
	}},
	{RuleOpening, "opens although its daemon is missing", "has no pod", func(s *builder) {
		s.daemonGate().opens("a")
	}},
	{RuleOpening, "opens although the DaemonSet does not exist", "DaemonSet system/agent does not exist", func(s *builder) {
		s.gate().born("a").opens("a")
	}},
	{RuleOpening, "opens on a daemon that was ready within the lag", "", func(s *builder) {
		s.daemonGate().runs("a", "c1", true).runs("a", "c1", false).opens("a").runs("a", "c1", true)
	}},
	{RuleOpening, "opens on a daemon that was ready before the lag", "is not ready", func(s *builder) {
		s.daemonGate().runs("a", "c1", true).runs("a", "c1", false).pass(DefaultLag + time.Second).opens("a")
	}},
	{RuleOpening, "opens on a pod that is terminating", "is terminating", func(s *builder) {
		s.daemonGate()
		s.runs("a", "c1", true, func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(s.now)) }).opens("a")
	}},
	{RuleOpening, "opens on a mirror pod", "is a mirror pod", func(s *builder) {
		s.daemonGate()
		s.runs("a", "c1", true, func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} })
		s.opens("a")
	}},
	{RuleOpening, "opens on a pod of another owner", "is not owned", func(s *builder) {
		s.daemonGate().runs("a", "c1", true, func(p *corev1.Pod) { p.OwnerReferences[0].UID = "another" }).opens("a")
	}},
	{RuleOpening, "opens on a forged pod of the daemon", "was not created by the DaemonSet controller", func(s *builder) {
		s.daemonGate()
		s.runs("a", "c1", true, func(p *corev1.Pod) { delete(p.Labels, v1alpha1.DaemonPodLabel) }).opens("a")
	}},
	{RuleOpening, "opens on a container of the previous boot", "from before the current boot", func(s *builder) {
		s.daemonGate().runs("a", "c1", true).opens("a").pass(time.Minute).reboots("a")
		s.closes("a", v1alpha1.ReasonRebooted).opens("a")
	}},
	{RuleOpening, "stays open after a reboot because of a container of the previous boot", "from before the current boot", func(s *builder) {
		s.daemonGate().runs("a", "c1", true).opens("a").pass(time.Minute).reboots("a").opens("a")
	}},
	{RuleOpening, "stays open after a reboot because of a label", "", func(s *builder) {
		s.gate(byLabel).born("a", labelled).opens("a").pass(time.Minute).reboots("a").opens("a")
	}},
	{RuleOpening, "opens on a container of the current boot", "", func(s *builder) {
		s.daemonGate().runs("a", "c1", true).opens("a").pass(time.Minute).reboots("a")
		s.closes("a", v1alpha1.ReasonRebooted).runs("a", "c2", true).opens("a")
	}},
	{RuleOpening, "opens on an old container after the node has been Ready for a minute", "", func(s *builder) {
		s.daemonGate().runs("a", "c1", true).opens("a").pass(time.Minute).reboots("a")
		s.closes("a", v1alpha1.ReasonRebooted).pass(time.Minute + time.Second).opens("a")
	}},
	{RuleOpening, "opens on an old container while the node is not Ready", "the node is not Ready", func(s *builder) {
		s.daemonGate().runs("a", "c1", true).opens("a").pass(time.Minute)
		s.edit("system:node:a", "a", bootID("boot-2"), condition("Ready", corev1.ConditionFalse))
		s.closes("a", v1alpha1.ReasonRebooted).pass(time.Hour).opens("a")
	}},
	{RuleOpening, "opens on an old container before the node has been Ready for a minute", "from before the current boot", func(s *builder) {
		s.daemonGate().runs("a", "c1", true).opens("a").pass(time.Minute)
		s.edit("system:node:a", "a", bootID("boot-2"), condition("Ready", corev1.ConditionFalse))
		s.closes("a", v1alpha1.ReasonRebooted).pass(time.Hour).edit("system:node:a", "a", reporting)
		s.pass(30 * time.Second).opens("a")
	}},
	{RuleOpening, "opens on a pod of an earlier Node", "from before the current boot or Node", func(s *builder) {
		s.daemonGate().runs("a", "c1", true).pass(time.Minute).remove(revisions.KindNode, "", "a").born("a").opens("a")
	}},
	{RuleOpening, "opens on the CSINode of an earlier Node", "belongs to an earlier Node", func(s *builder) {
		s.gate(byCSIDriver).born("a").registers("a", "csi", "another").opens("a")
	}},
	{RuleOpening, "opens on a driver of the node's CSINode", "", func(s *builder) {
		s.gate(byCSIDriver)
		s.born("a", func(n *corev1.Node) { n.UID = "this" }).registers("a", "csi", "this").opens("a")
	}},
	{RuleOpening, "opens on a run of this boot that succeeded", "", func(s *builder) {
		s.gate(byRun).born("a").finishes("run", "boot-1", corev1.PodSucceeded).opens("a")
	}},
	{RuleOpening, "opens on a run of another boot", "no pod that names the current boot has succeeded", func(s *builder) {
		s.gate(byRun).born("a").finishes("run", "boot-0", corev1.PodSucceeded).opens("a")
	}},
	{RuleOpening, "opens on a run that names no boot", "no pod that names the current boot has succeeded", func(s *builder) {
		s.gate(byRun).born("a").finishes("run", "", corev1.PodSucceeded).opens("a")
	}},
	{RuleOpening, "opens on a run before the reboot", "no pod that names the current boot has succeeded", func(s *builder) {
		s.gate(byRun).born("a").finishes("run", "boot-1", corev1.PodSucceeded).opens("a").pass(time.Minute).reboots("a")
		s.closes("a", v1alpha1.ReasonRebooted).opens("a")
	}},
	{RuleOpening, "opens on a run on an earlier Node", "no pod that names the current boot has succeeded", func(s *builder) {
		s.gate(byRun).born("a").finishes("run", "boot-1", corev1.PodSucceeded).pass(time.Minute).remove(revisions.KindNode, "", "a").born("a").opens("a")
	}},
	{RuleOpening, "opens on a run that failed", "no pod that names the current boot has succeeded", func(s *builder) {
		s.gate(byRun).born("a").finishes("run", "boot-1", corev1.PodFailed).opens("a")
	}},
	{RuleOpening, "opens on a run that is being deleted", "no pod that names the current boot has succeeded", func(s *builder) {
		s.gate(byRun).born("a")
		s.finishes("run", "boot-1", corev1.PodSucceeded, func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(s.now)) }).opens("a")
	}},
	{RuleOpening, "opens on a run whose pod was deleted long ago", "", func(s *builder) {
		s.gate(byRun).born("a").finishes("run", "boot-1", corev1.PodSucceeded).remove(revisions.KindPod, "system", "run").pass(time.Hour).opens("a")
	}},
	{RuleOpening, "opens although a later run has failed", "pod system/later was created after pod run, which succeeded, and has failed", func(s *builder) {
		s.gate(byRun).born("a").finishes("run", "boot-1", corev1.PodSucceeded).pass(time.Minute)
		s.finishes("later", "boot-1", corev1.PodFailed).pass(time.Minute).opens("a")
	}},
	{RuleOpening, "opens although an overlapping run has failed", "pod system/later was created after pod run, which succeeded, and has failed", func(s *builder) {
		s.gate(byRun).born("a").finishes("run", "boot-1", corev1.PodRunning).pass(20 * time.Second)
		s.finishes("later", "boot-1", corev1.PodRunning).pass(20 * time.Second)
		s.finishes("run", "boot-1", corev1.PodSucceeded, func(p *corev1.Pod) {
			ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(s.now)}}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: ended}}
		})
		s.finishes("later", "boot-1", corev1.PodFailed).pass(time.Minute).opens("a")
	}},
	{RuleOpening, "opens although an earlier run has failed", "", func(s *builder) {
		s.gate(byRun).born("a").finishes("run", "boot-1", corev1.PodFailed).pass(time.Minute)
		s.finishes("later", "boot-1", corev1.PodSucceeded).pass(time.Minute).opens("a")
	}},
	{RuleOpening, "opens on a run that is too old", "is too old", func(s *builder) {
		s.gate(byRun, func(ng *v1alpha1.NodeGate) { ng.Spec.OpenWhen[0].Completed.MaxAgeSeconds = new(int32(60)) })
		s.born("a").finishes("run", "boot-1", corev1.PodSucceeded).pass(2 * time.Minute).opens("a")
	}},
	{RuleOpening, "opens on a run that is just young enough", "", func(s *builder) {
		s.gate(byRun, func(ng *v1alpha1.NodeGate) { ng.Spec.OpenWhen[0].Completed.MaxAgeSeconds = new(int32(60)) })
		s.born("a").finishes("run", "boot-1", corev1.PodSucceeded).pass(50 * time.Second).opens("a")
	}},
	{RuleQuiet, "stays closed although a run has succeeded", "all signals have held for long enough", func(s *builder) {
		s.gate(byRun).born("a").finishes("run", "boot-1", corev1.PodSucceeded)
	}},
	{RuleQuiet, "stays closed because nodegate did not see the run", "", func(s *builder) {
		s.gate(byRun).born("a").finishes("run", "boot-1", corev1.PodSucceeded).remove(revisions.KindPod, "system", "run")
	}},
	{RuleOpening, "opens on the devices of the node", "", func(s *builder) {
		s.gate(byDevices(0)).born("a", named("this")).publishes("a-1", "this", 1, 1).opens("a")
	}},
	{RuleOpening, "opens without devices", "owns no ResourceSlice", func(s *builder) {
		s.gate(byDevices(0)).born("a", named("this")).opens("a")
	}},
	{RuleOpening, "opens on the devices of an earlier Node", "owns no ResourceSlice", func(s *builder) {
		s.gate(byDevices(0)).born("a", named("this")).publishes("a-1", "another", 1, 1).opens("a")
	}},
	{RuleOpening, "opens on an incomplete pool", "pool a has 1 of 2 ResourceSlices", func(s *builder) {
		s.gate(byDevices(0)).born("a", named("this")).publishes("a-1", "this", 1, 2).opens("a")
	}},
	{RuleOpening, "opens on slices of an earlier generation", "pool a has 1 of 2 ResourceSlices", func(s *builder) {
		s.gate(byDevices(0)).born("a", named("this")).publishes("a-1", "this", 1, 1)
		s.publishes("a-2", "this", 2, 2).pass(time.Minute).opens("a")
	}},
	{RuleOpening, "opens on two usable devices of three", "", func(s *builder) {
		s.gate(byDevices(2)).born("a", named("this")).publishes("a-1", "this", 1, 1, "", "", resourcev1.DeviceTaintEffectNoSchedule).opens("a")
	}},
	{RuleOpening, "opens on too few usable devices", "1 devices are usable", func(s *builder) {
		s.gate(byDevices(2)).born("a", named("this")).publishes("a-1", "this", 1, 1, "", resourcev1.DeviceTaintEffectNoExecute).opens("a")
	}},
	{RuleQuiet, "stays closed although the pool is complete", "all signals have held for long enough", func(s *builder) {
		s.gate(byDevices(0)).born("a", named("this")).publishes("a-1", "this", 1, 1)
	}},
	{RuleOpening, "opens on an unreachable node", "Ready condition is Unknown", func(s *builder) {
		s.gate(byLabel).born("a", labelled, unreachable).opens("a").edit(admin, "a", reporting)
	}},
	{RuleOpening, "opens while a shutdown is announced", "the node is shutting down", func(s *builder) {
		s.gate(byLabel).born("a", labelled, announced("")).opens("a").edit(admin, "a", cancelled)
	}},
	{RuleOpening, "opens while the agent announces the end of this boot", "the node is shutting down", func(s *builder) {
		s.gate(byLabel).born("a", labelled, announced(v1alpha1.ShutdownMessagePrefix+"boot-1")).opens("a").edit(admin, "a", cancelled)
	}},
	{RuleOpening, "opens after the agent announced the end of another boot", "", func(s *builder) {
		s.gate(byLabel).born("a", labelled, announced(v1alpha1.ShutdownMessagePrefix+"boot-0")).opens("a")
	}},
	{RuleOpening, "opens on a condition that is Unknown", "condition Net is Unknown", func(s *builder) {
		s.gate(func(ng *v1alpha1.NodeGate) {
			ng.Spec.OpenWhen[0].SignalSource = v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{Type: "Net", Status: "True"}}
		})
		s.born("a", condition("Net", corev1.ConditionUnknown)).opens("a")
	}},
	{RuleOpening, "opens without DaemonSets while another tool's startup taint exists", "has the temporary taint ebs.csi.aws.com/agent-not-ready", func(s *builder) {
		s.gate(func(ng *v1alpha1.NodeGate) {
			ng.Spec.OpenWhen[0].SignalSource = v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{"system"}}}
		})
		s.born("a", withTaint("ebs.csi.aws.com/agent-not-ready")).opens("a")
	}},
	{RuleOpening, "opens because the gate was deleted", "", func(s *builder) {
		s.gate().born("a").remove(revisions.KindNodeGate, "", "agent").releases("a")
	}},
	{RuleOpening, "opens without a record and without a reason", "this is not a reason for opening", func(s *builder) {
		s.gate().born("a").releases("a")
	}},
	{RuleOpening, "keeps its record and opens as GateDeleted", "this is not a reason for opening", func(s *builder) {
		s.gate(byLabel).born("a").opensAs("a", v1alpha1.ReasonGateDeleted)
	}},
	{RuleOpening, "keeps its record and opens as DryRun", "this is not a reason for opening", func(s *builder) {
		s.gate(byLabel).born("a").opensAs("a", v1alpha1.ReasonDryRun)
	}},
	{RuleOpening, "keeps its record and opens as OptedOut", "this is not a reason for opening", func(s *builder) {
		s.gate(byLabel).born("a").opensAs("a", v1alpha1.ReasonOptedOut)
	}},
	{RuleOpening, "keeps its record and opens as NodeReturned", "this is not a reason for opening", func(s *builder) {
		s.gate(byLabel).born("a").opensAs("a", v1alpha1.ReasonNodeReturned)
	}},
	{RuleOpening, "opens at the end of an override that did not exist", "no override kept the gate closed", func(s *builder) {
		s.gate(byLabel).born("a").opensAs("a", v1alpha1.ReasonOverrideEnded)
	}},
	{RuleOpening, "a gate that opens only by hand opens because its signals have cleared", "the gate is reopened manually", func(s *builder) {
		s.gate(level, manual).register("a", condition("BadDisk", corev1.ConditionTrue)).closes("a", v1alpha1.ReasonSignalsHold)
		s.edit(otherUser, "a", condition("BadDisk", corev1.ConditionFalse)).opensAs("a", v1alpha1.ReasonSignalsCleared)
	}},
	{RuleOpening, "a gate that opened only by hand until it was edited opens because its signals have cleared", "", func(s *builder) {
		s.gate(level, manual).register("a", condition("BadDisk", corev1.ConditionTrue)).closes("a", v1alpha1.ReasonSignalsHold)
		s.edits(func(ng *v1alpha1.NodeGate) { ng.Spec.Reopen, ng.Generation = "", 2 })
		s.edit(otherUser, "a", condition("BadDisk", corev1.ConditionFalse)).opensAs("a", v1alpha1.ReasonSignalsCleared)
	}},
	{RuleOpening, "opens because another writer removed its taint", "the gate is not reopened manually", func(s *builder) {
		s.gate(byLabel).born("a").edit(otherUser, "a", withoutTaint(gateTaint)).opensAs("a", v1alpha1.ReasonOpenedByHand)
	}},
	{RuleOpening, "a gate with reopen Manual opens because another writer removed its taint", "", func(s *builder) {
		s.gate(level, manual).register("a", condition("BadDisk", corev1.ConditionTrue)).closes("a", v1alpha1.ReasonSignalsHold)
		s.edit(otherUser, "a", withoutTaint(gateTaint)).opensAs("a", v1alpha1.ReasonOpenedByHand)
	}},
	{RuleOpening, "a gate with reopen Manual opens on its own", "no other writer has removed its taint", func(s *builder) {
		s.gate(level, manual).register("a", condition("BadDisk", corev1.ConditionTrue)).closes("a", v1alpha1.ReasonSignalsHold)
		s.opensAs("a", v1alpha1.ReasonOpenedByHand)
	}},
	{RuleOpening, "a gate that a user opened is edited to wait for a label, and stays open in a new boot", "", func(s *builder) {
		s.gate(byLabel).register("a", labelled, recorded(record{State: "Open", Reason: "OpenedByHand", Boot: "boot-1"}))
		s.reboots("a").opensAs("a", v1alpha1.ReasonOpenedByHand)
	}},
	{RuleOpening, "opens because of a deadline that has not passed", "the deadline passes", func(s *builder) {
		s.gate(withDeadline).born("a").pass(50 * time.Second).opensByDeadline("a")
	}},
	{RuleOpening, "opens because of a deadline that has passed", "", func(s *builder) {
		s.gate(withDeadline).born("a").pass(time.Minute).opensByDeadline("a")
	}},
	{RuleOpening, "opens because of a deadline that has passed since the creation, but not since the closing", "the deadline passes", func(s *builder) {
		s.gate(withDeadline).register("a").pass(time.Minute).closes("a", v1alpha1.ReasonBirth).pass(50 * time.Second).opensByDeadline("a")
	}},
	{RuleOpening, "opens before minClosedSeconds", "minClosedSeconds ends", func(s *builder) {
		s.gate(byLabel, func(ng *v1alpha1.NodeGate) { ng.Spec.Timing.MinClosedSeconds = 60 }).born("a", labelled)
		s.opens("a")
	}},
	{RuleOpening, "opens because of an override of another Node", "no override", func(s *builder) {
		s.gate().born("a", withOverride("another", "2026-11-02T00:00:00Z")).overrides("a")
	}},
	{RuleOpening, "opens because of an override of this Node", "", func(s *builder) {
		s.gate().born("a", withOverride("this", "2026-11-02T00:00:00Z")).overrides("a")
	}},
	{RuleOpening, "opens because of an override that has ended", "no override", func(s *builder) {
		s.gate().born("a", withOverride("this", "2026-11-01T12:00:30Z")).overrides("a")
	}},
	{RuleOpening, "a paused gate opens", "the gate is paused", func(s *builder) {
		s.gate(byLabel, func(ng *v1alpha1.NodeGate) { ng.Spec.Mode = v1alpha1.ModePaused }).born("a", labelled)
		s.opens("a")
	}},
	{RuleOpening, "opens just after the gate was paused", "", func(s *builder) {
		s.gate(byLabel).born("a", labelled).edits(paused).opens("a")
	}},
	{RuleOpening, "opens after nodegate has observed that the gate is paused", "the gate is paused", func(s *builder) {
		s.gate(byLabel).born("a", labelled)
		s.edits(func(ng *v1alpha1.NodeGate) {
			ng.Spec.Mode, ng.Generation, ng.Status.ObservedGeneration = v1alpha1.ModePaused, 2, 2
		})
		s.pass(seenAfter).opens("a")
	}},
	{RuleOpening, "opens although no signal holds, and the gate's status shows a later spec than there is", "signal label does not hold", func(s *builder) {
		s.gate(byLabel, func(ng *v1alpha1.NodeGate) { ng.Status.ObservedGeneration = 9 }).born("a").opens("a")
	}},
	{RuleOpening, "opens on a Node that was created just after the gate was paused", "", func(s *builder) {
		s.gate(byLabel).edits(paused).born("a", labelled).opens("a")
	}},
	{RuleOpening, "opens because a gate was renamed", "signal label does not hold", func(s *builder) {
		s.gate(byLabel).born("a").remove(revisions.KindNodeGate, "", "agent").gate(byLabel, renamed)
		s.edit(nodegate, "a", withoutTaint(gateTaint), unrecorded, func(n *corev1.Node) {
			n.Annotations[v1alpha1.RecordAnnotationPrefix+"renamed"] = `{"state":"Open","reason":"SignalsHold","taint":"` + gateTaint + `:NoSchedule"}`
		})
	}},
	{RuleClosing, "adopts the record of a renamed gate after a reboot", "", func(s *builder) {
		s.gate(byLabel).born("a", labelled).remove(revisions.KindNodeGate, "", "agent").gate(byLabel, renamed).reboots("a")
		closed := record{State: "Closed", Reason: "Rebooted", Boot: s.bootOf("a"), Taint: gateTaint + ":NoSchedule", Since: s.now}
		s.edit(nodegate, "a", unrecorded, func(n *corev1.Node) {
			text, _ := json.Marshal(closed)
			n.Annotations[v1alpha1.RecordAnnotationPrefix+"renamed"] = string(text)
		})
	}},
	{RuleOpening, "adopts the record of a renamed gate", "", func(s *builder) {
		s.gate(byLabel).born("a", labelled).opens("a").edit(otherUser, "a", unlabelled)
		record := s.current[revisions.ID{Kind: revisions.KindNode, Name: "a"}].GetAnnotations()[v1alpha1.RecordAnnotationPrefix+"agent"]
		s.remove(revisions.KindNodeGate, "", "agent").gate(byLabel, renamed)
		s.edit(nodegate, "a", unrecorded, func(n *corev1.Node) { n.Annotations[v1alpha1.RecordAnnotationPrefix+"renamed"] = record })
	}},
	{RuleOpening, "opens because a label is missing for a moment", "the gate selected the node less than 30s ago", func(s *builder) {
		s.gate(ofLabelled).born("a", labelled).pass(time.Minute).edit(otherUser, "a", unlabelled).releases("a")
	}},
	{RuleOpening, "opens because the node is no longer selected", "", func(s *builder) {
		s.gate(ofLabelled).born("a", labelled).pass(time.Minute).edit(otherUser, "a", unlabelled).pass(leavesAfter)
		s.releases("a")
	}},
	{RuleOpening, "opens when one of two alternatives holds", "", func(s *builder) {
		s.gate(eitherLabelOrNet).born("a", labelled, condition("Net", corev1.ConditionUnknown)).opens("a")
	}},
	{RuleOpening, "opens when one of two alternatives is unknown", "condition Net is Unknown", func(s *builder) {
		s.gate(eitherLabelOrNet).born("a", condition("Net", corev1.ConditionUnknown)).opens("a")
	}},
	{RuleOpening, "opens on an annotation that was written in the current boot", "", func(s *builder) {
		s.gate(byAnnotation).daemonSet().born("a").runs("a", "c1", true, annotated).opens("a").reboots("a")
		s.closes("a", v1alpha1.ReasonRebooted).runs("a", "c2", true, func(p *corev1.Pod) { p.Annotations = nil })
		s.runs("a", "c2", true, annotated).opens("a")
	}},
	{RuleOpening, "opens on an annotation of the previous boot, long after the reboot", "carries an annotation from before", func(s *builder) {
		s.gate(byAnnotation).daemonSet().born("a").runs("a", "c1", true, annotated).opens("a").reboots("a")
		s.closes("a", v1alpha1.ReasonRebooted).runs("a", "c2", true).pass(time.Hour).opens("a")
	}},
	{RuleOpening, "opens although only one of two required pods is ready", "is not ready", func(s *builder) {
		s.gate(byAnnotation, func(ng *v1alpha1.NodeGate) {
			ng.Spec.OpenWhen[0].Pods.ReadyBy, ng.Spec.OpenWhen[0].Pods.Require = v1alpha1.ReadyByCondition, v1alpha1.RequireAll
		})
		s.daemonSet().born("a").runs("a", "c1", true)
		other := s.newDaemonPod("a")
		other.Name = "other"
		s.put("system:node:a", revisions.KindPod, other).pass(time.Minute).opens("a")
	}},
	{RuleOpening, "a closeWhen gate opens although its signals hold", "all signals of the closeWhen gate hold", func(s *builder) {
		s.gate(level).register("a", condition("BadDisk", corev1.ConditionTrue))
		s.closes("a", v1alpha1.ReasonSignalsHold).releases("a")
	}},
	{RuleOpening, "a closeWhen gate opens on Unknown", "no signal has stopped holding", func(s *builder) {
		s.gate(level).register("a", condition("BadDisk", corev1.ConditionTrue))
		s.closes("a", v1alpha1.ReasonSignalsHold).pass(time.Minute)
		s.edit("system:node:a", "a", condition("BadDisk", corev1.ConditionUnknown)).pass(time.Minute).releases("a")
	}},
	{RuleOpening, "a closeWhen gate opens when its signal stops holding", "", func(s *builder) {
		s.gate(level).register("a", condition("BadDisk", corev1.ConditionTrue))
		s.closes("a", v1alpha1.ReasonSignalsHold)
		s.edit("system:node:a", "a", condition("BadDisk", corev1.ConditionFalse)).releases("a")
	}},

	// S2: Only their owners change taints, labels, annotations and fields of Nodes.
	{RuleForeign, "nodegate keeps foreign taints", "", func(s *builder) {
		s.gate(byLabel).born("a", withTaint("b"), withTaint("c"), labelled).opens("a")
	}},
	{RuleForeign, "nodegate removes a foreign taint", "they were [b:NoSchedule] and are now []", func(s *builder) {
		s.gate(byLabel).born("a", withTaint("b"), labelled).edit(nodegate, "a", withoutTaint("b")).opens("a")
	}},
	{RuleForeign, "nodegate restores a foreign taint", "they were [] and are now [b:NoSchedule]", func(s *builder) {
		s.gate(byLabel).born("a", withTaint("b"), labelled).edit(otherUser, "a", withoutTaint("b")).opens("a")
		s.edit(nodegate, "a", withTaint("b"))
	}},
	{RuleForeign, "nodegate reorders foreign taints", "they were [b:NoSchedule c:NoSchedule] and are now [c:NoSchedule b:NoSchedule]", func(s *builder) {
		s.gate(byLabel).born("a", withTaint("b"), withTaint("c"), labelled)
		s.edit(nodegate, "a", withoutTaint("b"), withTaint("b")).opens("a")
	}},
	{RuleForeign, "nodegate removes the gate's taint from a node that the gate does not select", "they were [example.com/agent:NoSchedule]", func(s *builder) {
		s.gate(ofLabelled).register("a", withTaint(gateTaint)).edit(nodegate, "a", withoutTaint(gateTaint))
	}},
	{RuleForeign, "nodegate changes a label", "nodegate changes metadata.labels.fit", func(s *builder) {
		s.gate().born("a").edit(nodegate, "a", labelled)
	}},
	{RuleForeign, "nodegate changes an annotation", "nodegate changes metadata.annotations.x", func(s *builder) {
		s.gate().born("a").edit(nodegate, "a", func(n *corev1.Node) { n.Annotations["x"] = "1" })
	}},
	{RuleForeign, "nodegate writes the gate's openedAtAnnotation", "", func(s *builder) {
		s.gate(byLabel, func(ng *v1alpha1.NodeGate) { ng.Spec.OpenedAtAnnotation = "x" }).born("a", labelled)
		s.edit(nodegate, "a", func(n *corev1.Node) { n.Annotations["x"] = "1793534460" }, withoutTaint(gateTaint), opened)
	}},
	{RuleForeign, "nodegate writes an override", "nodegate changes metadata.annotations.override.nodegate.dev/agent", func(s *builder) {
		s.gate().born("a")
		s.edit(nodegate, "a", func(n *corev1.Node) { n.Annotations[v1alpha1.OverrideAnnotationPrefix+"agent"] = "{}" })
	}},
	{RuleForeign, "nodegate cordons a node", "nodegate changes spec.unschedulable", func(s *builder) {
		s.gate().born("a").edit(nodegate, "a", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	}},
	{RuleForeign, "nodegate removes the taint of a gate that is closed", "according to the record, the gate is closed", func(s *builder) {
		s.gate().born("a").edit(nodegate, "a", withoutTaint(gateTaint)).edit(nodegate, "a", withTaint(gateTaint))
	}},
	{RuleForeign, "nodegate adds a taint without a record", "no gate with this taint is closed", func(s *builder) {
		s.gate().register("a").edit(nodegate, "a", withTaint(gateTaint))
	}},
	{RuleForeign, "nodegate publishes and removes a gate's condition", "", func(s *builder) {
		s.gate(publishing).born("a", overdue, withCondition("Ready", "True", ""))
		s.edit(nodegate, "a", withCondition("deadline.nodegate.dev/agent", "True", "DeadlinePassed"))
		s.edit(nodegate, "a", withoutCondition("deadline.nodegate.dev/agent"))
	}},
	{RuleForeign, "nodegate changes a foreign condition", "they were [{Ready True", func(s *builder) {
		s.gate(publishing).born("a", withCondition("Ready", "True", "")).edit(nodegate, "a", withoutCondition("Ready"))
	}},
	{RuleForeign, "nodegate publishes another reason", `its status is True and its reason is "Other"`, func(s *builder) {
		s.gate(publishing).born("a").edit(nodegate, "a", withCondition("deadline.nodegate.dev/agent", "True", "Other"))
	}},
	{RuleForeign, "nodegate publishes the condition of a gate that does not", "the gate does not publish it", func(s *builder) {
		s.gate().born("a", overdue).edit(nodegate, "a", withCondition("deadline.nodegate.dev/agent", "True", "DeadlinePassed"))
	}},
	{RuleForeign, "nodegate publishes a condition before the deadline", "the deadline has not passed", func(s *builder) {
		s.gate(publishing).born("a").edit(nodegate, "a", withCondition("deadline.nodegate.dev/agent", "True", "DeadlinePassed"))
	}},
	{RuleForeign, "nodegate publishes the condition of an open gate", "the gate is not closed", func(s *builder) {
		s.gate(publishing, byLabel).born("a", labelled).opens("a")
		s.edit(nodegate, "a", withCondition("deadline.nodegate.dev/agent", "True", "DeadlinePassed"))
	}},
	{RuleClosing, "nodegate publishes the condition on one node of two, under a budget of one", "", func(s *builder) {
		s.gate(publishing).born("a", overdue).born("b", overdue).edit(nodegate, "a", published)
	}},
	{RuleClosing, "nodegate publishes the condition on both nodes, under a budget of one", "with this node, 2 nodes of the zone have it, but the budget is 1", func(s *builder) {
		s.gate(publishing).born("a", overdue).born("b", overdue).edit(nodegate, "a", published).edit(nodegate, "b", published)
	}},
	{RuleClosing, "nodegate publishes the condition on two nodes, one after the other", "", func(s *builder) {
		s.gate(publishing).born("a", overdue).born("b", overdue).edit(nodegate, "a", published)
		s.edit(nodegate, "a", withoutCondition("deadline.nodegate.dev/agent")).edit(nodegate, "b", published)
	}},
	{RuleQuiet, "finally one node of two has the condition, under a budget of one", "", func(s *builder) {
		s.gate(publishing).born("a", overdue).born("b", overdue).edit(nodegate, "a", published).pass(time.Minute)
	}},
	{RuleQuiet, "finally an overdue node does not have the condition", "the budget allows its condition", func(s *builder) {
		s.gate(publishing).born("a", overdue).pass(time.Minute)
	}},
	{RuleQuiet, "finally a node that is not overdue has the condition", "the node has its condition without reason", func(s *builder) {
		s.gate(publishing).born("a", overdue).edit(nodegate, "a", published).edit(nodegate, "a", recorded(bornRecord)).pass(time.Minute)
	}},
	{RuleQuiet, "finally a node has the condition of a gate that does not publish", "the node has its condition without reason", func(s *builder) {
		s.gate(publishing).born("a", overdue).edit(nodegate, "a", published)
		s.edits(func(ng *v1alpha1.NodeGate) { ng.Spec.Deadline.Condition = v1alpha1.DeadlineConditionNone }).pass(time.Minute)
	}},
	{RuleQuiet, "finally a node has the condition of a deleted gate", "the gate does not exist, and the node has its condition", func(s *builder) {
		s.gate(publishing).born("a", overdue).edit(nodegate, "a", published).remove(revisions.KindNodeGate, "", "agent")
		s.edit(nodegate, "a", func(n *corev1.Node) { n.Annotations = nil }, withoutTaint(gateTaint)).pass(time.Minute)
	}},
	{RuleForeign, "a kubelet writes a record", "its writer is neither nodegate nor an operator", func(s *builder) {
		s.gate().born("a")
		s.edit("system:node:a", "a", recorded(record{State: "Closed", Reason: "Adopted", Taint: gateTaint + ":NoSchedule"}))
	}},
	{RuleForeign, "an operator writes a record", "", func(s *builder) {
		s.gate().born("a")
		s.edit(admin, "a", recorded(record{State: "Closed", Reason: "Adopted", Taint: gateTaint + ":NoSchedule"}))
	}},
	{RuleForeign, "a kubelet registers with a record", "with a forged record", func(s *builder) {
		s.gate().register("a", recorded(record{State: "Open", Reason: "SignalsHold"}))
	}},
	{RuleForeign, "a kubelet registers with the record of a gate that does not exist", "with a forged record", func(s *builder) {
		s.gate().born("a", recordedFor("other", record{State: "Closed", Reason: "Birth", Taint: "other:NoSchedule"}))
	}},
	{RuleForeign, "a kubelet registers with the record of a gate that does not select the node", "with a forged record", func(s *builder) {
		s.gate(ofLabelled).born("a")
	}},
	{RuleForeign, "a kubelet registers with a record that names another taint", "with a forged record", func(s *builder) {
		s.gate().register("a", withTaint(gateTaint), withTaint("other"), recorded(record{State: "Closed", Reason: "Birth", Taint: "other:NoSchedule"}))
	}},
	{RuleForeign, "a gate closes on a new node after it was deleted, because the policy still has it", "", func(s *builder) {
		s.gate().remove(revisions.KindNodeGate, "", "agent").pass(time.Hour).born("a")
	}},

	// S3: No Node is ever visible ungated.
	{RuleBirth, "a node is created with taint and record", "", func(s *builder) {
		s.gate().born("a")
	}},
	{RuleBirth, "a node is created without the taint", "the taint example.com/agent is missing", func(s *builder) {
		s.gate().register("a")
	}},
	{RuleBirth, "a node is created without the record", "the record has state", func(s *builder) {
		s.gate().register("a", withTaint(gateTaint))
	}},
	{RuleBirth, "a node is created just after the gate", "", func(s *builder) {
		s.gate().pass(-time.Minute).register("a")
	}},
	{RuleBirth, "a node is created without the policy", "", func(s *builder) {
		s.gate().remove(revisions.KindPolicy, "", birthPolicy).register("a")
	}},
	{RuleBirth, "a node is created that the gate does not select", "", func(s *builder) {
		s.gate(ofLabelled).register("a")
	}},

	// S4: Gates close for the reason that they record, and within budget.
	{RuleClosing, "one node of two regresses", "", func(s *builder) {
		s.gate(onRegression).twoOpen().edit(otherUser, "a", unlabelled).closes("a", v1alpha1.ReasonRegression)
	}},
	{RuleClosing, "both nodes regress, and close on a budget of one", "with this node, 2 nodes of the zone are closed, but the budget is 1", func(s *builder) {
		s.gate(onRegression).twoOpen().edit(otherUser, "a", unlabelled).edit(otherUser, "b", unlabelled)
		s.closes("a", v1alpha1.ReasonRegression).closes("b", v1alpha1.ReasonRegression)
	}},
	{RuleClosing, "both nodes regress, in two zones", "", func(s *builder) {
		s.gate(onRegression).twoOpen()
		s.edit(otherUser, "a", func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "z" }).pass(time.Minute)
		s.edit(otherUser, "a", unlabelled).edit(otherUser, "b", unlabelled).closes("a", v1alpha1.ReasonRegression)
		s.closes("b", v1alpha1.ReasonRegression)
	}},
	{RuleClosing, "both nodes reboot, and close without budget", "", func(s *builder) {
		s.gate(onRegression).twoOpen()
		for _, name := range []string{"a", "b"} {
			s.edit(otherUser, name, unlabelled).reboots(name).closes(name, v1alpha1.ReasonRebooted)
		}
	}},
	{RuleClosing, "a node closes without budget for a boot that began long ago", "closing for it needs budget", func(s *builder) {
		s.gate(byLabel).twoOpen().reboots("a").pass(time.Hour).closes("a", v1alpha1.ReasonRebooted)
	}},
	{RuleClosing, "a node closes for an unobserved boot because a signal does not hold", "", func(s *builder) {
		s.gate(onRegression).twoOpen().edit(otherUser, "a", unlabelled).reboots("a").pass(time.Hour)
		s.closes("a", v1alpha1.ReasonRebootedUnobserved)
	}},
	{RuleClosing, "a node closes for an unobserved boot although all signals hold", "all hold", func(s *builder) {
		s.gate(onRegression).twoOpen().reboots("a").pass(time.Hour).closes("a", v1alpha1.ReasonRebootedUnobserved)
	}},
	{RuleClosing, "two nodes close for unobserved boots on a budget of one", "the budget is 1", func(s *builder) {
		s.gate(onRegression).twoOpen()
		for _, name := range []string{"a", "b"} {
			s.edit(otherUser, name, unlabelled).reboots(name).pass(time.Hour)
			s.closes(name, v1alpha1.ReasonRebootedUnobserved)
		}
	}},
	{RuleClosing, "a NoExecute gate closes for an unobserved boot", "a gate with NoExecute does not close", func(s *builder) {
		s.gate(onRegression, func(ng *v1alpha1.NodeGate) { ng.Spec.Taint.Effect = corev1.TaintEffectNoExecute })
		s.twoOpen().edit(otherUser, "a", unlabelled).reboots("a").pass(time.Hour)
		s.closes("a", v1alpha1.ReasonRebootedUnobserved)
	}},
	{RuleClosing, "a regression is recorded as a reboot", "the node's boot ID is the recorded one", func(s *builder) {
		s.gate(onRegression).twoOpen().edit(otherUser, "a", unlabelled).closes("a", v1alpha1.ReasonRebooted)
	}},
	{RuleClosing, "a regression is recorded as NodeSilent", "Ready condition is not Unknown", func(s *builder) {
		s.gate(onRegression).twoOpen().edit(otherUser, "a", unlabelled).closes("a", v1alpha1.ReasonNodeSilent)
	}},
	{RuleClosing, "a regression is recorded as a birth", "the gate was open", func(s *builder) {
		s.gate(onRegression).twoOpen().edit(otherUser, "a", unlabelled).closes("a", v1alpha1.ReasonBirth)
	}},
	{RuleClosing, "a regression is recorded as an adoption", "the gate was open", func(s *builder) {
		s.gate(onRegression).twoOpen().edit(otherUser, "a", unlabelled).closes("a", v1alpha1.ReasonAdopted)
	}},
	{RuleClosing, "a node with the open record of an earlier Node is closed as new", "", func(s *builder) {
		s.gate(byLabel).pass(time.Hour).register("a", recorded(record{State: "Open", Reason: "SignalsHold", Since: begin})).closes("a", v1alpha1.ReasonBirth)
	}},
	{RuleClosing, "a closeWhen gate that is open adopts its taint", "", func(s *builder) {
		s.gate(level).register("a", condition("BadDisk", corev1.ConditionUnknown), recorded(record{State: "Open", Reason: "SignalsCleared"}))
		s.edit(otherUser, "a", withTaint(gateTaint)).closes("a", v1alpha1.ReasonAdopted)
	}},
	{RuleClosing, "adopts the taint that another writer added, after a gate that was open was renamed", "", func(s *builder) {
		s.gate(byLabel).born("a", labelled).opens("a").edit(otherUser, "a", unlabelled, withTaint(gateTaint))
		s.remove(revisions.KindNodeGate, "", "agent").gate(byLabel, renamed)
		s.edit(nodegate, "a", unrecorded, recordedFor("renamed", record{State: "Closed", Reason: "Adopted", Taint: gateTaint + ":NoSchedule", Since: s.now}))
	}},
	{RuleClosing, "a gate with reclosePolicy Never closes after a reboot", "the gate's spec does not reclose it", func(s *builder) {
		s.gate(byLabel, func(ng *v1alpha1.NodeGate) { ng.Spec.ReclosePolicy = v1alpha1.RecloseNever })
		s.born("a", labelled).opens("a").reboots("a").closes("a", v1alpha1.ReasonRebooted)
	}},
	{RuleClosing, "a node closes as regressed although its signals hold", "no signal has stopped holding", func(s *builder) {
		s.gate(onRegression).twoOpen().closes("a", v1alpha1.ReasonRegression).opens("a")
	}},
	{RuleClosing, "a gate closes on an existing node that it must ignore", "the gate's spec does not close it for this reason", func(s *builder) {
		s.register("a").pass(time.Hour).gate(byLabel).closes("a", v1alpha1.ReasonExisting)
	}},
	{RuleClosing, "a gate closes on an existing node as if it were new", "the Node is older than the gate", func(s *builder) {
		s.register("a").pass(time.Hour).gate(byLabel).closes("a", v1alpha1.ReasonBirth)
	}},
	{RuleClosing, "a paused gate closes", "the gate is in mode Paused", func(s *builder) {
		s.gate(byLabel, func(ng *v1alpha1.NodeGate) { ng.Spec.Mode = v1alpha1.ModePaused }).register("a")
		s.closes("a", v1alpha1.ReasonBirth)
	}},
	{RuleClosing, "a closeWhen gate closes on Unknown", "condition BadDisk is Unknown", func(s *builder) {
		s.gate(level).register("a", condition("BadDisk", corev1.ConditionUnknown))
		s.closes("a", v1alpha1.ReasonSignalsHold)
	}},

	// L: After a quiet period, every node is in the state that its gates require.
	{RuleQuiet, "the gate has opened", "", func(s *builder) {
		s.gate(byLabel).born("a", labelled).opens("a")
	}},
	{RuleQuiet, "nodegate and another writer repeat a patch without effect", "", func(s *builder) {
		s.gate(byLabel).born("a", labelled).opens("a").repeats(nodegate, 3).repeats(admin, 100)
	}},
	{RuleQuiet, "nodegate patches a node repeatedly without effect", "100 patches changed nothing", func(s *builder) {
		s.gate(byLabel).born("a", labelled).opens("a").repeats(nodegate, 100)
	}},
	{RuleQuiet, "the gate never opens", "all signals have held", func(s *builder) {
		s.gate(byLabel).born("a", labelled)
	}},
	{RuleQuiet, "the gate waits for its signal", "", func(s *builder) {
		s.gate(byLabel).born("a")
	}},
	{RuleQuiet, "the gate does not close after a reboot", "the node has rebooted since then", func(s *builder) {
		s.gate(byLabel).born("a", labelled).opens("a").reboots("a")
	}},
	{RuleQuiet, "the gate does not close on an unreachable node", "Ready condition is Unknown", func(s *builder) {
		s.gate(byLabel).born("a", labelled).opens("a").edit(admin, "a", unreachable)
	}},
	{RuleQuiet, "the gate does not close after a regression", "a signal has regressed, and there is budget", func(s *builder) {
		s.gate(onRegression).twoOpen().edit(otherUser, "a", unlabelled)
	}},
	{RuleQuiet, "a regression waits for budget", "", func(s *builder) {
		s.gate(onRegression).twoOpen().edit(otherUser, "a", unlabelled).edit(otherUser, "b", unlabelled)
		s.closes("a", v1alpha1.ReasonRegression)
	}},
	{RuleQuiet, "signals stop holding one after the other, and none for long enough", "", func(s *builder) {
		s.gate(onRegression, orNet).born("a", labelled, condition("Net", corev1.ConditionTrue)).opens("a").pass(time.Hour)
		s.edit(otherUser, "a", unlabelled).pass(time.Hour)
		s.edit(otherUser, "a", labelled, condition("Net", corev1.ConditionFalse)).pass(time.Hour)
	}},
	{RuleQuiet, "the gate does not close although one of its signals has not held for long enough", "a signal has regressed, and there is budget", func(s *builder) {
		s.gate(onRegression, orNet).born("a", labelled, condition("Net", corev1.ConditionTrue)).opens("a").pass(time.Hour)
		s.edit(otherUser, "a", unlabelled, condition("Net", corev1.ConditionFalse)).pass(time.Hour)
		s.edit(otherUser, "a", labelled).pass(time.Hour)
	}},
	{RuleQuiet, "the taint of a closed gate is missing", "its taint is missing", func(s *builder) {
		s.gate().born("a").edit(otherUser, "a", withoutTaint(gateTaint))
	}},
	{RuleQuiet, "the taint of an open gate is present", "its taint is present", func(s *builder) {
		s.gate(byLabel).born("a", labelled).opens("a").edit(otherUser, "a", withTaint(gateTaint))
	}},
	{RuleQuiet, "the gate is Contended, but another writer wrote its taint only once", "its taint is present", func(s *builder) {
		s.gate(byLabel).born("a", labelled).opens("a").edit(otherUser, "a", withTaint(gateTaint)).edits(contended)
	}},
	{RuleClosing, "closes an idle node whose workload ended after the gate was created", "", func(s *builder) {
		s.idle(func() { s.put(admin, revisions.KindPod, workload("a", corev1.PodSucceeded)) }, func() {})
	}},
	{RuleClosing, "closes a node as idle that got a workload within the lag", "", func(s *builder) {
		s.idle(func() {}, func() { s.put(admin, revisions.KindPod, workload("a", corev1.PodRunning)) })
	}},
	{RuleClosing, "closes a node as idle that got its workload before the lag", "a workload is on the node", func(s *builder) {
		s.idle(func() { s.put(admin, revisions.KindPod, workload("a", corev1.PodRunning)) }, func() {})
	}},
	{RuleQuiet, "a deleted gate's node is not released", "the gate does not exist", func(s *builder) {
		s.gate().born("a").remove(revisions.KindNodeGate, "", "agent")
	}},
	{RuleQuiet, "an override outlasts its annotation", "an override that is not in force", func(s *builder) {
		s.gate().born("a").overrides("a")
	}},
	{RuleQuiet, "a new node has no record", "the node is new to the gate", func(s *builder) {
		s.gate().remove(revisions.KindPolicy, "", birthPolicy).register("a")
	}},
	{RuleQuiet, "an existing node is ignored", "", func(s *builder) {
		s.register("a").pass(time.Hour).gate()
	}},
	{RuleQuiet, "an existing node stays open although the gate closes existing nodes", "the gate closes existing nodes", func(s *builder) {
		s.register("a").pass(time.Hour)
		s.gate(func(ng *v1alpha1.NodeGate) { ng.Spec.ExistingNodes = v1alpha1.ExistingClose })
	}},
	{RuleQuiet, "a closeWhen gate does not close", "all signals of the closeWhen gate hold", func(s *builder) {
		s.gate(level).register("a", condition("BadDisk", corev1.ConditionTrue))
	}},
	{RuleQuiet, "a closeWhen gate does not open", "a signal of the closeWhen gate does not hold", func(s *builder) {
		s.gate(level).register("a", condition("BadDisk", corev1.ConditionTrue))
		s.closes("a", v1alpha1.ReasonSignalsHold)
		s.edit("system:node:a", "a", condition("BadDisk", corev1.ConditionFalse))
	}},
}

// eitherLabelOrNet changes a gate to open by a label or a condition.
func eitherLabelOrNet(ng *v1alpha1.NodeGate) {
	ng.Spec.OpenWhen = []v1alpha1.Signal{{Name: "either", AnyOf: []v1alpha1.NamedSource{
		{Name: "label", SignalSource: v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "fit"}}},
		{Name: "net", SignalSource: v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{Type: "Net", Status: "True"}}},
	}}}
}

// orNet makes a gate also close if a condition has not been True for 90 minutes.
func orNet(ng *v1alpha1.NodeGate) {
	ng.Spec.OpenWhen = append(ng.Spec.OpenWhen, v1alpha1.Signal{Name: "net", SignalSource: v1alpha1.SignalSource{
		Condition: &v1alpha1.ConditionSignal{Type: "Net", Status: "True"}}})
	*ng.Spec.Timing.CloseAfterSeconds = 5400
}

// byAnnotation changes a gate to open by a pod's annotation.
func byAnnotation(ng *v1alpha1.NodeGate) {
	ng.Spec.OpenWhen[0].SignalSource = v1alpha1.SignalSource{Pods: &v1alpha1.PodsSignal{
		Namespace: "system", Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}},
		ReadyBy: v1alpha1.ReadyByAnnotation, ReadyAnnotation: "fit",
	}}
}

func annotated(pod *corev1.Pod) { pod.Annotations = map[string]string{"fit": "true"} }

// outside are the names of histories to which their rule does not apply.
var outside = map[string]bool{
	"a node is created just after the gate":           true,
	"a node is created without the policy":            true,
	"a node is created that the gate does not select": true,

	"the gate was paused meanwhile, so the record is believed": true,
}

// twoOpen creates nodes a and b, on which the gate is open because of their label.
func (s *builder) twoOpen() *builder {
	for _, name := range []string{"a", "b"} {
		s.born(name, labelled).opens(name).pass(time.Minute)
	}
	return s
}

func TestHistories(t *testing.T) {
	for _, test := range slices.Concat(histories, groupHistories, taintHistories, overrideHistories, zoneHistories, existingHistories, deadlineHistories, stampHistories, memberHistories, recordHistories, outOfServiceHistories, soakHistories, refusalHistories, requestHistories, silenceHistories, creationHistories) {
		t.Run(string(test.rule)+"/"+test.name, func(t *testing.T) {
			s := newBuilder(t)
			test.build(s)
			v := s.judged()
			found := slices.DeleteFunc(v.Violations, func(found Violation) bool { return found.Rule != test.rule })
			var got []string
			for _, violation := range found {
				got = append(got, violation.String())
			}
			all := strings.Join(got, "\n")
			if test.why == "" && all != "" {
				t.Errorf("got violations of a rule with which the history complies:\n%s", all)
			}
			if test.why == "" && len(v.Checked[test.rule]) == 0 && !outside[test.name] {
				t.Errorf("nothing was checked under the rule")
			}
			if test.why != "" && !strings.Contains(all, test.why) {
				t.Errorf("got violations %q, want one with %q", all, test.why)
			}
		})
	}
}

func TestEmptyHistoryDoesNotPass(t *testing.T) {
	v := newBuilder(t).judged()
	if v.Pass() || len(v.Violations) > 0 || !slices.Equal(v.Unchecked(), Rules()) {
		t.Errorf("Pass is %v, want false with all rules unchecked and no violations:\n%s", v.Pass(), text(t, v))
	}
}

func TestVerdictListsWhatIsNotJudged(t *testing.T) {
	s := newBuilder(t)
	s.gate(func(ng *v1alpha1.NodeGate) {
		ng.Spec.OpenWhen[0].SignalSource = v1alpha1.SignalSource{Expression: "true"}
	})
	s.born("a").opens("a").edit("system:node:a", "a", reporting)
	s.writes = s.writes[:len(s.writes)-1]
	v := s.judged()
	for _, want := range []string{"NOT JUDGED: 1 signal expression", "NOT JUDGED: 1 revisions of Nodes without a request in the audit log"} {
		if !strings.Contains(text(t, v), want) {
			t.Errorf("the verdict does not contain %q:\n%s", want, text(t, v))
		}
	}
	if !slices.Contains(v.Unchecked(), RuleOpening) {
		t.Errorf("an opening that was not judged counts as checked:\n%s", text(t, v))
	}
}

// A gate with NoExecute may stay open in a boot whose start was not observed.
func TestVerdictListsGatesWithNoExecuteInNewBoots(t *testing.T) {
	const want = "NOT JUDGED: 1 gates with NoExecute that stay open in a new boot"
	s := newBuilder(t)
	s.gate(byLabel, evicting).born("a", labelled).opens("a").reboots("a")
	if v := s.judged(); v.NotJudged[RuleQuiet][unjudgedBoot] != 1 || !strings.Contains(text(t, v), want) {
		t.Errorf("the final state is not listed as not judged:\n%s", text(t, v))
	}
	s.opens("a")
	if v := s.judged(); v.NotJudged[RuleOpening][unjudgedBoot] != 1 || v.NotJudged[RuleQuiet][unjudgedBoot] != 0 {
		t.Errorf("the write is not listed as not judged:\n%s", text(t, v))
	}
}

func TestVerdictNamesRequest(t *testing.T) {
	s := newBuilder(t)
	s.daemonGate().opens("a")
	const want = "S1: node a, gate agent, revision 7, 12:01:00.006 by " + nodegate + " (patch, audit ID request-7): gate opens: SignalsHold: " +
		"signal agent does not hold: DaemonSet system/agent has no pod on the node\n"
	if got := text(t, s.judged()); !strings.Contains(got, want) || !strings.Contains(got, "1 VIOLATIONS") {
		t.Errorf("the verdict is\n%s\nwant a violation and\n%s", got, want)
	}
}

func text(t *testing.T, v *Verdict) string {
	t.Helper()
	var out strings.Builder
	if _, err := v.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A write of nodegate is attributed to nodegate, even if a request of another user that
// changed nothing was answered with the same revision first.
func TestRecordIsAttributedToNodegate(t *testing.T) {
	s := newBuilder(t)
	s.daemonGate().runs("a", "one", true).opens("a")
	w := s.writes[len(s.writes)-1]
	s.writes = append(s.writes, revisions.Write{Revision: w.Revision, User: otherUser, Received: w.Received, Done: w.Done.Add(-time.Microsecond)})
	if v := s.judged(); len(v.Violations) > 0 {
		t.Errorf("the verdict is\n%s", text(t, v))
	}
}

// If the only request with the revision mentions no record, the writer of a changed
// record is unknown.
func TestRequestWithoutRecordsWroteNone(t *testing.T) {
	s := newBuilder(t)
	s.daemonGate().runs("a", "one", true).opens("a")
	last := &s.writes[len(s.writes)-1]
	last.User, last.NoRecords = otherUser, true
	v := s.judged()
	if n := v.NotJudged[RuleForeign]["revisions of Nodes without a request in the audit log"]; n != 1 || len(v.Violations) > 0 {
		t.Errorf("the verdict is\n%s", text(t, v))
	}
	if last.NoRecords = false; len(s.judged().Violations) == 0 {
		t.Error("another user wrote a record, but no violation was found")
	}
}

// The final state of a Contended gate is not judged if another writer writes its taint.
func TestContended(t *testing.T) {
	s := newBuilder(t)
	s.gate(byLabel).born("a", labelled).opens("a").edit(otherUser, "a", withTaint(gateTaint))
	s.edit(nodegate, "a", withoutTaint(gateTaint)).edit(otherUser, "a", withTaint(gateTaint)).edits(contended)
	v := s.judged()
	if n := v.NotJudged[RuleQuiet]["nodes of gates that are contended"]; n != 1 || len(v.Violations) > 0 {
		t.Errorf("%d nodes are not judged, want 1; violations: %v", n, v.Violations)
	}
}
