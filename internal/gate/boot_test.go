// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// TestReboots tests the table in boot.go.
func TestReboots(t *testing.T) {
	needsAgent := waitingFor(agent("cni"))
	node := func(options ...func(*Gate)) *sim {
		return aNode(aGate("cni", append(options, needsAgent)...)).open("cni")
	}
	const (
		stays   = "[] cni:Open>Open(Birth)"
		takesUp = "write [] cni:Open>Open(Birth)"
		asks    = "[] cni:Open>Open(Birth) wants=Budget"
		found   = "write [" + cniTaint + "] cni:Open>Closed(RebootedUnobserved)"
	)
	noExecute := tainting("cni.example/not-ready:NoExecute")
	longAgo := -2 * provenAfter
	check(t, map[string]spec{
		"observed: an earlier pod proves nothing": {node().pod("cni", "x", true).boot("b"),
			"write [" + cniTaint + "] cni:Open>Closed(Rebooted)"},
		"observed, almost a minute ago": {node().pod("cni", "x", true).sees("b", -provenAfter+1),
			"write [" + cniTaint + "] cni:Open>Closed(Rebooted)"},

		"unobserved, not ready":          {node().pod("cni", "x", false).bootUnobserved("b"), asks},
		"unobserved, not ready, granted": {node().pod("cni", "x", false).bootUnobserved("b").granting("cni"), found},
		"unobserved, no pod, granted":    {node().pods("cni").bootUnobserved("b").granting("cni"), found},
		"unobserved, pods not observed":  {node().bootUnobserved("b").granting("cni"), stays},
		"unobserved, ready":              {node().pod("cni", "x", true).bootUnobserved("b").granting("cni"), stays},
		"unobserved, ready, known for a minute": {node().pod("cni", "x", true).bootUnobserved("b").after(provenAfter).granting("cni"),
			takesUp},
		"unobserved, known for a minute, Ready for less": {
			node().pod("cni", "x", true).bootUnobserved("b").after(provenAfter - 1).ready("True").after(1).granting("cni"), stays},
		"unobserved, known for an hour, NotReady": {
			node().pod("cni", "x", true).bootUnobserved("b").after(time.Hour).ready("False").granting("cni"), stays},
		"unobserved, unreachable": {node().pod("cni", "x", false).bootUnobserved("b").ready("Unknown").granting("cni"),
			"write [" + cniTaint + "] cni:Open>Closed(NodeSilent) blocked=NodeSilent"},
		"unobserved, shutting down": {node().pod("cni", "x", false).bootUnobserved("b").shuttingDown(true).granting("cni"),
			"write [" + cniTaint + "] cni:Open>Closed(NodeShutdown) blocked=NodeShutdown"},

		"long ago, while the gate was paused: as if unobserved":     {node().pod("cni", "x", false).sees("b", longAgo), asks},
		"long ago, while the gate was paused, ready since":          {node().pod("cni", "x", true).sees("b", longAgo), takesUp},
		"long ago, while the gate was not accepted, granted":        {node().pod("cni", "x", false).sees("b", longAgo).granting("cni"), found},
		"NoExecute, observed":                                       {node(noExecute).pod("cni", "x", true).boot("b"), "write [cni.example/not-ready:NoExecute] cni:Open>Closed(Rebooted)"},
		"NoExecute, unobserved: evicts no pods":                     {node(noExecute).pod("cni", "x", false).bootUnobserved("b").granting("cni"), stays},
		"NoExecute, unobserved, known for a minute: evicts no pods": {node(noExecute).pod("cni", "x", false).bootUnobserved("b").after(provenAfter).granting("cni"), takesUp},
		"NoExecute, unobserved, recloseTaint is NoSchedule":         {node(noExecute, recloseTainting(cniTaint)).pod("cni", "x", false).bootUnobserved("b").granting("cni"), found},
		"Never: unobserved":                                         {node(reclosing(never)).pod("cni", "x", false).bootUnobserved("b").granting("cni"), takesUp},
	})
}

