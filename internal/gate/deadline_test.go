// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func dueBy(podMissing, ready time.Duration, open bool) func(*Gate) {
	return func(g *Gate) { g.Deadline = Deadline{PodMissing: podMissing, Ready: ready, Open: open} }
}

const (
	shutdown = v1alpha1.ReasonNodeShutdown
	lapsed   = v1alpha1.ReasonDeadlinePassed
)

// A controller starts after a deadline has passed. The deadline is reported when it is
// known what the gate waits for, or when that cannot be read.
func TestDeadlineWhileLoading(t *testing.T) {
	start := func(signal Signal) *sim {
		g := aGate("g", waitingFor(signal), dueBy(0, time.Minute, false))
		s := aNode(g).ready("True").taint("g.example/not-ready:NoSchedule").record("g", v1alpha1.StateClosed)
		s.facts.Loading = true
		return s
	}
	s := start(unseenSignal{})
	d := s.run(t)
	if v := d.Verdicts[0]; v.Overdue || v.PassedDeadline || mustParse(t, s, "g").Overdue || !d.Recheck.Equal(epoch.Add(loadingRecheck)) {
		t.Fatalf("while loading: %s", show(d))
	}
	s.facts.Loading = false
	if v := s.run(t).Verdicts[0]; !v.PassedDeadline {
		t.Errorf("the pods cannot be read: %+v", v)
	}
	s = start(agent("g")).pods("g")
	if v := s.run(t).Verdicts[0]; !v.PassedDeadline {
		t.Errorf("something else is being read: %+v", v)
	}
}

// A gate was closed an hour ago. When does its deadline pass?
func TestDeadlinePasses(t *testing.T) {
	waiting := waitingFor(agent("g"))
	ready := func(limit time.Duration) Gate { return aGate("g", waiting, dueBy(0, limit, false)) }
	podMissing := func(limit time.Duration) Gate { return aGate("g", waiting, dueBy(limit, 0, false)) }
	closed := func(g Gate, change ...func(*Record)) *sim {
		s := aNode(g).pods("g").ready("True").taint("g.example/not-ready:NoSchedule")
		s.facts.Node.Conditions[0].Transition = epoch.Add(-day)
		return s.record("g", v1alpha1.StateClosed, append([]func(*Record){func(r *Record) { r.Reason = v1alpha1.ReasonRebooted }}, change...)...)
	}
	silentFor := func(seconds int64) func(*Record) { return func(r *Record) { r.SilentSeconds = seconds } }
	silentSince := func(d time.Duration) func(*Record) {
		return func(r *Record) { r.SilentSince = epoch.Add(-d) }
	}
	back := func(s *sim, ago time.Duration) *sim {
		s.facts.Node.Conditions[0].Transition = epoch.Add(-ago)
		return s
	}
	for name, c := range map[string]struct {
		node *sim
		// in is the time until it passes. Zero means now, negative means never without
		// a change of the facts.
		in time.Duration
	}{
		"exactly at the limit":                       {closed(ready(time.Hour)), 0},
		"not quite":                                  {closed(ready(time.Hour + 1)), 1},
		"regardless of the pods":                     {closed(ready(time.Hour)).pod("g", "a", false), 0},
		"the pod is missing":                         {closed(podMissing(time.Hour)), 0},
		"the pod is missing, not quite":              {closed(podMissing(61 * time.Minute)), time.Minute},
		"the pod exists":                             {closed(podMissing(time.Minute)).pod("g", "a", false), -1},
		"the first of two limits":                    {closed(aGate("g", waiting, dueBy(65*time.Minute, 70*time.Minute, false))), 5 * time.Minute},
		"the second one, because the pod exists":     {closed(aGate("g", waiting, dueBy(time.Minute, 70*time.Minute, false))).pod("g", "a", false), 10 * time.Minute},
		"unreachable time does not count":            {closed(ready(time.Hour), silentFor(600)), 10 * time.Minute},
		"while the node is unreachable":              {closed(ready(time.Hour), silentSince(1)).ready("Unknown"), -1},
		"it had passed before":                       {closed(ready(50*time.Minute), silentSince(10*time.Minute)).ready("Unknown"), 0},
		"reachable again":                            {back(closed(ready(time.Hour), silentSince(10*time.Minute)), 4*time.Minute), 6 * time.Minute},
		"reachable again, by a clock that is ahead":  {back(closed(ready(time.Hour), silentSince(10*time.Minute)), -time.Hour), 10 * time.Minute},
		"reachable again, by a clock that is behind": {back(closed(ready(time.Hour), silentSince(10*time.Minute)), 5*time.Hour), 0},
		"a new boot":                                 {closed(ready(time.Hour), func(r *Record) { r.Boot, r.Overdue, r.SilentSeconds = "z", true, 600 }), time.Hour},
		"closed for unreachability, long ago":        {closed(ready(time.Hour), func(r *Record) { r.Reason = v1alpha1.ReasonNodeSilent }), 0},
		"closed by the API server at birth":          {closed(ready(25*time.Hour), func(r *Record) { r.Reason, r.Since = v1alpha1.ReasonBirth, time.Time{} }), time.Hour},
		"closed late by the controller at birth":     {closed(ready(2*time.Hour), func(r *Record) { r.Reason = v1alpha1.ReasonBirth }).age(65 * time.Minute), time.Hour},
		"overdue, even if the pod exists now":        {closed(podMissing(time.Minute), func(r *Record) { r.Overdue = true }).pod("g", "a", false), 0},
		"overdue, then extended":                     {closed(ready(2*time.Hour), func(r *Record) { r.Overdue = true }), time.Hour},
		"unreachable, overdue, then extended":        {closed(ready(2*time.Hour), func(r *Record) { r.Reason, r.Overdue = v1alpha1.ReasonNodeSilent, true }), time.Hour},
		"the deadline is removed":                    {closed(aGate("g", waiting), func(r *Record) { r.Overdue, r.SilentSeconds = true, 5 }), -1},
		"the signals hold, but not for long":         {closed(aGate("g", waiting, soaking(time.Hour), dueBy(0, time.Hour, false))).pod("g", "a", true), 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.node
			for _, restarted := range []bool{false, true} {
				if restarted {
					s.forget()
				}
				d := s.run(t)
				v, r := d.Verdicts[0], mustParse(t, s, "g")
				if v.Overdue != (c.in == 0) || r.Overdue != v.Overdue || v.After != v1alpha1.StateClosed {
					t.Fatalf("%s, record %+v", show(d), r)
				}
				if v.PassedDeadline && restarted {
					t.Fatalf("reported again: %s", show(d))
				}
				if c.in > 0 && !d.Recheck.Equal(s.now.Add(c.in)) {
					t.Fatalf("%s, recheck in %s, want in %s", show(d), d.Recheck.Sub(s.now), c.in)
				}
			}
			if c.in > 0 {
				s.now = s.now.Add(c.in)
				if v := s.run(t).Verdicts[0]; !v.Overdue || !v.PassedDeadline {
					t.Fatalf("it does not pass in time: %s", showVerdict(&v))
				}
			}
		})
	}
}

