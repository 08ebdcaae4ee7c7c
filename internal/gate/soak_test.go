// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func soaking(d time.Duration) func(*Gate) { return func(g *Gate) { g.OpenAfter = d } }

// timedSignal is a flag for which the API reports the time of its last change.
type timedSignal struct{ flagSignal }

func (s timedSignal) Read(in Input) Reading {
	r := s.flagSignal.Read(in)
	if at, err := time.Parse(time.RFC3339, in.Node.Annotations[string(s.flagSignal)]); err == nil {
		r.Since = at
	}
	return r
}

// since sets a timed flag with a time of the node's clock.
func (s *sim) since(name, value string, at time.Time) *sim {
	s.facts.Node.Annotations = map[string]string{name: at.Format(time.RFC3339)}
	return s.flag(name, value)
}

const soak = 10 * time.Minute

// A closed gate opens when its signals have held for ten minutes.
func TestSoak(t *testing.T) {
	level, timed := aGate("g", soaking(soak)), aGate("g", soaking(soak), waitingFor(timedSignal{"g"}))
	closed := func(g Gate, reason v1alpha1.Reason, change ...func(*Record)) *sim {
		s := aNode(g).closed("g")
		return s.record("g", v1alpha1.StateClosed, append([]func(*Record){func(r *Record) { r.Reason = reason }}, change...)...)
	}
	ago := func(s *sim, d time.Duration) *sim { return s.since("g", "holds", s.now.Add(-d)) }
	regression, rebooted := v1alpha1.ReasonRegression, v1alpha1.ReasonRebooted
	since := func(d time.Duration) func(*Record) { return func(r *Record) { r.Since = epoch.Add(-d) } }
	const skew = HeartbeatSkew
	for name, c := range map[string]struct {
		node *sim
		// left is how long it stays closed; zero if it opens.
		left time.Duration
	}{
		"no time from the API: from now":                            {closed(level, regression).flag("g", "holds"), soak},
		"the API's time, with an allowance for clock skew":          {ago(closed(timed, regression), 4*time.Minute), 6*time.Minute + skew},
		"long enough by the API's time":                             {ago(closed(timed, regression), soak+skew), 0},
		"not quite":                                                 {ago(closed(timed, regression), soak+skew-time.Second), time.Second},
		"just now by the API's time: from now":                      {ago(closed(timed, regression), 0), soak},
		"the node's clock is an hour ahead: from now":               {ago(closed(timed, regression), -time.Hour), soak},
		"one signal without a time: from now":                       {ago(closed(aGate("g", soaking(soak), waitingFor(timedSignal{"g"}, flagSignal("g"))), regression), time.Hour), soak},
		"the start was observed, although the node's clock is slow": {ago(seen(t, closed(timed, regression)), 5*time.Minute), soak},
		"a new boot: not before it was observed":                    {ago(closed(timed, rebooted, since(2*time.Minute)), time.Hour), 8 * time.Minute},
		"a new boot now":                                            {ago(closed(timed, regression, func(r *Record) { r.Boot = "z" }), time.Hour), soak},
		"reachable again in the same boot":                          {closed(level, v1alpha1.ReasonNodeSilent).flag("g", "holds"), 0},
		"back from shutdown in the same boot":                       {closed(level, v1alpha1.ReasonNodeShutdown).flag("g", "holds"), 0},
		"reachable again in another boot":                           {closed(level, v1alpha1.ReasonNodeSilent, func(r *Record) { r.Boot = "z" }).flag("g", "holds"), soak},
		"not before the Node's creation":                            {ago(aNode(timed).age(2*time.Minute), time.Hour), 8 * time.Minute},
		"an existing node becomes a member open":                    {aNode(aGate("g", soaking(soak), existing("Adopt"))).flag("g", "holds").granting("g"), 0},
		"no longer selected":                                        {closed(aGate("g", soaking(soak), selecting("pool=gpu")), regression).flag("g", "holds").left("g"), 0},
		"with minClosedSeconds, which ends earlier":                 {closed(aGate("g", soaking(soak), closedForAtLeast(65*time.Minute)), regression).flag("g", "holds"), soak},
		"with minClosedSeconds, which ends later":                   {ago(closed(aGate("g", soaking(time.Minute), closedForAtLeast(65*time.Minute), waitingFor(timedSignal{"g"})), regression), time.Hour), 5 * time.Minute},
		"closeWhen: no time in the API: from now":                   {closed(follower("g", soaking(soak)), v1alpha1.ReasonSignalsHold).flag("g", "no"), soak},
		"closeWhen: cleared a while ago, by the API":                {closed(follower("g", soaking(soak), waitingFor(timedSignal{"g"})), v1alpha1.ReasonSignalsHold).since("g", "no", epoch.Add(-4*time.Minute)), 6*time.Minute + skew},
		"closeWhen: not before it closed":                           {closed(follower("g", soaking(soak), waitingFor(timedSignal{"g"})), v1alpha1.ReasonSignalsHold, since(time.Minute)).since("g", "no", epoch.Add(-time.Hour)), 9 * time.Minute},
		"closeWhen: another signal cleared, without time":           {closed(follower("g", soaking(soak), waitingFor(timedSignal{"g"}, flagSignal("x"))), v1alpha1.ReasonSignalsHold).since("g", "no", epoch.Add(-4*time.Minute)), 6*time.Minute + skew},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.node
			d := s.run(t)
			v := d.Verdicts[0]
			if c.left == 0 {
				if v.After == v1alpha1.StateClosed || v.Blocked != "" {
					t.Fatalf("it does not open: %s", show(d))
				}
				return
			}
			until := s.now.Add(c.left)
			for range 2 {
				if v.After != v1alpha1.StateClosed || v.Blocked == "" || !d.Recheck.Equal(until) || !v.BlockedUntil.Equal(until) {
					t.Fatalf("%s, recheck in %s, want in %s", show(d), d.Recheck.Sub(s.now), c.left)
				}
				d = s.after(c.left/2 - 1).run(t)
				v = d.Verdicts[0]
			}
			s.now = until
			if v = s.run(t).Verdicts[0]; v.After != v1alpha1.StateOpen {
				t.Fatalf("it does not open when the time has passed: %s", showVerdict(&v))
			}
		})
	}
}

