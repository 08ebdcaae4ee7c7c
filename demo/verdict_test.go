// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	nodegateUser = "system:serviceaccount:nodegate-system:nodegate"
	scheduler    = "system:kube-scheduler"
	someone      = "someone"
)

var (
	start     = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cniTaint  = corev1.Taint{Key: "example.com/cni", Effect: corev1.TaintEffectNoSchedule}
	initTaint = corev1.Taint{Key: "example.com/init", Effect: corev1.TaintEffectNoSchedule}
	foreign   = corev1.Taint{Key: "example.com/foreign", Effect: corev1.TaintEffectNoSchedule}
)

var everything = corev1.Toleration{Operator: corev1.TolerationOpExists}

// A step is a part of a run, which can be replaced.
type step struct {
	name  string
	write func(*logWriter)
}

// goodRun is a run without faults. It has two nodes, one of which stays closed
// because of its init daemon, and two workload pods, one of which is bound.
func goodRun() []step {
	return []step{
		{"dry run", func(l *logWriter) {
			l.node(nodegateUser, "create", "nodes", "probe").RequestURI += "?dryRun=All"
		}},
		{"workload", func(l *logWriter) {
			l.createPod("default", "web-1")
			l.createPod("default", "web-2")
			l.createPod("kube-system", "cni-a", everything)
		}},
		{"register a", func(l *logWriter) { l.register("a", foreign, cniTaint, initTaint) }},
		{"register b", func(l *logWriter) { l.register("b", cniTaint, initTaint) }},
		{"bind daemon", func(l *logWriter) { l.bind("kube-system", "cni-a", "a") }},
		{"cni of a", func(l *logWriter) { l.daemonReady("cni", "a") }},
		{"open cni on a", func(l *logWriter) { l.patch(nodegateUser, "a", foreign, initTaint) }},
		{"lift foreign", func(l *logWriter) { l.patch(someone, "a", initTaint) }},
		{"init of a", func(l *logWriter) { l.daemonReady("init", "a") }},
		{"open init on a", func(l *logWriter) { l.patch(nodegateUser, "a") }},
		{"bind", func(l *logWriter) { l.bind("default", "web-1", "a") }},
		{"cni of b", func(l *logWriter) { l.daemonReady("cni", "b") }},
		{"open cni on b", func(l *logWriter) { l.patch(nodegateUser, "b", initTaint) }},
		{"steady", func(l *logWriter) {
			l.heartbeat("a")
			l.heartbeat("b", initTaint)
			l.add(nodegateUser, "update", "leases", "nodegate-system", "nodegate").ObjectRef.APIGroup = "coordination.k8s.io"
		}},
	}
}

// play writes the audit log of the good run with one step replaced.
func play(t *testing.T, name string, replacement func(*logWriter)) verdict {
	t.Helper()
	l := &logWriter{t: t}
	e := expectation{
		nodegate: nodegateUser, setUpTaint: setUpTaint, nodes: []string{"a", "b"}, workload: 1,
		gates: []gate{
			{name: "cni", taint: cniTaint, daemonSet: types.NamespacedName{Namespace: "kube-system", Name: "cni"}},
			{name: "init", taint: initTaint, daemonSet: types.NamespacedName{Namespace: "kube-system", Name: "init"}},
		},
	}
	replaced := name == ""
	for _, s := range goodRun() {
		if s.name == "steady" {
			e.steady.from = l.now()
		}
		if s.name == name {
			replaced = true
			replacement(l)
			continue
		}
		s.write(l)
	}
	if !replaced {
		t.Fatalf("there is no step %q", name)
	}
	e.steady.to = l.now()
	return judge(e, l.read())
}

func failed(v verdict) []string {
	var names []string
	for _, c := range v.checks {
		if !c.pass {
			names = append(names, c.name)
			if len(c.faults) == 0 {
				names = append(names, "(and does not say why)")
			}
		}
	}
	return names
}