func mustParse(t failer, s *sim, name string) Record {
	t.Helper()
	r, err := ParseRecord(s.facts.Node.Records[name])
	if err != nil {
		t.Fatalf("%v", err)
	}
	return r
}

// A gate opens by its deadline, and keeps the exception until its signals hold or the
// node reboots.
func TestDeadlineOpens(t *testing.T) {
	opens := func(o ...func(*Gate)) Gate {
		return aGate("g", append([]func(*Gate){dueBy(0, time.Hour, true)}, o...)...)
	}
	overdue := func(g Gate) *sim { return aNode(g).closed("g").ready("True") }
	byDeadline := func(g Gate) *sim {
		return aNode(g).ready("True").record("g", v1alpha1.StateOpen, func(r *Record) { r.Reason = lapsed })
	}
	carried := func(g Gate, reason v1alpha1.Reason, boot string) *sim {
		return aNode(g).closed("g").ready("True").record("g", v1alpha1.StateClosed, func(r *Record) {
			r.Reason, r.Since, r.Overdue, r.Boot = reason, epoch.Add(-time.Second), true, boot
		})
	}
	const taint = "[g.example/not-ready:NoSchedule] "
	check(t, map[string]spec{
		"at the deadline":                                 {overdue(opens()), "write [] g:Closed>Open(DeadlinePassed) passed"},
		"minClosed and openAfter do not delay it":         {overdue(opens(closedForAtLeast(day), soaking(day))).flag("g", "holds"), "write [] g:Closed>Open(SignalsHold) passed"},
		"the gate is not in force":                        {overdue(opens(refused)), "write [] g:Closed>Open(DeadlinePassed) passed"},
		"a signal is unknown":                             {overdue(opens()).flag("g", "unknown"), "write [] g:Closed>Open(DeadlinePassed) passed"},
		"not while a signal is unobserved":                {overdue(opens(waitingFor(unseenSignal{}))), "write " + taint + "g:Closed>Closed(Birth) overdue passed"},
		"not while the node is unreachable":               {overdue(opens()).ready("Unknown"), "write " + taint + "g:Closed>Closed(Birth) blocked=NodeSilent overdue passed"},
		"not while it shuts down":                         {overdue(opens()).shuttingDown(true), "write " + taint + "g:Closed>Closed(Birth) blocked=NodeShutdown overdue passed"},
		"not while it is being set up":                    {overdue(opens()).taint("karpenter.sh/unregistered:NoSchedule"), "write [g.example/not-ready:NoSchedule karpenter.sh/unregistered:NoSchedule] g:Closed>Closed(Birth) blocked=NodeSetup overdue passed"},
		"overdue before action Open was set":              {aNode(opens()).closed("g").record("g", v1alpha1.StateClosed, func(r *Record) { r.Overdue = true }), "write [] g:Closed>Open(DeadlinePassed) passed"},
		"by its signals, if they hold":                    {overdue(opens()).flag("g", "holds"), "write [] g:Closed>Open(SignalsHold)"},
		"selected when the node is older than the limit":  {aNode(opens(selecting("pool=gpu"), dueBy(0, 5*time.Minute, true))).age(9*time.Minute).label("pool", "gpu"), "write " + taint + "g:->Closed(Birth)"},
		"its signals do not close it":                     {byDeadline(opens(reclosing(onRegression))).granting("g").after(time.Hour), "[] g:Open>Open(DeadlinePassed)"},
		"its signals hold: the exception ends":            {byDeadline(opens(reclosing(onRegression))).flag("g", "holds"), "write [] g:Open>Open(SignalsHold)"},
		"its signals hold, policy Never":                  {byDeadline(opens(reclosing(never))).flag("g", "holds"), "write [] g:Open>Open(SignalsHold)"},
		"a new boot ends it":                              {byDeadline(opens()).boot("b"), "write " + taint + "g:Open>Closed(Rebooted)"},
		"unreachability closes it temporarily":            {byDeadline(opens()).ready("Unknown"), "write " + taint + "g:Open>Closed(NodeSilent) blocked=NodeSilent overdue"},
		"a shutdown closes it temporarily":                {byDeadline(opens()).shuttingDown(true), "write " + taint + "g:Open>Closed(NodeShutdown) blocked=NodeShutdown overdue"},
		"it is open again in the same boot":               {carried(opens(), v1alpha1.ReasonNodeSilent, "a"), "write [] g:Closed>Open(DeadlinePassed)"},
		"it is open again when the shutdown is cancelled": {carried(opens(), shutdown, "a"), "write [] g:Closed>Open(DeadlinePassed)"},
		"it is not open again in another boot":            {carried(opens(), shutdown, "z"), "write " + taint + "g:Closed>Closed(Rebooted)"},
		"it opened, and then its action was changed":      {carried(aGate("g", dueBy(0, time.Hour, false)), v1alpha1.ReasonNodeSilent, "a"), "write " + taint + "g:Closed>Closed(NodeSilent)"},
		"action KeepClosed":                               {overdue(aGate("g", dueBy(0, time.Hour, false))), "write " + taint + "g:Closed>Closed(Birth) overdue passed"},
	})
}

