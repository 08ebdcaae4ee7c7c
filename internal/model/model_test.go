// SPDX-License-Identifier: Apache-2.0

package model

import (
	"flag"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// edits returns the versions of two gates that edits can produce.
func edits(a, b func(...change) gate.Gate) []version {
	on := func(key string) change { return func(spec *v1alpha1.NodeGateSpec) { spec.Taint.Key = key } }
	again := a(byDaemon)
	again.Created = (day / 2).time()
	as := func(name string, changes ...change) version {
		return newVersion("a "+name, a(changes...), b(byDaemon, evicting))
	}
	return []version{
		as("and b", byDaemon),
		as("has another key", byDaemon, on(keyC)),
		as("evicts", byDaemon, evicting),
		as("waits for one more signal", byDaemon, andFit),
		as("is closed while a label is there", whileSelected),
		as("is paused", byDaemon, inMode(v1alpha1.ModePaused)),
		as("is in dry run", byDaemon, inMode(v1alpha1.ModeDryRun)),
		as("shares the taint of b", byDaemon, evicting, on(keyB)),
		as("recloses by another taint", byDaemon, reclosingBy(keyC)),
		as("never recloses", byDaemon, neverReclosing),
		newVersion("a was created anew, and b", again, b(byDaemon, evicting)),
		newVersion("b is deleted", a(byDaemon)),
		newVersion("both are deleted"),
	}
}

// more enables explorations that take longer than a test may.
var more = flag.Int("mishaps", 0, "how many more mishaps to explore together")

// named is a setting with a name.
type named struct {
	name string
	setting
}

// settings returns the settings to explore, the large ones first.
func settings(t *testing.T) []named {
	a := func(changes ...change) gate.Gate { return compile(t, "a", keyA, changes...) }
	b := func(changes ...change) gate.Gate { return compile(t, "b", keyB, changes...) }
	only := func(gates ...gate.Gate) []version { return []version{newVersion("", gates...)} }
	one, both := only(a(byDaemon)), only(a(byDaemon), b(byDaemon, evicting))
	budgeted := []version{newVersion("a", a(byDaemon, onRegression)), newVersion("a waits for one more signal", a(byDaemon, andFit, onRegression)), newVersion("a is deleted")}
	onOne, onBoth := isOpen("a"), isOpen("a", "b")
	all := budget{reboots: 2, failures: 1, flaps: 2, renewals: 1, writers: 2, crashes: 2, edits: 1}
	edited := budget{edits: 2, reboots: 1, failures: 1, flaps: 1, fits: 1, renewals: 1, crashes: 1, writers: 1}
	some := func(any, ticks int8, of budget) budget {
		of.any, of.ticks = any+int8(*more), ticks
		return of
	}
	return []named{
		{"everything, two gates", setting{versions: both, left: some(3, 1, all), begin: onBoth}},
		{"everything, two gates, more time", setting{versions: both, left: some(2, 3, all), begin: onBoth}},
		{"everything, two nodes, two gates and two replicas", setting{versions: append(slices.Clone(both), newVersion("b is deleted", a(byDaemon)), newVersion("both are deleted")),
			nodes: 2, replicas: 2, inStep: true, left: some(2, 0, all), begin: onBoth}},
		{"everything, two gates and two replicas", setting{versions: both, replicas: 2, left: some(2, 1, all), begin: onBoth}},
		{"gates are edited", setting{versions: edits(a, b), left: some(2, 2, edited), begin: onBoth}},
		{"gates are edited, two replicas", setting{versions: edits(a, b), replicas: 2, left: some(2, 0, edited), begin: onBoth}},
		{"two nodes and one budget", setting{versions: budgeted, nodes: 2, maxReclosed: new(intstr.FromInt32(1)), begin: onOne,
			left: some(2, 2, budget{reboots: 1, failures: 1, lapses: 2, crashes: 1, losses: 1, flaps: 1, fits: 1, edits: 1})}},
		{"two nodes lose their daemons", setting{versions: budgeted[:1], nodes: 2, maxReclosed: new(intstr.FromInt32(1)), begin: onOne,
			left: budget{lapses: 3, crashes: 1, losses: 1, ticks: 2}}},
		{"reboots, and nodegate is down", setting{versions: both, left: budget{reboots: 1, ticks: 3, crashes: 2}, begin: onBoth}},
		{"reboots, and a runtime that fails", setting{versions: one, left: budget{reboots: 2, ticks: 1, failures: 1}, begin: onOne}},
		{"labels flap", setting{versions: one, left: budget{reboots: 1, ticks: 2, flaps: 3}, begin: onOne}},
		{"another writer", setting{versions: one, left: budget{reboots: 2, writers: 3}, begin: onOne}},
		{"another writer makes a node a member", setting{versions: one, left: budget{reboots: 2, failures: 1, writers: 1, ticks: 1}}},
		{"two replicas", setting{versions: one, replicas: 2, left: budget{reboots: 1, ticks: 1, crashes: 2}, begin: onOne}},
		{"gates that negate each other", setting{versions: only(a(whileAbsent(keyB)), b(whileAbsent(keyA))), replicas: 2, left: budget{ticks: 1, flaps: 1}}},
		{"a gate that negates what follows it", setting{versions: only(a(whileAbsent(keyB)), b(whilePresent(keyA))), replicas: 2, left: budget{ticks: 1, flaps: 1}}},
		{"behind another tool's startup taint", setting{versions: only(a(byDaemons)), left: budget{ticks: 1}, begin: behindStartupTaint}},
	}
}

// behindStartupTaint adds another tool's taint, which the daemon does not tolerate, to
// a node that was closed at birth.
func behindStartupTaint(x *api, m *machine) {
	m.pod, m.daemonUp = podStatus{}, false
	r := gate.Record{State: v1alpha1.StateClosed, Reason: v1alpha1.ReasonBirth, Boot: bootID(0), Taint: keyA + ":NoSchedule", Source: v1alpha1.SourceCRD}
	annotations := maps.Clone(m.node.marks.annotations)
	annotations[v1alpha1.RecordAnnotationPrefix+"a"] = r.String()
	m.node.marks = x.marks(append(slices.Clone(m.node.marks.taints), corev1.Taint{Key: keyA, Effect: corev1.TaintEffectNoSchedule}, corev1.Taint{Key: startupKey, Effect: corev1.TaintEffectNoSchedule}), annotations)
}

// In every order of events, no gate opens because of outdated information or closes
// unexpectedly, nothing that belongs to others is changed, and in the end all gates are
// open.
func TestEveryOrder(t *testing.T) {
	for _, w := range settings(t) {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			x := explore(t, &w.setting)
			for _, what := range x.found {
				t.Error(what)
			}
			if x.writes == 0 && !x.versions[0].gates[0].ReadsWrites {
				t.Error("nothing was written, so the test proves nothing")
			}
			if x.ends == 0 {
				t.Error("no sequence came to an end, so the test proves nothing")
			}
		})
	}
}