func TestVerdictOfGoodRun(t *testing.T) {
	v := play(t, "", nil)
	if names := failed(v); names != nil || !v.pass() {
		t.Errorf("failed: %q", names)
	}
	if want := []heldGate{{node: "b", gate: "init"}}; !slices.Equal(v.held, want) {
		t.Errorf("held are %v, want %v", v.held, want)
	}
	if want := slices.Repeat([]time.Duration{time.Millisecond}, 3); !slices.Equal(v.latencies, want) {
		t.Errorf("latencies are %v, want %v", v.latencies, want)
	}
}

func TestVerdictOfBadRuns(t *testing.T) {
	const (
		registered = "nodes that registered, none of them refused"
		bare       = "nodes ever visible without the taint of a closed gate"
		boundEarly = "pods bound to a node while it was closed to them"
		bound      = "workload pods bound by the scheduler"
		early      = "gates opened before their daemon was ready"
		forgotten  = "gates closed in the end although their daemon is ready"
		patches    = "opening patches, at most one for each moment of a node"
		needless   = "writes of nodes by nodegate that opened nothing"
		quiet      = "writes by nodegate in a steady state"
	)
	tests := []struct {
		name string
		step string
		with func(*logWriter)
		want []string
	}{
		{"node born without a taint", "register b", func(l *logWriter) {
			l.register("b", initTaint)
		}, []string{bare, forgotten, patches, needless}},
		{"node born without a taint that is put on later", "register b", func(l *logWriter) {
			l.register("b", initTaint)
			l.patch(someone, "b", cniTaint, initTaint)
		}, []string{bare}},
		{"taint taken off by another", "cni of a", func(l *logWriter) {
			l.patch(someone, "a", foreign, initTaint)
			l.patch(someone, "a", foreign, initTaint, cniTaint)
			l.daemonReady("cni", "a")
		}, []string{bare}},
		{"kubelet's answer shows no taint", "cni of a", func(l *logWriter) {
			l.heartbeat("a", foreign, initTaint)
			l.daemonReady("cni", "a")
			l.heartbeat("a", foreign, initTaint, cniTaint)
		}, []string{bare}},
		{"pod bound to a closed node", "open init on a", func(l *logWriter) {
			l.bind("default", "web-2", "b")
			l.patch(nodegateUser, "a")
		}, []string{boundEarly, bound}},
		{"pod bound just before its node is opened", "open init on a", func(l *logWriter) {
			l.bind("default", "web-1", "a")
			l.patch(nodegateUser, "a")
		}, []string{boundEarly, bound}},
		{"unknown pod bound to a closed node", "bind daemon", func(l *logWriter) {
			l.bind("kube-system", "unheard-of", "a")
		}, []string{boundEarly}},
		{"no pod bound at all", "bind", func(*logWriter) {}, []string{bound}},
		{"gate opened before its daemon is ready", "cni of b", func(l *logWriter) {
			l.patch(nodegateUser, "b", initTaint)
			l.daemonReady("cni", "b")
			l.patch(someone, "b", initTaint, foreign)
		}, []string{early, needless}},
		{"gate opened although its daemon is never ready", "open cni on b", func(l *logWriter) {
			l.patch(nodegateUser, "b")
		}, []string{early}},
		{"gate never opened", "bind", func(l *logWriter) {
			l.bind("default", "web-1", "a")
			l.daemonReady("init", "b")
		}, []string{forgotten}},
		{"patch that changes nothing", "lift foreign", func(l *logWriter) {
			l.patch(nodegateUser, "a", foreign, initTaint)
			l.patch(someone, "a", initTaint)
		}, []string{needless}},
		{"patch in a steady state", "steady", func(l *logWriter) {
			l.heartbeat("a")
			l.heartbeat("b", initTaint)
			l.patch(nodegateUser, "b", initTaint)
		}, []string{needless, quiet}},
		{"status written in a steady state", "steady", func(l *logWriter) {
			l.heartbeat("a")
			l.heartbeat("b", initTaint)
			l.add(nodegateUser, "patch", "nodegates/status", "", "cni").ObjectRef.APIGroup = "nodegate.dev"
		}, []string{quiet}},
		{"write tried in vain in a steady state", "steady", func(l *logWriter) {
			l.heartbeat("a")
			l.heartbeat("b", initTaint)
			l.patch(nodegateUser, "b").ResponseStatus.Code = 422
		}, []string{quiet}},
		{"no heartbeats", "steady", func(l *logWriter) { l.heartbeat("a") }, []string{quiet}},
		{"node refused", "register b", func(l *logWriter) {
			l.node("system:node:b", "create", "nodes", "b").ResponseStatus.Code = 422
			l.register("b", cniTaint, initTaint)
		}, []string{registered}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := play(t, test.step, test.with)
			if names := failed(v); !slices.Equal(names, test.want) || v.pass() {
				t.Errorf("failed:\n\t%s\nwant:\n\t%s", strings.Join(names, "\n\t"), strings.Join(test.want, "\n\t"))
			}
		})
	}
}

