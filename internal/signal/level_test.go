// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

const (
	matches = v1alpha1.ReadingMatches
	differs = v1alpha1.ReadingDiffers
	absent  = v1alpha1.ReadingMissing
)

func conditions(list ...gate.Condition) *world {
	return aNode(func(w *world) { w.facts.Node.Conditions = append(w.facts.Node.Conditions, list...) })
}

func cond(conditionType string, status corev1.ConditionStatus) gate.Condition {
	return gate.Condition{Type: conditionType, Status: status, Transition: epoch.Add(-time.Minute)}
}

func TestCondition(t *testing.T) {
	disk := v1alpha1.ConditionSignal{Type: "DiskReady", Status: "True"}
	check(t, mustCompile(t, v1alpha1.SignalSource{Condition: &disk}), map[string]reads{
		"matches":                   {conditions(cond("DiskReady", "True")), gate.Holds, matches, "condition DiskReady=True"},
		"differs":                   {conditions(cond("DiskReady", "False")), gate.NotYet, differs, "condition DiskReady=False"},
		"Unknown is unknown":        {conditions(cond("DiskReady", "Unknown")), gate.Unknown, differs, "condition DiskReady=Unknown"},
		"missing":                   {conditions(), gate.NotYet, absent, "condition DiskReady"},
		"a longer name":             {conditions(cond("DiskReadyToo", "True")), gate.NotYet, absent, "condition DiskReady"},
		"a node without conditions": {aNode(func(w *world) { w.facts.Node.Conditions = nil }), gate.NotYet, absent, "condition DiskReady"},
	})
	disk.WhenMissing = v1alpha1.MissingHolds
	check(t, mustCompile(t, v1alpha1.SignalSource{Condition: &disk}), map[string]reads{
		"missing holds":             {conditions(), gate.Holds, absent, "condition DiskReady"},
		"missing holds, it differs": {conditions(cond("DiskReady", "False")), gate.NotYet, differs, "condition DiskReady=False"},
	})
	npd := v1alpha1.ConditionSignal{TypePattern: "Disk.*|Net", StatusPattern: "False|Unknown"}
	check(t, mustCompile(t, v1alpha1.SignalSource{Condition: &npd}), map[string]reads{
		"one of several matches": {conditions(cond("DiskA", "True"), cond("DiskB", "Unknown")), gate.Holds, matches, "condition DiskB=Unknown"},
		"none matches":           {conditions(cond("DiskA", "True")), gate.NotYet, differs, "condition DiskA=True"},
		"anchored at the start":  {conditions(cond("MyDisk", "False")), gate.NotYet, absent, "condition Disk.*|Net"},
		"anchored at the end":    {conditions(cond("Network", "False")), gate.NotYet, absent, "condition Disk.*|Net"},
		"in each alternative":    {conditions(cond("SubNet", "False")), gate.NotYet, absent, "condition Disk.*|Net"},
	})
}

func TestConditionSince(t *testing.T) {
	s := mustCompile(t, v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{Type: "DiskReady", Status: "True"}})
	if r, _ := read(t, s, conditions(cond("DiskReady", "False"))); !r.Since.Equal(epoch.Add(-time.Minute)) {
		t.Errorf("differs since %s", r.Since)
	}
	if s.ProvesBoot() {
		t.Error("a condition without maxHeartbeatAgeSeconds proves a boot")
	}
	if pods, observed := s.Evidence(nil); pods != nil || !observed {
		t.Error("a condition depends on pods")
	}
}

func TestLabelAndAnnotation(t *testing.T) {
	value := func(v string) *string { return &v }
	labelled := func(v string) *world {
		return aNode(func(w *world) { w.facts.Node.Labels = map[string]string{"k": v} })
	}
	annotated := func(v string) *world {
		return aNode(func(w *world) { w.facts.Node.Annotations = map[string]string{"k": v} })
	}
	check(t, mustCompile(t, v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "k", Value: value("v")}}), map[string]reads{
		"label matches": {labelled("v"), gate.Holds, matches, "label k"},
		"label differs": {labelled("w"), gate.NotYet, differs, "label k"},
		"label missing": {aNode(), gate.NotYet, absent, "label k"},
	})
	check(t, mustCompile(t, v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "k"}}), map[string]reads{
		"any value":      {labelled("w"), gate.Holds, matches, "label k"},
		"an empty value": {labelled(""), gate.Holds, matches, "label k"},
	})
	check(t, mustCompile(t, v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "k", Value: value("")}}), map[string]reads{
		"the empty value required": {labelled(""), gate.Holds, matches, "label k"},
		"another value":            {labelled("w"), gate.NotYet, differs, "label k"},
	})
	annotation := mustCompile(t, v1alpha1.SignalSource{Annotation: &v1alpha1.KeyValueSignal{Key: "k", Value: value("v")}})
	check(t, annotation, map[string]reads{
		"annotation matches":           {annotated("v"), gate.Holds, matches, "annotation k"},
		"annotation differs":           {annotated("w"), gate.NotYet, differs, "annotation k"},
		"a label is not an annotation": {labelled("v"), gate.NotYet, absent, "annotation k"},
	})
	if n := annotation.Needs(nil); len(n.Annotations) != 1 || n.Annotations[0] != "k" {
		t.Errorf("needs %+v", n)
	}
}