// A pod that is ready in a boot whose start was not observed becomes evidence once the
// kubelet would have corrected its status.
func TestClosedForAnUnobservedBoot(t *testing.T) {
	s := aNode(aGate("cni", waitingFor(agent("cni")))).open("cni").pod("cni", "x", false).bootUnobserved("b").granting("cni")
	s.run(t)
	if d := s.after(time.Second).pod("cni", "y", true).run(t); !d.Verdicts[0].Opened() {
		t.Errorf("a pod that became ready since: %s", show(d))
	}
}

// After a fleet rebooted while nodegate was down, its nodes wait for budget, and stop
// requesting it once their daemons are ready.
func TestUnobservedBootWaitsForBudget(t *testing.T) {
	s := aNode(aGate("cni", waitingFor(agent("cni")))).open("cni").pod("cni", "x", false).bootUnobserved("b")
	if d := s.run(t); d.Changes || d.Verdicts[0].Wants != WantBudget {
		t.Fatalf("does not wait for the budget: %s", show(d))
	}
	d := s.after(time.Second).pod("cni", "x", true).run(t)
	if d.Changes || d.Verdicts[0].Wants != "" {
		t.Errorf("still requests budget: %s", show(d))
	}
	if want := epoch.Add(provenAfter); !d.Recheck.Equal(want) {
		t.Errorf("recheck at %s, want %s", d.Recheck, want)
	}
}

// The digest taken when the node became unreachable is not sufficient if a boot since
// then was not observed: the pods of that boot predate the current one as well.
func TestDigestIsTwoBootsOld(t *testing.T) {
	s := aNode(aGate("cni", waitingFor(agent("cni")))).open("cni").pod("cni", "of boot a", true).ready("Unknown")
	s.run(t)
	s.pod("cni", "of boot b", true).bootUnobserved("c").after(time.Minute).ready("True")
	if d := s.run(t); d.Verdicts[0].After != v1alpha1.StateClosed {
		t.Errorf("opens because of a pod that may be from an unobserved boot: %s", show(d))
	}
	if d := s.pod("cni", "of boot c", true).after(time.Second).run(t); !d.Verdicts[0].Opened() {
		t.Errorf("a pod of the current boot: %s", show(d))
	}
}

// beforeBoots returns a closed and an open gate, on nodes that have not reported another boot yet.
func beforeBoots() map[string]*sim {
	return map[string]*sim{
		"closed while unreachable": aNode(aGate("cni", waitingFor(agent("cni")))).open("cni").pod("cni", "of boot a", true).ready("Unknown"),
		"open":                     aNode(aGate("cni", waitingFor(agent("cni")))).open("cni").pod("cni", "of boot a", false),
	}
}

// A response shows a boot before the watch does: the pod's status may be from a boot in between,
// or from the boot before. When the watch has caught up, pods count as after any other boot.
func TestBootAheadOfTheWatch(t *testing.T) {
	for name, s := range beforeBoots() {
		t.Run(name, func(t *testing.T) {
			s.run(t)
			s.boot("c").after(time.Second).ready("True").facts.Boot.Ahead = true
			if d := s.run(t); d.Verdicts[0].After != v1alpha1.StateClosed {
				t.Fatalf("is not closed in the new boot: %s", show(d))
			}
			s.pod("cni", "of boot b", true).after(time.Second)
			if d := s.run(t); d.Verdicts[0].After != v1alpha1.StateClosed {
				t.Errorf("opens because of a pod that may be of any boot: %s", show(d))
			}
			if d := s.run(t); d.Changes {
				t.Errorf("writes again: %s", show(d))
			}
			s.facts.Boot.Ahead, s.facts.Boot.Known = false, []Incarnation{somePod("pod", "of boot b", epoch).Incarnation}
			if d := s.run(t); d.Verdicts[0].After != v1alpha1.StateClosed {
				t.Errorf("opens because of a pod that was ready before the watch delivered the boot: %s", show(d))
			}
			if d := s.pod("cni", "of boot c", true).after(time.Second).run(t); !d.Verdicts[0].Opened() {
				t.Errorf("a pod of the current boot: %s", show(d))
			}
		})
	}
}

