// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/internal/gate"
)

// early decides once more at a random time before the requested recheck, with the same facts.
// It writes and waits for the same.
func (l *life) early(t *rapid.T) {
	most := 1000 * time.Second
	if until := l.all.until; !until.IsZero() {
		most = min(most, until.Sub(l.now))
	}
	if most < 2 {
		return
	}
	now, memory := l.now, l.all
	want := l.decide(new(memory), l.gates, false)
	l.now = now.Add(time.Duration(rapid.Int64Range(1, int64(most)-1).Draw(t, "early")))
	got := l.decide(new(memory), l.gates, false)
	at := l.now.Sub(now)
	l.now = now
	if got.Changes {
		t.Fatalf("%s later, before a recheck in %s, there is something to write: %v %v", at, most, got.Taints, got.Records)
	}
	for i := range got.Verdicts {
		g, w := &got.Verdicts[i], &want.Verdicts[i]
		if g.Wants != w.Wants || g.Blocked != w.Blocked || g.Overdue != w.Overdue {
			t.Fatalf("%s later, before a recheck in %s:\n%+v\nbefore:\n%+v", at, most, g, w)
		}
		for j := range g.Readings {
			if g.Readings[j].State != w.Readings[j].State {
				t.Fatalf("%s later, before a recheck in %s, a signal of %s reads\n%+v\nbefore:\n%+v", at, most, g.Gate, g.Readings[j], w.Readings[j])
			}
		}
	}
}

// shiftTimes makes the times of conditions those of a clock that is wrong.
func (l *life) shiftTimes(t *rapid.T) {
	by := time.Duration(rapid.IntRange(-200, 200).Draw(t, "ahead")) * time.Second
	for i := range l.facts.Node.Conditions {
		c := &l.facts.Node.Conditions[i]
		c.Heartbeat, c.Transition = l.now.Add(by), l.now.Add(by)
	}
	l.pending = gate.Everything()
}

// While the facts stay the same, a decision is valid until the recheck that it requests: a node is
// not decided about before, so a time that is missing would delay its gates until the next resync.
func TestDecisionsAreValidUntilTheirRecheck(t *testing.T) {
	live := func(t *rapid.T) {
		l := newLife(t)
		l.facts.Boot.Seen = l.now.Add(-time.Hour)
		actions := l.actions()
		condition, ready := actions["condition"], actions["ready"]
		actions["condition, by another clock"] = func(t *rapid.T) { condition(t); l.shiftTimes(t) }
		actions["ready, by another clock"] = func(t *rapid.T) { ready(t); l.shiftTimes(t) }
		actions["zone"] = func(t *rapid.T) {
			l.facts.Zone = gate.Zone{Nodes: rapid.SampledFrom([]int{1, 10}).Draw(t, "nodes"), Silent: rapid.SampledFrom([]int{1, 9}).Draw(t, "silent")}
			l.pending = gate.Everything()
		}
		actions["boot"] = func(t *rapid.T) {
			before := l.facts.Node.BootID
			l.facts.Node.BootID += "b"
			if l.facts.Boot = (gate.Boot{Seen: l.now}); rapid.Bool().Draw(t, "observed") {
				l.facts.Boot.After = before
				for _, pods := range l.facts.Pods {
					for i := range pods {
						l.facts.Boot.Known = pods[i].AppendKnown(l.facts.Boot.Known)
					}
				}
			}
			l.pending = gate.Everything()
		}
		actions[""] = func(t *rapid.T) { l.follow(t); l.early(t) }
		t.Repeat(actions)
	}
	for range 5 { // there are many kinds of signals
		rapid.Check(t, live)
	}
}
