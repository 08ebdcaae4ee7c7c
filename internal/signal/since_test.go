// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// A condition holds since it has matched for long enough. A clock that is ahead delays
// it only if forSeconds is set.
func TestConditionHoldsSince(t *testing.T) {
	ready := cond("DiskReady", "True")
	ahead := ready
	ahead.Transition = epoch.Add(time.Hour)
	for name, c := range map[string]struct {
		spec  v1alpha1.ConditionSignal
		have  gate.Condition
		since time.Time
	}{
		"its transition":            {v1alpha1.ConditionSignal{}, ready, ready.Transition},
		"forSeconds later":          {v1alpha1.ConditionSignal{ForSeconds: 20}, ready, ready.Transition.Add(20 * time.Second)},
		"by a clock that is ahead":  {v1alpha1.ConditionSignal{}, ahead, ahead.Transition},
		"without a transition time": {v1alpha1.ConditionSignal{}, gate.Condition{Type: "DiskReady", Status: "True"}, time.Time{}},
	} {
		c.spec.Type, c.spec.Status = "DiskReady", "True"
		s := mustCompile(t, v1alpha1.SignalSource{Condition: &c.spec})
		if r, _ := read(t, s, conditions(c.have)); r.State != gate.Holds || !r.Since.Equal(c.since) {
			t.Errorf("%s: %s since %s, want %s", name, r.State, r.Since, c.since)
		}
	}
}

// If several conditions match a pattern, the time is that of the one that has matched
// the longest, in any order.
func TestPatternHoldsSince(t *testing.T) {
	s := mustCompile(t, v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{TypePattern: "Disk.*", Status: "True"}})
	at := func(name string, ago time.Duration) gate.Condition {
		c := cond(name, "True")
		c.Transition = epoch.Add(-ago)
		return c
	}
	for name, node := range map[string]*world{
		"the later comes first": conditions(at("DiskB", time.Minute), at("DiskA", time.Hour)),
		"the later comes last":  conditions(at("DiskA", time.Hour), at("DiskB", time.Minute)),
		"one does not match":    conditions(cond("DiskC", "False"), at("DiskA", time.Hour), cond("DiskD", "Unknown")),
	} {
		if r, _ := read(t, s, node); r.State != gate.Holds || !r.Since.Equal(epoch.Add(-time.Hour)) || r.Longer {
			t.Errorf("%s: %s since %s, longer %t", name, r.State, r.Since, r.Longer)
		}
	}
}

// If one of two pods is sufficient, the time is that of the one that has been ready
// longer, in any order.
func TestEitherHoldsSince(t *testing.T) {
	at := func(d time.Duration) gate.Reading { return gate.Reading{State: gate.Holds, Since: epoch.Add(-d)} }
	unknown := gate.Reading{State: gate.Holds}
	for _, c := range []struct{ a, b, want gate.Reading }{
		{at(1), at(2), at(2)}, {at(2), at(1), at(2)}, {unknown, at(1), at(1)}, {at(1), unknown, at(1)}, {unknown, unknown, unknown},
	} {
		if got := either(c.a, c.b); got != c.want {
			t.Errorf("either(%s, %s) is since %s", c.a.Since, c.b.Since, got.Since)
		}
	}
}

// If none of several conditions, or of the ways of being ready, is sufficient, the signal
// has not held since the last of them stopped, in any order.
func TestNoneHoldsSince(t *testing.T) {
	at := func(name string, ago time.Duration) gate.Condition {
		c := cond(name, "False")
		c.Transition = epoch.Add(-ago)
		return c
	}
	s := mustCompile(t, v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{TypePattern: "Disk.*", Status: "True"}})
	for name, c := range map[string]struct {
		node  *world
		since time.Time
	}{
		"the later comes first": {conditions(at("DiskB", time.Minute), at("DiskA", time.Hour)), epoch.Add(-time.Minute)},
		"the later comes last":  {conditions(at("DiskA", time.Hour), at("DiskB", time.Minute)), epoch.Add(-time.Minute)},
		"one has no time":       {conditions(at("DiskA", time.Hour), gate.Condition{Type: "DiskB", Status: "False"}), time.Time{}},
	} {
		if r, _ := read(t, s, c.node); r.State != gate.NotYet || !r.Since.Equal(c.since) {
			t.Errorf("%s: %s since %s, want %s", name, r.State, r.Since, c.since)
		}
	}
	lost := func(d time.Duration) gate.Reading {
		return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingPodNotReady, Since: epoch.Add(-d)}
	}
	none := gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingPodMissing} // until a pod is found
	unknown := gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingPodNotReady}
	for _, c := range []struct{ a, b, want gate.Reading }{
		{lost(1), lost(2), lost(1)}, {lost(2), lost(1), lost(1)}, {none, lost(2), lost(2)}, {unknown, lost(1), unknown}, {lost(1), unknown, unknown},
	} {
		if got := either(c.a, c.b); got != c.want {
			t.Errorf("either(%s, %s) is since %s, want %s", c.a.Since, c.b.Since, got.Since, c.want.Since)
		}
	}
}