// unseenSignal is a signal that has not been observed.
type unseenSignal struct{ flagSignal }

func (unseenSignal) Read(Input) Reading { return Reading{Reason: v1alpha1.ReadingNotObserved} }

// The exception for a gate that its deadline opened does not end because of a pod from
// before the boot.
func TestDeadlineExceptionNeedsFreshEvidence(t *testing.T) {
	g := aGate("g", waitingFor(agent("g")), dueBy(0, 10*time.Second, true))
	s := aNode(g).open("g").pod("g", "a", true).ready("True").boot("b")
	s.run(t)
	if v := s.after(10 * time.Second).run(t).Verdicts[0]; v.Reason != lapsed {
		t.Fatal(showVerdict(&v))
	}
	if v := s.after(time.Second).run(t).Verdicts[0]; v.Reason != lapsed {
		t.Fatalf("on stale evidence: %s", showVerdict(&v))
	}
	if v := s.pod("g", "b", true).run(t).Verdicts[0]; v.Reason != v1alpha1.ReasonSignalsHold || mustParse(t, s, "g").Digest != "" {
		t.Fatalf("on fresh: %s", showVerdict(&v))
	}
}

// A closure is reported only if a gate opens because of its signals.
func TestDeadlineReportsNoClosure(t *testing.T) {
	s := aNode(aGate("g", dueBy(0, time.Second, true))).closed("g")
	if v := s.run(t).Verdicts[0]; v.Closure != nil || v.ClosedSince.IsZero() {
		t.Errorf("closure %v, closed since %s", v.Closure, v.ClosedSince)
	}
}

// The result of Birth does not depend on the gate's deadline, because a policy has no
// clock.
func TestDeadlineDoesNotRunBeforeBirth(t *testing.T) {
	n := aNode().ready("Unknown").facts.Node
	with, without := Birth([]Gate{aGate("g", dueBy(1, 1, true))}, n), Birth([]Gate{aGate("g")}, n)
	if with.Records["g"] != without.Records["g"] || with.Records["g"] == "" {
		t.Errorf("with a deadline %s, without %s", with.Records["g"], without.Records["g"])
	}
}