// seen makes the controller observe that the signals are not in the state that opens
// the gate.
func seen(t *testing.T, s *sim) *sim {
	if d := s.run(t); d.Verdicts[0].Blocked != "" || !d.Recheck.IsZero() {
		t.Errorf("the verdict must report the signals: %s", show(d))
	}
	return s
}

// staysClosedFor checks how long the gate still has to wait.
func (s *sim) staysClosedFor(t *testing.T, left time.Duration) {
	t.Helper()
	if d := s.run(t); d.Verdicts[0].Blocked != v1alpha1.ReadingOpenAfter || !d.Recheck.Equal(s.now.Add(left)) {
		t.Errorf("%s, recheck in %s, want in %s", show(d), d.Recheck.Sub(s.now), left)
	}
}

// TestSoakInterruptions checks what interrupts the wait.
func TestSoakInterruptions(t *testing.T) {
	level, timed := aGate("g", soaking(soak)), aGate("g", soaking(soak), waitingFor(timedSignal{"g"}))
	holds := func(s *sim) { s.flag("g", "holds") }
	timedHolds := func(s *sim) { s.since("g", "holds", epoch) }
	slowHolds := func(s *sim) { s.since("g", "holds", epoch.Add(-time.Hour)) }
	for name, c := range map[string]struct {
		gate        Gate
		hold, event func(*sim)
		// left is how long it stays closed, six minutes after the signals started to
		// hold and just after the event.
		left time.Duration
	}{
		"nothing": {level, holds, func(*sim) {}, 4 * time.Minute},
		"a signal stops holding, and holds again":     {level, holds, func(s *sim) { s.flag("g", "no").run(t); holds(s) }, soak},
		"an unknown signal":                           {level, holds, func(s *sim) { s.flag("g", "unknown").run(t); holds(s) }, soak},
		"an unknown signal, with a time from the API": {timed, timedHolds, func(s *sim) { s.flag("g", "unknown").run(t); timedHolds(s) }, 4 * time.Minute},
		"an unknown signal, by a slow clock":          {timed, slowHolds, func(s *sim) { s.flag("g", "unknown").run(t); slowHolds(s) }, 4 * time.Minute},
		"a signal that stops holding while it is unknown": {timed, timedHolds, func(s *sim) {
			s.flag("g", "unknown").run(t)
			s.since("g", "holds", s.now.Add(-time.Minute))
		}, soak},
		"the same, by a slow clock": {timed, slowHolds, func(s *sim) {
			s.flag("g", "unknown").run(t)
			s.since("g", "holds", s.now.Add(-time.Minute-time.Hour))
		}, soak},
		"a signal that does not hold, is unknown, and holds": {timed, timedHolds, func(s *sim) {
			s.flag("g", "no").run(t)
			s.flag("g", "unknown").run(t)
			slowHolds(s)
		}, soak},
		"an unobserved interruption":                  {timed, timedHolds, func(s *sim) { s.since("g", "holds", s.now.Add(-time.Minute)) }, soak},
		"an unobserved interruption, by a slow clock": {timed, slowHolds, func(s *sim) { s.since("g", "holds", s.now.Add(-time.Minute-time.Hour)) }, soak},
		"a restart":                                {level, holds, func(s *sim) { s.forget() }, soak},
		"a restart, with a time from the API":      {timed, timedHolds, func(s *sim) { s.forget() }, 4*time.Minute + HeartbeatSkew},
		"unreachability":                           {level, holds, func(s *sim) { s.ready("Unknown").run(t); s.ready("True") }, soak},
		"unreachability, with a time from the API": {timed, timedHolds, func(s *sim) { s.ready("Unknown").run(t); s.ready("True") }, 4 * time.Minute},
		"a reboot":                                 {level, holds, func(s *sim) { s.boot("b") }, soak},
		"being set up in between": {level, holds, func(s *sim) {
			s.taint("karpenter.sh/unregistered:NoSchedule").run(t)
			s.untaint("karpenter.sh/unregistered:NoSchedule")
		}, 4 * time.Minute},
		"a failed write": {level, holds, func(s *sim) { s.decide() }, 4 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			g := c.gate
			g.Reclose = never // do not close for reboots
			s := aNode(g).closed("g").ready("True")
			seen(t, s)
			c.hold(s)
			s.run(t)
			c.event(s.after(6 * time.Minute))
			s.staysClosedFor(t, c.left)
		})
	}
}

