// SPDX-License-Identifier: Apache-2.0

package fleet

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

// ledger is what a ledger should come to, in the dumbest way: it counts everything
// anew whenever it is asked.
type ledger struct {
	budget  *intstr.IntOrString
	settled bool
	nodes   map[string]*entry
	line    []string // of all zones, in order
}

type entry struct {
	zone, state string
	Snapshot    bool // it was accounted for
	queued      bool
	holds       []string // zones
	doubtful    bool
}

func (l *ledger) count(zone string) (members, taken int) {
	for _, e := range l.nodes {
		if e.Snapshot && e.zone == zone {
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
	e.zone, e.state, e.queued, e.Snapshot = zone, state, queued, true
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
func TestLedgerAgainstALedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zones := []string{"", "a", "b"}
		var names []string
		l := &ledger{budget: ptr.To(intstr.FromString("20%")), nodes: map[string]*entry{}}
		for i := range rapid.IntRange(1, 12).Draw(t, "nodes") {
			name := fmt.Sprint("n", i)
			names, l.nodes[name] = append(names, name), &entry{}
		}
		ledger := NewLedger()
		agreed := uint64(1)
		agree := func() { ledger.SetTerms(map[string]BudgetTerms{"gate": {Budget: l.budget, Since: agreed}}) }
		agree()
		node := func() (string, *entry) {
			name := rapid.SampledFrom(names).Draw(t, "node")
			return name, l.nodes[name]
		}
		stand := func(name, zone, state string, queued bool) []GateState {
			l.account(name, zone, state, queued)
			return []GateState{{Gate: "gate", Selected: true, Zone: zone, State: state, Reason: v1alpha1.ReasonRegression, Queued: queued, Throttled: queued}}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { agrees(t, ledger, l, zones) },
			// A node that is to be closed asks, and its write ends in one of many ways.
			"close": func(t *rapid.T) {
				name, e := node()
				zone := rapid.SampledFrom(zones).Draw(t, "zone")
				if e.Snapshot && rapid.IntRange(0, 9).Draw(t, "stays") > 0 {
					zone = e.zone
				}
				want, held := l.mayClose(name, zone), slices.Contains(e.holds, zone)
				if got := ledger.Reserve(Pool{"gate", zone}, name, time.Time{}); got != want {
					t.Fatalf("node %s was given a slot in zone %q: %t, want %t", name, zone, got, want)
				}
				if !want {
					ledger.Set(name, stand(name, zone, v1alpha1.StateOpen, true), agreed)
					e.holds, e.doubtful = nil, false
					return
				}
				if !slices.Contains(e.holds, zone) {
					e.holds = append(e.holds, zone)
				}
				if z := ledger.peek(Pool{"gate", zone}); !held && z.closed+z.inFlight > gate.MaxReclosed(l.budget, z.members) {
					t.Fatalf("the slot was one too many: %+v", *z)
				}
				switch rapid.SampledFrom([]string{"written", "conflict", "denied", "lost"}).Draw(t, "ends") {
				case "written":
					ledger.Set(name, stand(name, zone, v1alpha1.StateClosed, false), agreed)
					e.holds, e.doubtful = nil, false
				case "conflict":
					ledger.Note(name, stand(name, zone, v1alpha1.StateOpen, false), agreed)
				case "denied":
					ledger.Release(name)
					ledger.Note(name, stand(name, zone, v1alpha1.StateOpen, false), agreed)
					if !e.doubtful {
						e.holds = nil
					}
				case "lost":
					ledger.MarkUncertain(name)
					ledger.Note(name, stand(name, zone, v1alpha1.StateOpen, false), agreed)
					e.doubtful = true
				}
			},
			"open": func(t *rapid.T) {
				name, e := node()
				ledger.Set(name, stand(name, rapid.SampledFrom(zones).Draw(t, "zone"), v1alpha1.StateOpen, false), agreed)
				e.holds, e.doubtful = nil, false
			},
			"is closed by another": func(t *rapid.T) {
				name, e := node()
				ledger.Set(name, stand(name, rapid.SampledFrom(zones).Draw(t, "zone"), v1alpha1.StateClosed, false), agreed)
				e.holds, e.doubtful = nil, false
			},
			"go": func(*rapid.T) {
				name, e := node()
				l.account(name, "", "", false)
				*e = entry{}
				ledger.Forget(name)
			},
			"read anew": func(*rapid.T) {
				name, e := node()
				e.doubtful = false
				ledger.MarkCertain(name)
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
					if e.Snapshot {
						ledger.Note(name, stand(name, e.zone, e.state, e.queued), agreed)
					}
				}
				l.settled = true
				var fleet []string
				for name, e := range l.nodes {
					if e.Snapshot {
						fleet = append(fleet, name)
					}
				}
				ledger.Settle(fleet, agreed)
			},
		})
		for _, name := range names {
			ledger.Forget(name)
		}
		if len(ledger.gates)+len(ledger.reservations)+len(ledger.nodes)+len(ledger.doubtful) > 0 {
			t.Errorf("something is kept of nodes that are gone: %+v", ledger)
		}
	})
}

// agrees checks what the ledger counts, and whose turn it says it is.
func agrees(t *rapid.T, ledger *Ledger, l *ledger, zones []string) {
	var due []string
	for _, zone := range zones {
		members, taken := l.count(zone)
		z := ledger.peek(Pool{"gate", zone})
		line := l.lineOf(zone)
		if z.members != members || z.closed+z.inFlight != taken || !slices.Equal(z.line, line) {
			t.Fatalf("zone %q is counted as %+v, want %d members, %d taken, and in line %v", zone, *z, members, taken, line)
		}
		due = append(due, line[:min(l.room(zone), len(line))]...)
	}
	got := ledger.Due()
	slices.Sort(got)
	slices.Sort(due)
	if !slices.Equal(got, due) {
		t.Fatalf("called are %v, want %v", got, due)
	}
}

// After a pause nothing is given before all nodes have been looked at, not even in
// the moment before the pause is noticed.
func TestNothingIsGivenAfterAPause(t *testing.T) {
	ledger, s, now := NewLedger(), Pool{"gate", "a"}, time.Now()
	ledger.SetTerms(map[string]BudgetTerms{"gate": {Budget: ptr.To(intstr.FromInt32(100)), Since: 1}})
	look := func(seq uint64) {
		for _, name := range []string{"n1", "n2"} {
			ledger.Set(name, member("a", v1alpha1.StateOpen, ""), seq)
		}
		ledger.Settle([]string{"n1", "n2"}, seq)
	}
	look(1)
	if ledger.Heartbeat(now) || ledger.Heartbeat(now.Add(PausedAfter)) || !ledger.Reserve(s, "n1", now.Add(2*PausedAfter)) {
		t.Fatal("the process looks paused, and was not")
	}
	now = now.Add(time.Minute)
	if ledger.Reserve(s, "n2", now) {
		t.Error("a slot was given right after a pause")
	}
	if !ledger.Heartbeat(now) || ledger.Reserve(s, "n2", now) {
		t.Error("the pause was not noticed")
	}
	ledger.Set("n1", member("a", v1alpha1.StateOpen, ""), 1)
	ledger.Settle([]string{"n1", "n2"}, 1)
	if ledger.Reserve(s, "n2", now) {
		t.Error("a slot was given before all nodes had been looked at")
	}
	look(1)
	if ledger.Heartbeat(now) || !ledger.Reserve(s, "n2", now) {
		t.Error("all nodes have been looked at, and there is no slot")
	}
}
