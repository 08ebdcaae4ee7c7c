// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

func podsOf(require v1alpha1.Require) *v1alpha1.PodsSignal {
	return &v1alpha1.PodsSignal{
		Namespace: "kube-system", Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}, Require: require,
	}
}

var anyPod, allPods = podsOf(v1alpha1.RequireAny), podsOf(v1alpha1.RequireAll)

func TestPods(t *testing.T) {
	const pod, set = "kube-system/agent-x", "kube-system/(app=agent)"
	notReadyReason, terminatingReason := v1alpha1.ReadingPodNotReady, v1alpha1.ReadingPodTerminating
	two := func(change ...func(*gate.Pod)) *world {
		return aNode(running("agent"), running("agent", append(change, named("b"))...))
	}
	for name, c := range map[string]struct {
		node     *world
		any, all reads
	}{
		"none": {aNode(),
			reads{nil, gate.NotYet, missing, set}, reads{nil, gate.NotYet, missing, set}},
		"not observed": {aNode(unobservedPods("agent")),
			reads{nil, gate.Unknown, notObserved, set}, reads{nil, gate.Unknown, notObserved, set}},
		"one ready": {aNode(running("agent")),
			reads{nil, gate.Holds, ready, pod}, reads{nil, gate.Holds, ready, set}},
		"of any owner": {aNode(running("agent", ofAnotherOwner)),
			reads{nil, gate.Holds, ready, pod}, reads{nil, gate.Holds, ready, set}},
		"one not ready": {aNode(running("agent", notReady)),
			reads{nil, gate.NotYet, notReadyReason, pod}, reads{nil, gate.NotYet, notReadyReason, pod}},
		"a mirror pod only": {aNode(running("agent", mirror)),
			reads{nil, gate.NotYet, v1alpha1.ReadingPodStatic, pod}, reads{nil, gate.NotYet, v1alpha1.ReadingPodStatic, pod}},
		"a finished pod only": {aNode(running("agent", finished)),
			reads{nil, gate.NotYet, v1alpha1.ReadingPodFinished, pod}, reads{nil, gate.NotYet, v1alpha1.ReadingPodFinished, pod}},
		"a mirror pod that has finished": {aNode(running("agent", mirror, finished)),
			reads{nil, gate.NotYet, v1alpha1.ReadingPodStatic, pod}, reads{nil, gate.NotYet, v1alpha1.ReadingPodStatic, pod}},
		"finished and not ready": {aNode(running("agent", finished), running("agent", notReady, named("b"))),
			reads{nil, gate.NotYet, notReadyReason, "kube-system/b"}, reads{nil, gate.NotYet, notReadyReason, "kube-system/b"}},
		"ready and not ready": {two(notReady),
			reads{nil, gate.Holds, ready, pod}, reads{nil, gate.NotYet, notReadyReason, "kube-system/b"}},
		"ready and terminating": {two(terminating),
			reads{nil, gate.Holds, ready, pod}, reads{nil, gate.NotYet, terminatingReason, "kube-system/b"}},
		"ready and a mirror pod": {two(mirror),
			reads{nil, gate.Holds, ready, pod}, reads{nil, gate.Holds, ready, set}},
		"ready and finished": {two(finished, notReady),
			reads{nil, gate.Holds, ready, pod}, reads{nil, gate.Holds, ready, set}},
		"older than the Node": {aNode(running("agent", olderThanNode), nodeCreated(time.Second)),
			reads{nil, gate.NotYet, stale, pod}, reads{nil, gate.NotYet, stale, pod}},
		"not ready, then ready": {aNode(running("agent", notReady, named("b")), running("agent")),
			reads{nil, gate.Holds, ready, pod}, reads{nil, gate.NotYet, notReadyReason, "kube-system/b"}},
	} {
		c.any.node, c.all.node = c.node, c.node
		check(t, mustCompile(t, v1alpha1.SignalSource{Pods: anyPod}), map[string]reads{"any: " + name: c.any})
		check(t, mustCompile(t, v1alpha1.SignalSource{Pods: allPods}), map[string]reads{"all: " + name: c.all})
	}
}

func TestPodsSince(t *testing.T) {
	any, all := mustCompile(t, v1alpha1.SignalSource{Pods: anyPod}), mustCompile(t, v1alpha1.SignalSource{Pods: allPods})
	since := func(d time.Duration) func(*gate.Pod) {
		return func(p *gate.Pod) { p.ReadySince = epoch.Add(-d) }
	}
	w := aNode(running("agent", since(time.Minute)), running("agent", since(time.Second)))
	if r, _ := read(t, all, w); !r.Since.Equal(epoch.Add(-time.Second)) {
		t.Errorf("all are ready since %s", r.Since)
	}
	w = aNode(running("agent", notReady, since(time.Second)), running("agent", notReady, since(time.Minute)))
	if r, _ := read(t, all, w); !r.Since.Equal(epoch.Add(-time.Minute)) {
		t.Errorf("not all are ready since %s", r.Since)
	}
	if n := any.Needs(nil); len(n.Pods) != 1 || n.Pods[0] != query("agent") || !any.ProvesBoot() {
		t.Errorf("needs %+v", n)
	}
	if p, observed := any.Evidence(&w.facts); len(p) != 2 || !observed {
		t.Errorf("evidence %v, %v", p, observed)
	}
}

// A pod that its DaemonSet's own rollout replaces is excused, whichever signal reads
// it.
func TestPodsRollout(t *testing.T) {
	elsewhere := func(ds *gate.DaemonSet) { ds.Namespace = "elsewhere" }
	for name, c := range map[string]struct {
		node     *world
		any, all bool
	}{
		"no rollout":                    {aNode(with("agent"), running("agent", terminating)), false, false},
		"the pod is being replaced":     {aNode(with("agent", rollingOut), running("agent", terminating)), true, true},
		"the new one is not ready":      {aNode(with("agent", rollingOut), running("agent", notReady)), true, true},
		"an old one fails meanwhile":    {aNode(with("agent", rollingOut), running("agent", notReady, created(time.Hour))), false, false},
		"the pod is not there":          {aNode(with("agent", rollingOut)), true, true},
		"it is ready":                   {aNode(with("agent", rollingOut), running("agent")), false, false},
		"it does not run on the node":   {aNode(with("agent", rollingOut, onlyOn("cpu"))), false, false},
		"another daemon":                {aNode(with("agent"), with("other", rollingOut), running("agent", notReady)), false, false},
		"a daemon in another namespace": {aNode(with("agent", rollingOut, elsewhere)), false, false},
		"another owner's pod":           {aNode(with("agent", rollingOut), running("agent", notReady, ofAnotherOwner)), false, false},
		"one of two is excused":         {aNode(with("agent", rollingOut), running("agent", notReady), running("agent", notReady, ofAnotherOwner)), true, false},
		"the second of two is excused":  {aNode(with("agent", rollingOut), running("agent", notReady, ofAnotherOwner), running("agent", notReady)), true, false},
		"DaemonSets are not observed":   {aNode(running("agent", notReady)), false, false},
	} {
		for require, want := range map[*v1alpha1.PodsSignal]bool{anyPod: c.any, allPods: c.all} {
			if r, _ := read(t, mustCompile(t, v1alpha1.SignalSource{Pods: require}), c.node); r.Rollout != want {
				t.Errorf("%s, require %s: excused %t, want %t", name, require.Require, r.Rollout, want)
			}
		}
	}
}
