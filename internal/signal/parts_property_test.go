// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/internal/gate"
)

// pass lets time pass, and decides when an observer requested it.
func (l *life) pass(t *rapid.T, by time.Duration) {
	end := l.now.Add(by)
	for range 200 {
		next := end
		for _, until := range []time.Time{l.all.until, l.some.until} {
			if !until.IsZero() && until.Before(next) {
				next = until
			}
		}
		if l.now = gate.Latest(l.now, next); !next.Before(end) {
			return
		}
		l.follow(t)
	}
	t.Fatal("requests rechecks endlessly")
}

// follow lets both observers decide until nothing is left to write. Each write is a
// further change.
func (l *life) follow(t *rapid.T) {
	for range 20 {
		changes := l.pending
		l.pending = gate.Change{}
		due := func(o *observer) bool { return !o.until.IsZero() && !l.now.Before(o.until) }
		if changes.IsNothing() && !due(&l.all) && !due(&l.some) {
			return
		}
		all := l.decide(&l.all, l.gates, false)
		some, part := all, l.gates
		touched, narrow := l.parts.Touched(changes)
		if narrow = narrow && l.some.settled && !due(&l.some) && !changes.IsNothing(); narrow {
			l.narrow++
			part = touched.Gates
			until := l.some.until
			some = l.decide(&l.some, part, true)
			l.some.until = gate.Earliest(until, l.some.until)
		} else {
			some = l.decide(&l.some, l.gates, false)
		}
		l.compare(t, &all, &some, part)
		l.write(&all)
	}
	t.Fatal("never settles")
}

// decide decides about gates, and remembers what has to be remembered.
func (l *life) decide(o *observer, gates []gate.Gate, part bool) gate.Decision {
	f := l.facts
	f.Part, f.Lost, f.Steady = part, o.lost, o.steady
	d := gate.Decide(gates, &f, l.now)
	for i := range d.Verdicts {
		if l.budget && d.Verdicts[i].Wants != "" {
			if f.Granted == nil {
				f.Granted = map[string]bool{}
			}
			f.Granted[d.Verdicts[i].Gate] = true
		}
	}
	if f.Granted != nil {
		d = gate.Decide(gates, &f, l.now)
	}
	now := observer{lost: map[string][]gate.Lost{}, steady: map[string]gate.Steady{}, settled: d.Settled, until: d.Recheck}
	covered := func(name string) bool {
		return !part || slices.ContainsFunc(gates, func(g gate.Gate) bool { return g.Name == name })
	}
	retain(now.lost, o.lost, covered)
	retain(now.steady, o.steady, covered)
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if v.Lost != nil {
			now.lost[v.Gate] = v.Lost
		}
		if v.Steady != nil {
			now.steady[v.Gate] = *v.Steady
		}
	}
	*o = now
	return d
}

func retain[V any](now, was map[string]V, covered func(string) bool) {
	for name, value := range was {
		if !covered(name) {
			now[name] = value
		}
	}
}

// compare checks that both observers want the same write and have the same verdicts for
// the gates that both decided, that nothing is left to do for the others, and that both
// remember the same.
func (l *life) compare(t *rapid.T, all, some *gate.Decision, part []gate.Gate) {
	if all.Changes != some.Changes || !reflect.DeepEqual(all.Taints, some.Taints) || !reflect.DeepEqual(all.Records, some.Records) ||
		!reflect.DeepEqual(all.Stamps, some.Stamps) || !reflect.DeepEqual(all.Withdrawn, some.Withdrawn) {
		t.Fatalf("of all gates: %v %v %v; of %d: %v %v %v", all.Changes, all.Taints, all.Records, len(part), some.Changes, some.Taints, some.Records)
	}
	for i := range all.Verdicts {
		v := &all.Verdicts[i]
		if !slices.ContainsFunc(part, func(g gate.Gate) bool { return g.Name == v.Gate }) && len(part) != len(l.gates) {
			if v.Before != v.After || v.Wants != "" {
				t.Fatalf("%s was settled, but changes: %+v", v.Gate, v)
			}
			continue
		}
		if other := some.Verdict(v.Gate); !reflect.DeepEqual(v, other) {
			t.Fatalf("of all gates:\n%+v\nof %d:\n%+v", v, len(part), other)
		}
	}
	a, b := l.all, l.some
	a.settled, a.until, b.settled, b.until = false, time.Time{}, false, time.Time{}
	if !reflect.DeepEqual(a, b) {
		t.Fatalf("the memories differ: %+v and %+v", a, b)
	}
	if l.some.settled && !l.all.until.IsZero() && (l.some.until.IsZero() || l.some.until.After(l.all.until)) {
		t.Fatalf("recheck at %s, but the other observer's recheck is at %s", l.all.until, l.some.until)
	}
}

// write applies a decision, and reports the changes that follow.
func (l *life) write(d *gate.Decision) {
	n := &l.facts.Node
	if !d.Changes {
		return
	}
	for _, taint := range slices.Concat(n.Taints, d.Taints) {
		if !slices.Contains(n.Taints, taint) || !slices.Contains(d.Taints, taint) {
			l.pending = l.pending.And(gate.ChangeOf(gate.Aspect{Kind: gate.AspectTaint, Name: taint.Key}))
		}
	}
	n.Taints, n.Records = d.Taints, maps.Clone(n.Records)
	for name, raw := range d.Records {
		if n.Records[name] = raw; raw == "" {
			delete(n.Records, name)
		}
		l.pending = l.pending.And(gate.ChangeOf(gate.Aspect{Kind: gate.AspectRecord, Name: name}))
	}
	if len(d.Withdrawn) > 0 {
		n.Overrides, l.pending = nil, gate.Everything()
	}
}

// An observer that decides only about the gates that read what has changed writes and
// remembers the same as one that decides about all gates each time.
func TestPartsAreTheWhole(t *testing.T) {
	narrow := 0
	live := func(t *rapid.T) {
		l := newLife(t)
		actions := l.actions()
		actions["a condition, late"] = func(t *rapid.T) {
			l.now = l.now.Add(time.Duration(rapid.IntRange(1, 200).Draw(t, "seconds")) * time.Second)
			actions["condition"](t)
		}
		actions[""] = func(t *rapid.T) { l.follow(t) }
		t.Repeat(actions)
		narrow += l.narrow
	}
	for range 5 { // there are many kinds of signals
		rapid.Check(t, live)
	}
	if narrow < 1000 && !testing.Short() { // with -short, rapid runs a fifth of the checks
		t.Errorf("only %d decisions covered a part of the gates", narrow)
	}
}