// If one of several objects is sufficient, readings say so, because the time of another
// object does not show an interruption.
func TestAlternatives(t *testing.T) {
	pods := func(require v1alpha1.Require, by v1alpha1.ReadyBy) v1alpha1.SignalSource {
		s := &v1alpha1.PodsSignal{Namespace: "kube-system", Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}, Require: require, ReadyBy: by}
		if by == v1alpha1.ReadyByEither {
			s.ReadyAnnotation = "example.com/ready"
		}
		return v1alpha1.SignalSource{Pods: s}
	}
	daemon := v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: "agent"}}
	daemons := v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{"kube-system"}}}
	agent, ready := with("agent"), running("agent")
	annotated := func(w *world) {
		q := query("agent")
		q.Annotation = "example.com/ready"
		w.facts.Pods[q] = w.facts.Pods[query("agent")]
	}
	for name, c := range map[string]struct {
		source v1alpha1.SignalSource
		node   *world
		want   bool
	}{
		"a type of condition":                {v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{Type: "Disk", Status: "True"}}, conditions(cond("Disk", "True")), false},
		"a pattern of types":                 {v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{TypePattern: "Disk.*", Status: "True"}}, conditions(cond("DiskA", "True")), true},
		"any pod":                            {pods(v1alpha1.RequireAny, ""), aNode(agent, ready), true},
		"all pods":                           {pods(v1alpha1.RequireAll, ""), aNode(agent, ready), false},
		"all pods, one not ready":            {pods(v1alpha1.RequireAll, ""), aNode(agent, running("agent", notReady)), true},
		"ready by condition or annotation":   {pods(v1alpha1.RequireAll, v1alpha1.ReadyByEither), aNode(agent, ready, annotated), true},
		"a daemon":                           {daemon, aNode(agent, ready), false},
		"a daemon whose rollout surges":      {daemon, aNode(with("agent", surging), ready), true},
		"all daemons":                        {daemons, aNode(agent, ready), false},
		"all daemons, one of which surges":   {daemons, aNode(with("agent", surging), ready), true},
		"all daemons, one of them not ready": {daemons, aNode(agent, running("agent", notReady)), true},
	} {
		if r, _ := read(t, mustCompile(t, c.source), c.node); r.Alternative != c.want {
			t.Errorf("%s: %s (%s), alternative %t, want %t", name, r.State, r.Reason, r.Alternative, c.want)
		}
	}
}

// A wait for conditions of a pattern continues while one of them holds.
func TestSoakOfAPattern(t *testing.T) {
	l := &soakLife{world: aNode(), now: epoch, steady: map[string]gate.Steady{}}
	l.facts.Node.Taints, l.facts.Node.Records = nil, map[string]string{}
	l.add(t, v1alpha1.Signal{Name: "gpus", SignalSource: v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{TypePattern: "Gpu.*", Status: "True"}}})
	set := func(status corev1.ConditionStatus, name string) {
		others := slices.DeleteFunc(slices.Clone(l.facts.Node.Conditions), func(c gate.Condition) bool { return c.Type == name })
		l.facts.Node.Conditions = append(others, gate.Condition{Type: name, Status: status, Transition: l.now})
	}
	set("True", "GpuA")
	l.decide()
	l.now = epoch.Add(20 * time.Second)
	set("True", "GpuB")
	l.decide()
	l.now = epoch.Add(50 * time.Second)
	set("False", "GpuA")
	if d, want := l.decide(), epoch.Add((20+soakSeconds)*time.Second+gate.HeartbeatSkew); d.Recheck.IsZero() || d.Recheck.After(want) {
		t.Errorf("recheck at %s, want %s at the latest", d.Recheck, want)
	}
}
