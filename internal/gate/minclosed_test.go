// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func closedForAtLeast(d time.Duration) func(*Gate) { return func(g *Gate) { g.MinClosed = d } }

// The signals would open the gate, which must stay closed for at least ten minutes.
func TestMinClosed(t *testing.T) {
	const hold = 10 * time.Minute
	g := aGate("g", closedForAtLeast(hold))
	closedFor := func(d time.Duration, reason v1alpha1.Reason, change ...func(*Record)) *sim {
		s := aNode(g).closed("g").flag("g", "holds")
		return s.record("g", v1alpha1.StateClosed, append([]func(*Record){func(r *Record) {
			r.Since, r.Reason = s.now.Add(-d), reason
		}}, change...)...)
	}
	inBoot := func(boot string) func(*Record) { return func(r *Record) { r.Boot = boot } }
	for name, c := range map[string]struct {
		node *sim
		// left is how long it stays closed; zero if it opens.
		left time.Duration
	}{
		"closed for long enough":              {closedFor(hold, v1alpha1.ReasonRegression), 0},
		"not quite":                           {closedFor(hold-time.Millisecond, v1alpha1.ReasonRegression), time.Millisecond},
		"by regression":                       {closedFor(time.Minute, v1alpha1.ReasonRegression), 9 * time.Minute},
		"as an existing node":                 {closedFor(time.Minute, v1alpha1.ReasonExisting), 9 * time.Minute},
		"by reboot":                           {closedFor(time.Minute, v1alpha1.ReasonRebooted), 9 * time.Minute},
		"a reboot restarts it":                {closedFor(time.Hour, v1alpha1.ReasonRebooted, inBoot("z")), hold},
		"reachable again in the same boot":    {closedFor(time.Second, v1alpha1.ReasonNodeSilent), 0},
		"back from shutdown in the same boot": {closedFor(time.Second, v1alpha1.ReasonNodeShutdown), 0},
		"reachable again in a new boot":       {closedFor(time.Hour, v1alpha1.ReasonNodeSilent, inBoot("z")), hold},
		"adopted: the time is unknown":        {closedFor(time.Second, v1alpha1.ReasonAdopted), 0},
		"at birth, by the API server":         {aNode(g).age(time.Minute).flag("g", "holds").raw("g", `{"state":"Closed","reason":"Birth","boot":"a","taint":"g.example/not-ready:NoSchedule"}`).taint("g.example/not-ready:NoSchedule"), 9 * time.Minute},
		"at birth, by the controller":         {aNode(g).age(time.Minute).flag("g", "holds"), 9 * time.Minute},
		"born open, and closed late":          {aNode(aGate("g", closedForAtLeast(time.Second))).age(time.Minute).flag("g", "holds"), 0},
		"registered with the taint":           {aNode(g).age(time.Minute).flag("g", "holds").taint("g.example/not-ready:NoSchedule"), 9 * time.Minute},
		"existing, with the taint":            {aNode(g).flag("g", "holds").taint("g.example/not-ready:NoSchedule"), 0},
		"existing, adopted open":              {aNode(aGate("g", closedForAtLeast(hold), existing("Adopt"))).flag("g", "holds").granting("g"), 0},
		"no longer selected":                  {closedFor(0, v1alpha1.ReasonBirth), 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.node
			if name == "no longer selected" {
				s.gates = []Gate{aGate("g", closedForAtLeast(hold), selecting("pool=gpu"))}
				s.left("g")
			}
			d := s.run(t)
			v := d.Verdicts[0]
			if c.left == 0 {
				if v.After == v1alpha1.StateClosed || v.Blocked != "" {
					t.Fatalf("it does not open: %s", show(d))
				}
				return
			}
			// Whatever is written in the meantime, another controller that knows only
			// the node comes to the same result.
			for _, passed := range []time.Duration{0, c.left / 2, c.left - 1} {
				again := *s
				again.forget()
				d, v = again.after(passed).decide(), again.decide().Verdicts[0]
				if v.After != v1alpha1.StateClosed || v.Blocked != v1alpha1.ReadingMinClosed || !d.Recheck.Equal(s.now.Add(c.left)) {
					t.Fatalf("after %s: %s, recheck in %s, want in %s", passed, show(d), d.Recheck.Sub(s.now), c.left)
				}
			}
			if v = s.after(c.left).run(t).Verdicts[0]; v.After != v1alpha1.StateOpen {
				t.Fatalf("it does not open when the time has passed: %s", showVerdict(&v))
			}
		})
	}
}

// While the signals do not hold, the verdict reports them instead.
func TestMinClosedBlocksOnlyWhatWouldOpen(t *testing.T) {
	s := aNode(aGate("g", closedForAtLeast(time.Hour))).age(time.Minute).closed("g")
	if d := s.decide(); d.Verdicts[0].Blocked != "" || !d.Recheck.IsZero() {
		t.Errorf("not ready: %s, recheck %s", show(d), d.Recheck)
	}
}

// A closeWhen gate stays closed for the minimum time although its condition has
// cleared, unless it did not add the taint itself.
func TestMinClosedFollowing(t *testing.T) {
	g := follower("g", closedForAtLeast(time.Minute))
	s := aNode(g).flag("g", "holds").granting("g")
	s.run(t)
	s.flag("g", "no").after(time.Minute - 1)
	if d := s.run(t); d.Verdicts[0].Blocked != v1alpha1.ReadingMinClosed || !d.Recheck.Equal(s.now.Add(1)) || d.Verdicts[0].After != v1alpha1.StateClosed {
		t.Fatalf("too soon: %s, recheck %s", show(d), d.Recheck)
	}
	if d := s.after(1).run(t); d.Verdicts[0].After != v1alpha1.StateOpen || len(d.Taints) > 0 {
		t.Fatalf("in time: %s", show(d))
	}
	adopted := aNode(g).flag("g", "unknown").taint("g.example/not-ready:NoSchedule")
	adopted.run(t)
	if d := adopted.flag("g", "no").run(t); d.Verdicts[0].After != v1alpha1.StateOpen {
		t.Fatalf("adopted: %s", show(d))
	}
}
