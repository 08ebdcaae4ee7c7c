// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Each kind that reads pods waits for one that has been ready for a minute. Nothing is
// remembered: another controller has the same reading.
func TestMinReady(t *testing.T) {
	daemon := v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: "agent", MinReadySeconds: 60}}
	all := v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{"kube-system"}, MinReadySeconds: 60}}
	selector := v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}
	some := v1alpha1.SignalSource{Pods: &v1alpha1.PodsSignal{Namespace: "kube-system", Selector: selector, MinReadySeconds: 60}}
	every := v1alpha1.SignalSource{Pods: &v1alpha1.PodsSignal{Namespace: "kube-system", Selector: selector, Require: v1alpha1.RequireAll, MinReadySeconds: 60}}
	ready := func(ago time.Duration) func(*gate.Pod) {
		return func(p *gate.Pod) { p.Created, p.ReadySince = epoch.Add(-time.Hour+1), epoch.Add(-ago) }
	}
	created := func(ago time.Duration) func(*gate.Pod) { return func(p *gate.Pod) { p.Created = epoch.Add(-ago) } }
	agent := func(change ...func(*gate.Pod)) func(*world) { return running("agent", change...) }
	const second = time.Second
	for name, c := range map[string]struct {
		signal v1alpha1.SignalSource
		node   *world
		left   time.Duration // zero if it holds; negative if time alone is not sufficient
	}{
		"daemonSet, for long enough":           {daemon, aNode(with("agent"), agent(ready(60*second))), 0},
		"daemonSet, not quite":                 {daemon, aNode(with("agent"), agent(ready(60*second-1))), 1},
		"daemonSet, by a clock that is ahead":  {daemon, aNode(with("agent"), agent(ready(-10*second))), 70 * second},
		"daemonSet, by a clock that is behind": {daemon, aNode(with("agent"), agent(ready(time.Hour), created(20*second))), 40 * second},
		"daemonSet, without a time":            {daemon, aNode(with("agent"), agent(created(20*second), func(p *gate.Pod) { p.ReadySince = time.Time{} })), 40 * second},
		"daemonSet, not ready":                 {daemon, aNode(with("agent"), agent(ready(time.Hour), notReady)), -1},
		"daemonSet, terminating":               {daemon, aNode(with("agent"), agent(ready(time.Hour), terminating)), -1},
		"daemonSet, the old pod and the new":   {daemon, aNode(with("agent"), agent(ready(10*second)), agent(ready(time.Minute))), 0},
		"daemonSet, two that are new":          {daemon, aNode(with("agent"), agent(ready(10*second)), agent(ready(20*second))), 40 * second},
		"daemonSet, older than its Node":       {daemon, aNode(with("agent"), agent(ready(time.Hour), olderThanNode), nodeCreated(30*second)), 30 * second},
		"daemonSet, evidence for a short time": {daemon, aNode(with("agent"), agent(ready(time.Hour), olderThanNode), nodeCreated(70*second)), 50 * second},
		"daemonSets, one of them briefly":      {all, aNode(with("agent"), with("proxy"), agent(ready(time.Hour)), running("proxy", ready(15*second))), 45 * second},
		"daemonSets, both":                     {all, aNode(with("agent"), with("proxy"), agent(ready(time.Hour)), running("proxy", ready(time.Hour))), 0},
		"pods, any":                            {some, aNode(agent(ready(10*second)), agent(ready(time.Hour))), 0},
		"pods, any, the sooner":                {some, aNode(agent(ready(10*second)), agent(ready(50*second))), 10 * second},
		"pods, all":                            {every, aNode(agent(ready(10*second)), agent(ready(time.Hour))), 50 * second},
		"pods, all, one of them not ready":     {every, aNode(agent(notReady), agent(ready(time.Hour))), -1},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, s := range map[string]gate.Signal{
				"alone": mustCompile(t, c.signal),
				"anyOf": anyOf{{Name: "a", Signal: mustCompile(t, c.signal)}, {Name: "b", Signal: newLabel(&v1alpha1.KeyValueSignal{Key: "absent"})}},
			} {
				r, d := read(t, s, c.node)
				var recheck time.Time
				if c.left > 0 {
					recheck = epoch.Add(c.left)
				}
				if (r.State == gate.Holds) != (c.left == 0) || !d.Recheck.Equal(recheck) {
					t.Errorf("%s: %s (%s), recheck at %s, want %s", kind, r.State, r.Message(), d.Recheck, recheck)
				}
			}
		})
	}
}

// The time of an annotation starts when it was written. The annotation and the Ready
// condition count separately.
func TestMinReadyByAnnotation(t *testing.T) {
	for by, left := range map[v1alpha1.ReadyBy]time.Duration{
		v1alpha1.ReadyByAnnotation: 50 * time.Second, v1alpha1.ReadyByEither: 30 * time.Second, v1alpha1.ReadyByCondition: 30 * time.Second,
	} {
		spec := v1alpha1.PodsSignal{Namespace: "kube-system", MinReadySeconds: 60, ReadyBy: by,
			Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}}
		q := query("agent")
		if by != v1alpha1.ReadyByCondition {
			spec.ReadyAnnotation, q.Annotation = "a", "a"
		}
		w := aNode(running("agent", mark)) // ready for 30 seconds, marked for 10
		w.facts.Pods[q] = w.facts.Pods[query("agent")]
		_, d := read(t, mustCompile(t, v1alpha1.SignalSource{Pods: &spec}), w)
		if !d.Recheck.Equal(epoch.Add(left)) {
			t.Errorf("%s: recheck in %s, want in %s", by, d.Recheck.Sub(epoch), left)
		}
	}
}
