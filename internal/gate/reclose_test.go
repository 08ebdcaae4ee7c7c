// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func TestOpening(t *testing.T) {
	cni := aGate("cni")
	both := aGate("cni", waitingFor(flagSignal("x"), flagSignal("y")))
	check(t, map[string]spec{
		"opens when its signal holds":          {aNode(cni).closed("cni").flag("cni", "holds"), "write [] cni:Closed>Open(SignalsHold)"},
		"all must hold":                        {aNode(both).closed("cni").flag("x", "holds"), "[" + cniTaint + "] cni:Closed>Closed(Birth)"},
		"Unknown does not open":                {aNode(both).closed("cni").flag("x", "holds").flag("y", "unknown"), "[" + cniTaint + "] cni:Closed>Closed(Birth)"},
		"an unreachable node does not open":    {aNode(cni).closed("cni").flag("cni", "holds").ready("Unknown"), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=NodeSilent"},
		"a node that shuts down does not open": {aNode(cni).closed("cni").flag("cni", "holds").shuttingDown(true), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=NodeShutdown"},
		"a gate without signals never opens": {
			aNode(aGate("cni", waitingFor())).closed("cni"), "[" + cniTaint + "] cni:Closed>Closed(Birth)"},
		"a gate that is not accepted still opens": {
			aNode(aGate("cni", refused)).closed("cni").flag("cni", "holds"), "write [] cni:Closed>Open(SignalsHold)"},
		"a gate that is not accepted stays closed": {
			aNode(aGate("cni", refused)).closed("cni"), "[" + cniTaint + "] cni:Closed>Closed(Birth)"},
		"a gate that is not accepted does not restore its taint": {
			aNode(aGate("cni", refused)).record("cni", "Closed"), "[] cni:Closed>Closed(Birth)"},
		"opens although another writer removed the taint": {
			aNode(cni).record("cni", "Closed").flag("cni", "holds"), "write [] cni:Closed>Open(SignalsHold)"},
	})
}

func TestReclosePolicies(t *testing.T) {
	open := func(p v1alpha1.ReclosePolicy, options ...func(*Gate)) *sim {
		return aNode(aGate("cni", append(options, reclosing(p))...)).open("cni")
	}
	noExecute := tainting("cni.example/not-ready:NoExecute")
	needsAgent := waitingFor(agent("cni"))
	check(t, map[string]spec{
		"Never: reboot":      {open(never).boot("b"), "write [] cni:Open>Open(Birth)"}, // removes the boot from the record
		"Never: unreachable": {open(never).ready("Unknown"), "[] cni:Open>Open(Birth)"},
		"Never: shutdown":    {open(never).shuttingDown(true), "[] cni:Open>Open(Birth)"},

		"OnReboot: reboot": {open(onReboot).boot("b"),
			"write [" + cniTaint + "] cni:Open>Closed(Rebooted)"},
		"OnReboot: unreachable": {open(onReboot).ready("Unknown"),
			"write [" + cniTaint + "] cni:Open>Closed(NodeSilent) blocked=NodeSilent"},
		"OnReboot: shutdown": {open(onReboot).shuttingDown(true),
			"write [" + cniTaint + "] cni:Open>Closed(NodeShutdown) blocked=NodeShutdown"},
		"OnReboot: NotReady":           {open(onReboot).ready("False"), "[] cni:Open>Open(Birth)"},
		"OnReboot: no Ready condition": {open(onReboot).ready(""), "[] cni:Open>Open(Birth)"},
		"OnReboot: regression":         {open(onReboot).flag("cni", "no"), "[] cni:Open>Open(Birth)"},
		"OnReboot: boot ID unknown":    {open(onReboot).boot(""), "[] cni:Open>Open(Birth)"},
		"OnReboot: a signal without evidence that holds: no closing": {open(onReboot).boot("b").flag("cni", "holds"),
			"write [] cni:Open>Open(SignalsHold)"},
		"OnReboot: earlier pods do not hold": {open(onReboot, needsAgent).pod("cni", "x", true).boot("b"),
			"write [" + cniTaint + "] cni:Open>Closed(Rebooted)"},
		"OnReboot: gates that are not accepted do not close": {open(onReboot, refused).boot("b"), "[] cni:Open>Open(Birth)"},

		"NoExecute: unreachability evicts no pods": {open(onReboot, noExecute).ready("Unknown"), "[] cni:Open>Open(Birth)"},
		"NoExecute: reboot": {open(onReboot, noExecute).boot("b"),
			"write [cni.example/not-ready:NoExecute] cni:Open>Closed(Rebooted)"},

		"an unreachable node with a new boot": {open(onReboot).ready("Unknown").boot("b").zone(3, 3),
			"write [" + cniTaint + "] cni:Open>Closed(Rebooted) blocked=NodeSilent"},
		"OnReboot: records a boot that was unknown": {
			aNode(aGate("cni")).record("cni", "Open", func(r *Record) { r.Boot = "" }), "write [] cni:Open>Open(Birth)"},
	})
}

func TestPartition(t *testing.T) {
	long := func(nodes, silent int) *sim {
		return aNode(aGate("cni")).open("cni").ready("Unknown").zone(nodes, silent).after(time.Minute)
	}
	closes := "write [" + cniTaint + "] cni:Open>Closed(NodeSilent) blocked=NodeSilent"
	check(t, map[string]spec{
		"one of one":     {long(1, 1), closes},
		"two of two":     {long(2, 2), closes},
		"two of three":   {long(3, 2), "[] cni:Open>Open(Birth)"},
		"one of three":   {long(3, 1), closes},
		"55 of 100":      {long(100, 55), closes},
		"56 of 100":      {long(100, 56), "[] cni:Open>Open(Birth)"},
		"all of 100":     {long(100, 100), "[] cni:Open>Open(Birth)"},
		"unknown":        {long(0, 0), closes},
		"closed already": {aNode(aGate("cni")).closed("cni").ready("Unknown").zone(100, 100), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=NodeSilent"},
		"clocks differ":  {aNode(aGate("cni")).open("cni").ready("Unknown").zone(100, 1).after(-time.Hour), closes},
	})
}

// A partition becomes visible one node after another. An unreachable node closes only
// when the rest of the zone has been checked.
func TestSilenceSettles(t *testing.T) {
	s := aNode(aGate("cni")).open("cni").ready("Unknown").zone(100, 1)
	if d := s.run(t); d.Changes || !d.Recheck.Equal(epoch.Add(silenceSettles)) {
		t.Fatalf("immediately: %s, recheck %s", show(d), d.Recheck)
	}
	s.facts.SilentSince = s.now.Add(time.Millisecond)
	if d := s.run(t); d.Changes || !d.Recheck.Equal(epoch.Add(silenceSettles)) {
		t.Fatalf("observed after the decision began: %s, recheck %s", show(d), d.Recheck)
	}
	s.facts.SilentSince = s.now
	s.after(silenceSettles)
	if d := s.decide(); !d.Changes {
		t.Errorf("later, one node unreachable: %s", show(d))
	}
	if d := s.zone(100, 80).decide(); d.Changes {
		t.Errorf("later, a partition: %s", show(d))
	}
}

func TestUnreachableThenSameBoot(t *testing.T) {
	s := aNode(aGate("cni", waitingFor(agent("cni")))).open("cni").pod("cni", "x", true).ready("Unknown")
	s.run(t)
	s.after(time.Minute).ready("True")
	if got, want := show(s.run(t)), "write [] cni:Closed>Open(SignalsHold)"; got != want {
		t.Errorf("returned with the same boot and the same pod:\n got %s\nwant %s", got, want)
	}
}

func TestRegression(t *testing.T) {
	open := func(signals ...Signal) *sim {
		return aNode(aGate("cni", reclosing(onRegression), waitingFor(signals...))).open("cni")
	}
	type step struct {
		after  time.Duration
		x, y   string
		closed bool
	}
	cases := map[string][]step{
		"closes when the signal has not held for closeAfterSeconds": {
			{0, "no", "holds", false}, {119 * time.Second, "no", "holds", false}, {time.Second, "no", "holds", true}},
		"the wait ends when the signal holds again": {
			{0, "no", "holds", false}, {119 * time.Second, "holds", "holds", false}, {time.Second, "no", "holds", false},
			{2 * time.Minute, "no", "holds", true}},
		"Unknown in the middle neither stops nor closes": {
			{0, "no", "holds", false}, {time.Minute, "unknown", "holds", false}, {2 * time.Minute, "unknown", "holds", false},
			{0, "no", "holds", true}},
		"Unknown alone never closes": {
			{0, "unknown", "holds", false}, {time.Hour, "unknown", "unknown", false}},
		"a rollout has its own grace period": {
			{0, "rollout", "holds", false}, {599 * time.Second, "rollout", "holds", false}, {time.Second, "rollout", "holds", true}},
		"the last new pod of a rollout becomes ready in time": {
			{0, "rollout", "holds", false}, {5 * time.Minute, "not ready", "holds", false}, {299 * time.Second, "not ready", "holds", false},
			{time.Second, "not ready", "holds", true}},
		"the last new pod of a rollout, as one of several alternatives": {
			{0, "rollout", "holds", false}, {5 * time.Minute, "none", "holds", false}, {299 * time.Second, "none", "holds", false},
			{time.Second, "none", "holds", true}},
		"a pod that has been ready since its rollout is not excused": {
			{0, "rollout", "holds", false}, {time.Minute, "holds", "holds", false}, {0, "not ready", "holds", false},
			{2 * time.Minute, "not ready", "holds", true}},
		"the end of a rollout does not excuse other signals": {
			{0, "rollout", "holds", false}, {time.Minute, "not ready", "no", false}, {2 * time.Minute, "not ready", "no", true}},
		"a long rollout does not shorten the wait of another signal": {
			{0, "rollout", "holds", false}, {5 * time.Minute, "rollout", "no", false}, {119 * time.Second, "rollout", "no", false},
			{time.Second, "rollout", "no", true}},
		"the rollout of one daemon does not excuse another": {
			{0, "rollout", "holds", false}, {time.Minute, "holds", "not ready", false}, {2 * time.Minute, "holds", "not ready", true}},
		"the rollout of one daemon does not excuse another meanwhile": {
			{0, "rollout", "holds", false}, {time.Minute, "rollout", "not ready", false}, {2 * time.Minute, "rollout", "not ready", true}},
		"a signal that does not hold does not end the rollout of another": {
			{0, "holds", "no", false}, {10 * time.Second, "rollout", "no", false}, {40 * time.Second, "not ready", "no", false},
			{50 * time.Second, "not ready", "holds", false}, {509 * time.Second, "not ready", "holds", false},
			{time.Second, "not ready", "holds", true}},
		"a signal that is unknown keeps no wait of another": {
			{0, "no", "holds", false}, {20 * time.Second, "no", "unknown", false}, {10 * time.Second, "holds", "unknown", false},
			{time.Hour, "holds", "no", false}, {2 * time.Minute, "holds", "no", true}},
		"each signal has its own wait": {
			{0, "no", "holds", false}, {90 * time.Second, "no", "no", false}, {10 * time.Second, "holds", "no", false},
			{109 * time.Second, "holds", "no", false}, {time.Second, "holds", "no", true}},
	}
	for name, steps := range cases {
		t.Run(name, func(t *testing.T) {
			s := open(flagSignal("x"), flagSignal("y")).granting("cni")
			for i, st := range steps {
				d := s.after(st.after).flag("x", st.x).flag("y", st.y).run(t)
				if d.Verdicts[0].Closed() != st.closed {
					t.Fatalf("step %d: closed %v, want %v: %s", i, !st.closed, st.closed, show(d))
				}
			}
		})
	}
}

func TestRegressionWantsBudget(t *testing.T) {
	s := aNode(aGate("cni", reclosing(onRegression))).open("cni").flag("cni", "no")
	if d := s.run(t); !d.Recheck.Equal(epoch.Add(2 * time.Minute)) {
		t.Errorf("recheck %s, want the end of the wait", d.Recheck)
	}
	s.after(2 * time.Minute)
	check(t, map[string]spec{
		"after the wait, not granted": {s, "[] cni:Open>Open(Birth) wants=Budget"},
	})
	s.granting("cni")
	check(t, map[string]spec{
		"granted": {s, "write [" + cniTaint + "] cni:Open>Closed(Regression)"},
	})
}

// Kubernetes marks the pods of an unreachable node as not ready. That is not a
// regression: the wait begins when the node has returned.
func TestRegressionCountsFromTheReturn(t *testing.T) {
	s := aNode(aGate("cni", reclosing(onRegression), waitingFor(agent("cni")))).open("cni").granting("cni").zone(3, 3)
	s.pod("cni", "x", true).ready("Unknown").run(t)
	s.pod("cni", "x", false).after(time.Hour).run(t)
	if d := s.ready("True").run(t); d.Changes || !d.Recheck.Equal(s.now.Add(2*time.Minute)) {
		t.Errorf("on return: %s, recheck %s", show(d), d.Recheck)
	}
	if d := s.after(2 * time.Minute).run(t); !d.Verdicts[0].Closed() {
		t.Errorf("two minutes later: %s", show(d))
	}
	// The same pod opens the gate when it is ready again: a regression is not a reboot.
	if got, want := show(s.pod("cni", "x", true).after(time.Second).run(t)), "write [] cni:Closed>Open(SignalsHold)"; got != want {
		t.Errorf("ready again:\n got %s\nwant %s", got, want)
	}
}

// After a change of the policy from Never, an old reboot must not be treated as a new
// one.
func TestPolicyChanges(t *testing.T) {
	s := aNode(aGate("cni", reclosing(never))).open("cni").boot("b")
	s.run(t)
	s.gates = []Gate{aGate("cni")}
	check(t, map[string]spec{
		"Never, reboot, OnReboot": {s, "write [] cni:Open>Open(Birth)"},
	})
	unseen := aNode(aGate("cni", reclosing(never))).closed("cni").flag("cni", "holds")
	unseen.run(t)
	unseen.flag("cni", "no").boot("b").gates = []Gate{aGate("cni")}
	check(t, map[string]spec{
		"Never, an unobserved reboot, OnReboot": {unseen, "write [] cni:Open>Open(SignalsHold)"},
	})
	check(t, map[string]spec{
		"Never, OnReboot, reboot": {s.boot("c"), "write [" + cniTaint + "] cni:Open>Closed(Rebooted)"},
	})
}