func TestVerdictOfEmptyLogFails(t *testing.T) {
	v := judge(expectation{nodes: []string{"a"}, workload: 1}, nil)
	if v.pass() {
		t.Error("it passes")
	}
}

// If two gates can open at the same moment, because a cloud has set up its node,
// one patch must open both.
func TestVerdictOfOneMoment(t *testing.T) {
	bornInCloud := func(l *logWriter) { l.register("a", setUpTaint, cniTaint, initTaint) }
	for _, test := range []struct {
		name string
		open func(*logWriter)
		want bool
	}{
		{"one patch", func(l *logWriter) { l.patch(nodegateUser, "a") }, true},
		{"two patches", func(l *logWriter) {
			l.patch(nodegateUser, "a", initTaint)
			l.patch(nodegateUser, "a")
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := &logWriter{t: t}
			bornInCloud(l)
			l.daemonReady("cni", "a")
			l.daemonReady("init", "a")
			l.patch(someone, "a", cniTaint, initTaint)
			test.open(l)
			from := l.now()
			l.heartbeat("a")
			v := judge(expectation{
				nodegate: nodegateUser, setUpTaint: setUpTaint, nodes: []string{"a"}, steady: period{from, l.now()},
				gates: []gate{
					{name: "cni", taint: cniTaint, daemonSet: types.NamespacedName{Namespace: "kube-system", Name: "cni"}},
					{name: "init", taint: initTaint, daemonSet: types.NamespacedName{Namespace: "kube-system", Name: "init"}},
				},
			}, l.read())
			if v.pass() != test.want {
				t.Errorf("pass is %t; failed: %q", v.pass(), failed(v))
			}
		})
	}
}

// What counts is the order in which writes took effect, not the order in which
// their answers came.
func TestHistoryGoesByResourceVersion(t *testing.T) {
	v := play(t, "open cni on a", func(l *logWriter) {
		opening := l.patch(nodegateUser, "a", foreign, initTaint)
		opening.ResponseObject = l.body(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: fmt.Sprint(102 + len(l.events))},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{foreign, initTaint}},
		})
		heartbeat := l.node("system:node:a", "patch", "nodes/status", "a", foreign, cniTaint, initTaint)
		heartbeat.StageTimestamp = metav1.NewMicroTime(l.now().Add(time.Second))
	})
	if names := failed(v); names != nil {
		t.Errorf("failed: %q", names)
	}
}

func TestPercentile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for _, test := range []struct {
		sorted        []time.Duration
		percent, want int
	}{
		{nil, 50, 0},
		{hundred[:1], 50, 1},
		{hundred[:1], 99, 1},
		{hundred[:2], 50, 1},
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 100, 100},
	} {
		if got := percentile(test.sorted, test.percent); got != time.Duration(test.want) {
			t.Errorf("percentile %d of %d is %d, want %d", test.percent, len(test.sorted), got, test.want)
		}
	}
}
