// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// ledger is what a tally should come to, in the dumbest way: it counts everything
// anew whenever it is asked.
type ledger struct {
	budget  *intstr.IntOrString
	settled bool
	nodes   map[string]*entry
	line    []string // of all zones, in order
}

type entry struct {
	zone, state string
	known       bool // it was accounted for
	queued      bool
	holds       []string // zones
	doubtful    bool
}

func (l *ledger) count(zone string) (members, taken int) {
	for _, e := range l.nodes {
		if e.known && e.zone == zone {
			members++
			if e.state == v1alpha1.StateClosed {
				taken++
			}
		}
		if slices.Contains(e.holds, zone) {
			taken++
		}
	}
	return members, taken
}

func (l *ledger) room(zone string) int {
	if members, taken := l.count(zone); l.settled {
		return max(gate.MaxReclosed(l.budget, members)-taken, 0)
	}
	return 0
}

func (l *ledger) lineOf(zone string) (names []string) {
	for _, name := range l.line {
		if l.nodes[name].zone == zone {
			names = append(names, name)
		}
	}
	return names
}

// mayClose: a slot for the node is left besides those for the ones before it.
func (l *ledger) mayClose(name, zone string) bool {
	before := 0
	for _, other := range l.lineOf(zone) {
		if other == name {
			break
		}
		before++
	}
	return slices.Contains(l.nodes[name].holds, zone) || l.room(zone) > before
}

// account has the node stand so, as a decision that was carried out.
func (l *ledger) account(name, zone, state string, queued bool) {
	e := l.nodes[name]
	stays := e.queued && queued && e.zone == zone
	e.zone, e.state, e.queued, e.known = zone, state, queued, true
	if !stays {
		l.line = slices.DeleteFunc(l.line, func(other string) bool { return other == name })
		if queued {
			l.line = append(l.line, name)
		}
	}
}

// Whatever happens to nodes, slots are given in turn, and never so many that more
// nodes are closed or being closed than the budget lets, unless it was lowered or
// the zone has changed.
func TestTallyAgainstALedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zones := []string{"", "a", "b"}
		var names []string
		l := &ledger{budget: ptr.To(intstr.FromString("20%")), nodes: map[string]*entry{}}
		for i := range rapid.IntRange(1, 12).Draw(t, "nodes") {
			name := fmt.Sprint("n", i)
			names, l.nodes[name] = append(names, name), &entry{}
		}
		tally := newTally()
		agreed := uint64(1)
		agree := func() { tally.agree(map[string]terms{"gate": {budget: l.budget, since: agreed}}) }
		agree()
		node := func() (string, *entry) {
			name := rapid.SampledFrom(names).Draw(t, "node")
			return name, l.nodes[name]
		}
		stand := func(name, zone, state string, queued bool) []standing {
			l.account(name, zone, state, queued)
			return []standing{{gate: "gate", selected: true, zone: zone, state: state, reason: v1alpha1.ReasonRegression, queued: queued, throttled: queued}}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { agrees(t, tally, l, zones) },
			// A node that is to be closed asks, and its write ends in one of many ways.
			"close": func(t *rapid.T) {
				name, e := node()
				zone := rapid.SampledFrom(zones).Draw(t, "zone")
				if e.known && rapid.IntRange(0, 9).Draw(t, "stays") > 0 {
					zone = e.zone
				}
				want, held := l.mayClose(name, zone), slices.Contains(e.holds, zone)
				if got := tally.reserve(slot{"gate", zone}, name, time.Time{}); got != want {
					t.Fatalf("node %s was given a slot in zone %q: %t, want %t", name, zone, got, want)
				}
				if !want {
					tally.set(name, stand(name, zone, v1alpha1.StateOpen, true), agreed)
					e.holds, e.doubtful = nil, false
					return
				}
				if !slices.Contains(e.holds, zone) {
					e.holds = append(e.holds, zone)
				}
				if z := tally.peek(slot{"gate", zone}); !held && z.closed+z.inFlight > gate.MaxReclosed(l.budget, z.members) {
					t.Fatalf("the slot was one too many: %+v", *z)
				}
				switch rapid.SampledFrom([]string{"written", "conflict", "denied", "lost"}).Draw(t, "ends") {
				case "written":
					tally.set(name, stand(name, zone, v1alpha1.StateClosed, false), agreed)
					e.holds, e.doubtful = nil, false
				case "conflict":
					tally.note(name, stand(name, zone, v1alpha1.StateOpen, false), agreed)
				case "denied":
					tally.release(name)
					tally.note(name, stand(name, zone, v1alpha1.StateOpen, false), agreed)
					if !e.doubtful {
						e.holds = nil
					}
				case "lost":
					tally.doubt(name)
					tally.note(name, stand(name, zone, v1alpha1.StateOpen, false), agreed)
					e.doubtful = true
				}
			},
			"open": func(t *rapid.T) {
				name, e := node()
				tally.set(name, stand(name, rapid.SampledFrom(zones).Draw(t, "zone"), v1alpha1.StateOpen, false), agreed)
				e.holds, e.doubtful = nil, false
			},
			"is closed by another": func(t *rapid.T) {
				name, e := node()
				tally.set(name, stand(name, rapid.SampledFrom(zones).Draw(t, "zone"), v1alpha1.StateClosed, false), agreed)
				e.holds, e.doubtful = nil, false
			},
			"go": func(*rapid.T) {
				name, e := node()
				l.account(name, "", "", false)
				*e = entry{}
				tally.forget(name)
			},
			"read anew": func(*rapid.T) {
				name, e := node()
				e.doubtful = false
				tally.trust(name)
			},
			"edit": func(t *rapid.T) {
				l.budget = ptr.To(rapid.SampledFrom([]intstr.IntOrString{
					intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromInt32(3), intstr.FromInt32(100),
					intstr.FromString("0%"), intstr.FromString("1%"), intstr.FromString("50%"), intstr.FromString("100%"),
				}).Draw(t, "budget"))
				agreed++
				l.settled = false
				agree()
			},
			"settle": func(*rapid.T) { // every node is looked at
				for name, e := range l.nodes {
					if e.known {
						tally.note(name, stand(name, e.zone, e.state, e.queued), agreed)
					}
				}
				l.settled = true
				var fleet []string
				for name, e := range l.nodes {
					if e.known {
						fleet = append(fleet, name)
					}
				}
				tally.settle(fleet, agreed)
			},
		})
		for _, name := range names {
			tally.forget(name)
		}
		if len(tally.gates)+len(tally.slots)+len(tally.nodes)+len(tally.doubtful) > 0 {
			t.Errorf("something is kept of nodes that are gone: %+v", tally)
		}
	})
}