// nodegate restarts after it has closed a gate in a boot that was ahead of the watch. The record must
// show that pods of a boot in between are no evidence.
func TestRestartsAheadOfTheWatch(t *testing.T) {
	for name, s := range beforeBoots() {
		t.Run(name, func(t *testing.T) {
			s.run(t)
			s.boot("c").after(time.Second).ready("True").facts.Boot.Ahead = true
			s.run(t)
			s.pod("cni", "of boot b", true).after(time.Second).facts.Boot = Boot{Seen: s.now}
			if d := s.run(t); d.Verdicts[0].After != v1alpha1.StateClosed {
				t.Errorf("opens because of a pod that may be of any boot: %s", show(d))
			}
			if d := s.after(provenAfter).run(t); !d.Verdicts[0].Opened() {
				t.Errorf("does not open a minute later: %s", show(d))
			}
		})
	}
}

// Another replica closed the gate in the new boot, and took a digest. This replica knows the boot
// only from a response, and its watch may still deliver a status of a boot in between.
func TestAnotherReplicaClosedAheadOfTheWatch(t *testing.T) {
	s := aNode(aGate("cni", waitingFor(agent("cni")))).open("cni").pod("cni", "of boot a", false)
	s.boot("c").after(time.Second).ready("True").run(t)
	s.facts.Boot.Ahead = true
	s.pod("cni", "of boot b", true).after(time.Second)
	if d := s.run(t); d.Verdicts[0].After != v1alpha1.StateClosed {
		t.Errorf("opens because of a pod that may be of any boot: %s", show(d))
	}
	s.facts.Boot.Ahead = false
	if d := s.pod("cni", "of boot c", true).after(time.Second).run(t); !d.Verdicts[0].Opened() {
		t.Errorf("a pod of the current boot: %s", show(d))
	}
}

// A boot whose start was not observed is not proved by a shutdown that is announced and
// cancelled, nor by unreachability, before the kubelet has corrected the status of the
// pod.
func TestUnprovedBoot(t *testing.T) {
	for _, effect := range []string{"NoSchedule", "NoExecute"} {
		t.Run(effect, func(t *testing.T) {
			s := aNode(aGate("cni", waitingFor(agent("cni")), tainting("cni.example/not-ready:"+effect))).open("cni").pod("cni", "of boot a", true)
			s.bootUnobserved("b").run(t)
			if d := s.shuttingDown(true).run(t); !d.Verdicts[0].Closed() {
				t.Fatalf("does not close: %s", show(d))
			}
			if d := s.after(time.Second).shuttingDown(false).run(t); d.Verdicts[0].After != v1alpha1.StateClosed {
				t.Errorf("opens because of a pod that is known only from before the boot: %s", show(d))
			}
			if d := s.after(provenAfter).run(t); !d.Verdicts[0].Opened() {
				t.Errorf("a minute later: %s", show(d))
			}
		})
	}
}

// The record of a closeWhen gate contains nothing about pods. If the gate is changed to
// openWhen just after a reboot, it does not accept pods that may be from before the
// reboot.
func TestCloseWhenGateChangedToOpenWhen(t *testing.T) {
	s := aNode(aGate("cni", waitingFor(agent("cni")))).closed("cni").pod("cni", "x", true).bootUnobserved("b")
	s.record("cni", "Closed", func(r *Record) { r.Reason, r.Boot, r.Since = v1alpha1.ReasonSignalsHold, "b", epoch })
	if d := s.after(time.Second).run(t); d.Verdicts[0].After != v1alpha1.StateClosed {
		t.Errorf("opens because of a pod that may be from before the boot: %s", show(d))
	}
	if d := s.after(provenAfter).run(t); !d.Verdicts[0].Opened() {
		t.Errorf("a minute later: %s", show(d))
	}
}

