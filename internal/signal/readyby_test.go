// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

const readyKey = "startup.example/ready"

// markable is the query for the agent's pods that includes the annotation.
var markable = gate.PodQuery{Namespace: "kube-system", Selector: "app=agent", Annotation: readyKey}

func readyBy(by v1alpha1.ReadyBy, require v1alpha1.Require) v1alpha1.SignalSource {
	spec := podsOf(require)
	spec.ReadyBy, spec.ReadyAnnotation = by, readyKey
	return v1alpha1.SignalSource{Pods: spec}
}

// annotated returns a node on which these pods of the agent run.
func annotated(change ...func(*gate.Pod)) *world {
	w := aNode(running("agent", change...))
	w.facts.Pods[markable] = w.facts.Pods[query("agent")]
	delete(w.facts.Pods, query("agent"))
	return w
}

func mark(p *gate.Pod) { p.MarkedSince = epoch.Add(-10 * time.Second) }

// markOfFormerNode marks a pod before the Node was created again.
func markOfFormerNode(p *gate.Pod) { p.Created, p.MarkedSince = epoch.Add(-day), epoch.Add(-day) }

func TestReadyBy(t *testing.T) {
	const pod, set = "kube-system/agent-x", "kube-system/(app=agent)"
	notReadyReason, terminatingReason := v1alpha1.ReadingPodNotReady, v1alpha1.ReadingPodTerminating
	bare, old := v1alpha1.ReadingPodNotAnnotated, v1alpha1.ReadingStaleAnnotation
	for name, c := range map[string]struct {
		node               *world
		annotation, either reads
	}{
		"annotated, not ready": {annotated(notReady, mark),
			reads{nil, gate.Holds, ready, pod}, reads{nil, gate.Holds, ready, pod}},
		"ready, not annotated": {annotated(),
			reads{nil, gate.NotYet, bare, pod}, reads{nil, gate.Holds, ready, pod}},
		"both": {annotated(mark),
			reads{nil, gate.Holds, ready, pod}, reads{nil, gate.Holds, ready, pod}},
		"neither": {annotated(notReady),
			reads{nil, gate.NotYet, bare, pod}, reads{nil, gate.NotYet, notReadyReason, pod}},
		"annotated, terminating": {annotated(mark, terminating),
			reads{nil, gate.NotYet, terminatingReason, pod}, reads{nil, gate.NotYet, terminatingReason, pod}},
		"annotated, finished": {annotated(mark, finished),
			reads{nil, gate.NotYet, v1alpha1.ReadingPodFinished, pod}, reads{nil, gate.NotYet, v1alpha1.ReadingPodFinished, pod}},
		"annotated, a mirror pod": {annotated(mark, mirror),
			reads{nil, gate.NotYet, v1alpha1.ReadingPodStatic, pod}, reads{nil, gate.NotYet, v1alpha1.ReadingPodStatic, pod}},
		"annotated, of the former Node": {annotated(notReady, markOfFormerNode),
			reads{nil, gate.NotYet, old, pod}, reads{nil, gate.NotYet, notReadyReason, pod}},
		"annotation not observed": {aNode(running("agent", mark)),
			reads{nil, gate.Unknown, notObserved, set}, reads{nil, gate.Unknown, notObserved, set}},
	} {
		c.annotation.node, c.either.node = c.node, c.node
		check(t, mustCompile(t, readyBy(v1alpha1.ReadyByAnnotation, v1alpha1.RequireAny)), map[string]reads{"annotation: " + name: c.annotation})
		check(t, mustCompile(t, readyBy(v1alpha1.ReadyByEither, v1alpha1.RequireAny)), map[string]reads{"either: " + name: c.either})
	}
}

// With require All, each pod may be ready in a different way.
func TestReadyByEitherOfAll(t *testing.T) {
	w := annotated(notReady, mark)
	second := gate.Pod{Name: "kube-system/second", Ready: true, Created: epoch.Add(-time.Minute)}
	all := mustCompile(t, readyBy(v1alpha1.ReadyByEither, v1alpha1.RequireAll))
	w.facts.Pods[markable] = append(w.facts.Pods[markable], second)
	if r, _ := read(t, all, w); r.State != gate.Holds {
		t.Errorf("one annotated, one ready: %+v", r)
	}
	w.facts.Pods[markable][1].Ready = false
	if r, _ := read(t, all, w); r.State != gate.NotYet || r.Subject != "kube-system/second" {
		t.Errorf("one annotated, one not ready: %+v", r)
	}
}

// Pod annotations are observed only if a gate needs them.
func TestReadyByNeeds(t *testing.T) {
	for by, want := range map[v1alpha1.ReadyBy]string{
		"": "", v1alpha1.ReadyByCondition: "", v1alpha1.ReadyByAnnotation: readyKey, v1alpha1.ReadyByEither: readyKey,
	} {
		source := readyBy(by, v1alpha1.RequireAny)
		source.Pods.ReadyAnnotation = want
		s := mustCompile(t, source)
		if n := s.Needs(nil); n.Pods[0].Annotation != want || !s.ProvesBoot() {
			t.Errorf("%s: needs %+v", by, n)
		}
	}
}

// A combination that the API rejects must not compile either.
func TestReadyByOnePartOnly(t *testing.T) {
	keyOnly, byOnly := readyBy(v1alpha1.ReadyByCondition, ""), readyBy(v1alpha1.ReadyByEither, "")
	byOnly.Pods.ReadyAnnotation = ""
	for _, s := range []v1alpha1.SignalSource{keyOnly, byOnly} {
		if _, err := compile(&s); err == nil {
			t.Errorf("%+v compiles", s.Pods)
		}
	}
}