// anyTimed is a signal of several alternatives, each with a time: the reading is that of the
// one that has held the longest.
type anyTimed struct{ timedSignal }

func (s anyTimed) Read(in Input) Reading {
	r := s.timedSignal.Read(in)
	r.Alternative = true
	return r
}

// If one of several alternatives stops holding, or one of several signals of a closeWhen
// gate stops being clear, a later time from the API is that of another one. It does not
// show an interruption, so the wait begins at that time, but not before the controller
// observed that the state had not begun.
func TestSoakOfOverlappingStates(t *testing.T) {
	ago := func(s *sim, value string, d time.Duration) { s.since("g", value, s.now.Add(-d)) }
	any, two := aGate("g", soaking(soak), waitingFor(anyTimed{timedSignal{"g"}})), follower("g", soaking(soak), waitingFor(timedSignal{"g"}, timedSignal{"g"}))
	flagged := follower("g", soaking(soak), waitingFor(flagSignal("x"), timedSignal{"g"}))
	for name, c := range map[string]struct {
		gate        Gate
		first, then func(*sim) // six minutes apart
		left        time.Duration
	}{
		"an alternative that has held for four minutes": {any,
			func(s *sim) { ago(s, "holds", time.Minute) }, func(s *sim) { ago(s, "holds", 4*time.Minute) }, 6*time.Minute + HeartbeatSkew},
		"one that has held for longer than none has, by a slow clock": {any,
			func(s *sim) { ago(seen(t, s), "holds", 0) }, func(s *sim) { ago(s, "holds", 5*time.Minute+time.Hour) }, 4 * time.Minute},
		"one that was unknown": {any,
			func(s *sim) { ago(seen(t, s), "holds", 0) }, func(s *sim) { s.flag("g", "unknown").run(t); ago(s, "holds", 4*time.Minute) }, 6*time.Minute + HeartbeatSkew},
		"closeWhen, and a signal that has been clear for four minutes": {two,
			func(s *sim) { ago(s, "no", time.Minute) }, func(s *sim) { ago(s, "no", 4*time.Minute) }, 6*time.Minute + HeartbeatSkew},
		"closeWhen, and a signal that clears later than one without a time": {flagged,
			func(s *sim) { ago(s.flag("x", "holds"), "holds", 0); seen(t, s).flag("x", "no") }, func(s *sim) { ago(s, "no", 0) }, 4 * time.Minute},
		"closeWhen, and a signal that was clear together with the one that was clear first": {
			follower("g", soaking(soak), waitingFor(timedSignal{"g"}, timedSignal{"x"})),
			func(s *sim) {
				ago(s.flag("x", "no"), "no", time.Minute)
				s.facts.Node.Annotations["x"] = s.now.Format(time.RFC3339)
			},
			func(s *sim) { s.flag("g", "holds") }, 3*time.Minute + HeartbeatSkew},
	} {
		t.Run(name, func(t *testing.T) {
			g := c.gate
			g.Reclose = never
			s := aNode(g).closed("g").ready("True")
			s.record("g", v1alpha1.StateClosed, func(r *Record) { r.Since = epoch.Add(-time.Hour) })
			c.first(s)
			s.run(t)
			c.then(s.after(6 * time.Minute))
			s.staysClosedFor(t, c.left)
		})
	}
}

// Nothing is remembered for an open gate, nor for a closed one without
// openAfterSeconds.
func TestSoakIsForgotten(t *testing.T) {
	s := aNode(aGate("g", soaking(soak))).open("g").flag("g", "holds")
	if v := s.decide().Verdicts[0]; v.Steady != nil {
		t.Errorf("an open gate: %+v", v.Steady)
	}
	s = aNode(aGate("g")).closed("g")
	if v := s.decide().Verdicts[0]; v.Steady != nil {
		t.Errorf("a gate without a wait: %+v", v.Steady)
	}
}