// A gate that was closed under the budget still counts against it after an unobserved
// boot, but not after an observed one, for which any node may close.
func TestBudgetAfterAReboot(t *testing.T) {
	regressed := func() *sim {
		return aNode(aGate("cni", reclosing(onRegression))).closed("cni").record("cni", "Closed", func(r *Record) { r.Reason = v1alpha1.ReasonRegression })
	}
	check(t, map[string]spec{
		"observed":                    {regressed().boot("b"), "write [" + cniTaint + "] cni:Closed>Closed(Rebooted)"},
		"unobserved":                  {regressed().bootUnobserved("b"), "write [" + cniTaint + "] cni:Closed>Closed(RebootedUnobserved)"},
		"unobserved, closed at birth": {aNode(aGate("cni")).closed("cni").bootUnobserved("b"), "write [" + cniTaint + "] cni:Closed>Closed(Rebooted)"},
	})
}

// Contention before a reboot does not affect the time after it.
func TestContentionEndsWithTheBoot(t *testing.T) {
	s := aNode(aGate("cni")).closed("cni").record("cni", "Closed", func(r *Record) { r.Fought, r.FoughtAt = 9, epoch.Add(-time.Minute) })
	d := s.untaint(cniTaint).boot("b").run(t)
	if got := taintTexts(d.Taints); got != "["+cniTaint+"]" {
		t.Errorf("taints %s: %s", got, show(d))
	}
}

// A gate has closed on an unreachable node, and its signals are edited before the node boots. The digest
// of the former signals' pods says nothing about the pods of the new ones.
func TestSignalsAreEditedBeforeABoot(t *testing.T) {
	ready := func(containers string) Pod { return somePod("b", containers, epoch.Add(-time.Hour)) }
	s := aNode(aGate("cni", waitingFor(agent("a")))).open("cni").pod("a", "x", true).pods("b", ready("x")).ready("Unknown")
	s.run(t)
	s.after(time.Minute).gates = []Gate{aGate("cni", waitingFor(agent("b")), func(g *Gate) { g.Edited = s.now })}
	s.run(t)
	if d := s.after(time.Minute).boot("b").ready("False").run(t); d.Verdicts[0].After != v1alpha1.StateClosed {
		t.Errorf("it opened because of a pod of the former boot: %s", show(d))
	}
	if d := s.pods("b", ready("y")).run(t); d.Verdicts[0].After != v1alpha1.StateOpen {
		t.Errorf("the pod has started in this boot: %s", show(d))
	}
}

// A gate takes over the record of a deleted one. As long as the node has not been Ready for a minute,
// nothing proves that the pods of its signals have become ready in this boot.
func TestRenamedAfterABoot(t *testing.T) {
	pod := somePod("b", "x", epoch.Add(-time.Hour))
	s := aNode(aGate("old", waitingFor(agent("a")), tainting(cniTaint))).open("old").pod("a", "x", true).boot("b").ready("False")
	s.run(t)
	s.after(10*time.Minute).pods("b", pod).gates = []Gate{aGate("new", waitingFor(agent("b")), tainting(cniTaint))}
	if d := s.run(t); len(s.facts.Node.Taints) != 1 {
		t.Errorf("it opened because of a pod of the former boot: %s", show(d))
	}
	if d := s.ready("True").after(provenAfter).run(t); len(s.facts.Node.Taints) != 0 {
		t.Errorf("it stays closed: %s", show(d))
	}
}

// A gate is deleted and created again, with other signals, while a node cannot be written, or while no
// controller observes it. The digest in the node's record lists the pods of the deleted gate's signals.
func TestCreatedAgainAfterABoot(t *testing.T) {
	pod := somePod("b", "x", epoch.Add(-time.Hour))
	s := aNode(aGate("cni", waitingFor(agent("a")))).open("cni").pod("a", "x", true).boot("b").ready("False")
	s.run(t)
	s.after(10*time.Minute).pods("b", pod).gates = []Gate{aGate("cni", waitingFor(agent("b")), func(g *Gate) { g.Created = s.now })}
	if d := s.run(t); d.Verdicts[0].After != v1alpha1.StateClosed {
		t.Errorf("it opened because of a pod of the former boot: %s", show(d))
	}
	if d := s.ready("True").after(provenAfter).run(t); d.Verdicts[0].After != v1alpha1.StateOpen {
		t.Errorf("it stays closed: %s", show(d))
	}
}