// agrees checks what the tally counts, and whose turn it says it is.
func agrees(t *rapid.T, tally *tally, l *ledger, zones []string) {
	var due []string
	for _, zone := range zones {
		members, taken := l.count(zone)
		z := tally.peek(slot{"gate", zone})
		line := l.lineOf(zone)
		if z.members != members || z.closed+z.inFlight != taken || !slices.Equal(z.line, line) {
			t.Fatalf("zone %q is counted as %+v, want %d members, %d taken, and in line %v", zone, *z, members, taken, line)
		}
		due = append(due, line[:min(l.room(zone), len(line))]...)
	}
	got := tally.due()
	slices.Sort(got)
	slices.Sort(due)
	if !slices.Equal(got, due) {
		t.Fatalf("called are %v, want %v", got, due)
	}
}

// After a pause nothing is given before all nodes have been looked at, not even in
// the moment before the pause is noticed.
func TestNothingIsGivenAfterAPause(t *testing.T) {
	tally, s, now := newTally(), slot{"gate", "a"}, time.Now()
	tally.agree(map[string]terms{"gate": {budget: ptr.To(intstr.FromInt32(100)), since: 1}})
	look := func(seq uint64) {
		for _, name := range []string{"n1", "n2"} {
			tally.set(name, member("a", v1alpha1.StateOpen, ""), seq)
		}
		tally.settle([]string{"n1", "n2"}, seq)
	}
	look(1)
	if tally.beat(now) || tally.beat(now.Add(pausedAfter)) || !tally.reserve(s, "n1", now.Add(2*pausedAfter)) {
		t.Fatal("the process looks paused, and was not")
	}
	now = now.Add(time.Minute)
	if tally.reserve(s, "n2", now) {
		t.Error("a slot was given right after a pause")
	}
	if !tally.beat(now) || tally.reserve(s, "n2", now) {
		t.Error("the pause was not noticed")
	}
	tally.set("n1", member("a", v1alpha1.StateOpen, ""), 1)
	tally.settle([]string{"n1", "n2"}, 1)
	if tally.reserve(s, "n2", now) {
		t.Error("a slot was given before all nodes had been looked at")
	}
	look(1)
	if tally.beat(now) || !tally.reserve(s, "n2", now) {
		t.Error("all nodes have been looked at, and there is no slot")
	}
}
