// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// TestMembership tests the table in membership.go.
func TestMembership(t *testing.T) {
	born := func(options ...func(*Gate)) *sim { return aNode(aGate("cni", options...)).age(time.Minute) }
	older := func(options ...func(*Gate)) *sim {
		return aNode(aGate("cni", append(options, createdAgo(time.Hour))...))
	}
	for name, c := range map[string]struct {
		node   *sim
		member bool
		why    v1alpha1.NonMemberReason
	}{
		"new":                                 {born(), true, ""},
		"new, signals hold":                   {born().flag("cni", "holds"), true, ""},
		"carries the taint":                   {older().taint(cniTaint), true, ""},
		"older than the gate":                 {older(), false, v1alpha1.NonMemberCreatedBeforeGate},
		"no longer new":                       {born().age(newFor + 1), false, v1alpha1.NonMemberNotClosedAtBirth},
		"exactly as old as a new node may be": {born().age(newFor), true, ""},
		"the gate is not accepted":            {born(refused), false, v1alpha1.NonMemberNotAccepted},
		"the gate is paused":                  {born(inPause), false, v1alpha1.NonMemberPaused},

		"Adopt: holds":                {older(existing("Adopt")).flag("cni", "holds"), false, v1alpha1.NonMemberWaitsForTurn},
		"Adopt: holds, granted":       {older(existing("Adopt")).flag("cni", "holds").granting("cni"), true, ""},
		"Adopt: does not hold":        {older(existing("Adopt")).granting("cni"), false, v1alpha1.NonMemberSignalsDoNotHold},
		"Adopt: unknown":              {older(existing("Adopt")).flag("cni", "unknown").granting("cni"), false, v1alpha1.NonMemberSignalsUnknown},
		"Adopt: unreachable":          {older(existing("Adopt")).flag("cni", "holds").ready("Unknown").granting("cni"), false, v1alpha1.NonMemberBlocked},
		"Close: does not hold":        {older(existing("Close")), false, v1alpha1.NonMemberWaitsForBudget},
		"Close: granted":              {older(existing("Close")).granting("cni"), true, ""},
		"CloseIfIdle: pods not known": {older(existing("CloseIfIdle")), false, v1alpha1.NonMemberPodsNotListed},
		"CloseIfIdle: not idle":       {older(existing("CloseIfIdle")).listed(workload), false, v1alpha1.NonMemberNotIdle},
		"CloseIfIdle: idle":           {older(existing("CloseIfIdle")).listed(daemonPod), false, v1alpha1.NonMemberWaitsForBudget},
		"CloseIfIdle: idle, granted":  {older(existing("CloseIfIdle")).listed(daemonPod).granting("cni"), true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := c.node.decide()
			v := d.Verdict("cni")
			if member := v.After != ""; member != c.member || v.NonMember != c.why {
				t.Errorf("member: %v, not a member because %q; want %v, %q: %s", member, v.NonMember, c.member, c.why, showVerdict(v))
			}
		})
	}
}

// A node ceases to be a member when the gate has not selected it for a while.
func TestLeavingIsDelayed(t *testing.T) {
	gpu := aGate("cni", selecting("pool=gpu"), createdAgo(time.Hour))
	node := func() *sim { return aNode(gpu).label("pool", "gpu") }
	for name, c := range map[string]struct {
		node *sim
		// held is the decision before the node ceases to be a member, left the decision
		// after that.
		held, left string
	}{
		"closed": {node().closed("cni"),
			"[" + cniTaint + "] cni:Closed>Closed(Birth)", "write [] cni:Closed>-(NotSelected)"},
		"open": {node().open("cni"),
			"[] cni:Open>Open(Birth)", "write [] cni:Open>-(NotSelected)"},
		"closed, signals hold": {node().closed("cni").flag("cni", "holds"),
			"[" + cniTaint + "] cni:Closed>Closed(Birth)", "write [] cni:Closed>-(NotSelected)"},
		"closed, taint removed by another writer": {node().record("cni", "Closed"),
			"[] cni:Closed>Closed(Birth)", "write [] cni:Closed>-(NotSelected)"},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.node.label("pool", "cpu")
			for _, at := range []time.Duration{0, LeavesAfter - 1} {
				s.now = epoch.Add(at)
				d := s.run(t)
				if got := show(d); got != c.held {
					t.Errorf("after %s: %s, want %s", at, got, c.held)
				}
				if leaves := epoch.Add(LeavesAfter); !d.Recheck.Equal(leaves) || !d.Verdicts[0].Leaves.Equal(leaves) {
					t.Errorf("after %s: recheck at %s, leaves at %s; want %s", at, d.Recheck, d.Verdicts[0].Leaves, leaves)
				}
			}
			s.now = epoch.Add(LeavesAfter)
			if got := show(s.run(t)); got != c.left {
				t.Errorf("left: %s, want %s", got, c.left)
			}
		})
	}
}

// A node that is selected again in time keeps its state, and the delay starts anew next
// time.
func TestSelectedAgain(t *testing.T) {
	s := aNode(aGate("cni", selecting("pool=gpu"), createdAgo(time.Hour))).label("pool", "gpu").closed("cni")
	for range 3 {
		s.label("pool", "cpu").run(t)
		s.after(LeavesAfter - time.Second).run(t)
		if got, want := show(s.label("pool", "gpu").run(t)), "["+cniTaint+"] cni:Closed>Closed(Birth)"; got != want {
			t.Fatalf("back: %s, want %s", got, want)
		}
		s.after(2 * time.Second)
	}
}

// LeavesAfter is longer than the restart of a pod that sets labels, but not much longer: users who
// relabel a node wait for it (docs/decisions/0043).
func TestMembersLeaveAfter30Seconds(t *testing.T) {
	s := aNode(aGate("cni", selecting("pool=gpu"), createdAgo(time.Hour))).label("pool", "gpu").closed("cni").label("pool", "cpu")
	s.facts.LeftSince = map[string]time.Time{"cni": s.now}
	for _, test := range []struct {
		after time.Duration
		want  string
	}{{0, v1alpha1.StateClosed}, {30*time.Second - 1, v1alpha1.StateClosed}, {30 * time.Second, ""}} {
		s.now = epoch.Add(test.after)
		d := s.decide()
		if got := d.Verdict("cni").After; got != test.want {
			t.Errorf("%s after the gate has ceased to select the node, it is %q, want %q", test.after, got, test.want)
		}
	}
}

// The opt-out label takes effect immediately.
func TestLeavingByOptOut(t *testing.T) {
	s := aNode(aGate("cni")).closed("cni").label(v1alpha1.OptOutLabel, v1alpha1.OptOutValue)
	if got, want := show(s.run(t)), "write [] cni:Closed>-(OptedOut)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
