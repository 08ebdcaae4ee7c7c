// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// budgetModel is the simplest model of the reservations: it counts everything again on each
// call.
type budgetModel struct {
	budget  *intstr.IntOrString
	counted bool
	nodes   map[string]*modelNode
	queue   []string // of all zones, in order
}

type modelNode struct {
	zone, state string
	evaluated   bool
	queued      bool
	reserved    []string // zones
	uncertain   bool
}

func (l *budgetModel) count(zone string) (members, used int) {
	for _, e := range l.nodes {
		if e.evaluated && e.zone == zone {
			members++
			if e.state == v1alpha1.StateClosed {
				used++
			}
		}
		if slices.Contains(e.reserved, zone) {
			used++
		}
	}
	return members, used
}

func (l *budgetModel) available(zone string) int {
	if members, used := l.count(zone); l.counted {
		return max(gate.MaxReclosed(l.budget, members)-used, 0)
	}
	return 0
}

// throttledKnown reports whether no node waits, or there is too little budget for those that wait
// besides the nodes that are closed or being closed. Nodes with a reservation no longer wait.
func (l *budgetModel) throttledKnown(zones []string) bool {
	anyWaits, exceeds := false, false
	for _, zone := range zones {
		waiting := 0
		for _, e := range l.nodes {
			if !e.evaluated || e.zone != zone || !e.queued {
				continue
			}
			anyWaits = true
			if !slices.Contains(e.reserved, zone) {
				waiting++
			}
		}
		members, used := l.count(zone)
		exceeds = exceeds || waiting > 0 && used+waiting > gate.MaxReclosed(l.budget, members)
	}
	return l.counted && (!anyWaits || exceeds)
}

func (l *budgetModel) queueOf(zone string) (names []string) {
	for _, name := range l.queue {
		if l.nodes[name].zone == zone {
			names = append(names, name)
		}
	}
	return names
}

// mayClose reports whether there is budget for the node besides that for the nodes queued
// before it.
func (l *budgetModel) mayClose(name, zone string) bool {
	before := 0
	for _, other := range l.queueOf(zone) {
		if other == name {
			break
		}
		before++
	}
	return slices.Contains(l.nodes[name].reserved, zone) || l.available(zone) > before
}

// account records the result of an evaluation.
func (l *budgetModel) account(name, zone, state string, queued bool) {
	e := l.nodes[name]
	stays := e.queued && queued && e.zone == zone
	e.zone, e.state, e.queued, e.evaluated = zone, state, queued, true
	if !stays {
		l.queue = slices.DeleteFunc(l.queue, func(other string) bool { return other == name })
		if queued {
			l.queue = append(l.queue, name)
		}
	}
}

// Reservations are granted in the order of the queue after any sequence of operations. No
// more nodes are closed or being closed than the budget allows, unless the budget was
// lowered or the zone has changed.
func TestReservationsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zones := []string{"", "a", "b"}
		var names []string
		l := &budgetModel{budget: new(intstr.FromString("20%")), nodes: map[string]*modelNode{}}
		for i := range rapid.IntRange(1, 12).Draw(t, "nodes") {
			name := fmt.Sprint("n", i)
			names, l.nodes[name] = append(names, name), &modelNode{}
		}
		ledger := NewLedger()
		seq := uint64(1)
		setTerms := func() { ledger.SetTerms(map[string]BudgetTerms{"gate": {Budget: l.budget, Since: seq}}) }
		setTerms()
		node := func() (string, *modelNode) {
			name := rapid.SampledFrom(names).Draw(t, "node")
			return name, l.nodes[name]
		}
		states := func(name, zone, state string, queued bool) []GateState {
			l.account(name, zone, state, queued)
			return []GateState{{Gate: "gate", Selected: true, Zone: zone, State: state, Reason: v1alpha1.ReasonRegression, Queued: queued, Throttled: queued}}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { compareCounts(t, ledger, l, zones) },
			// A reservation is requested for a node that is to be closed. Its write succeeds or
			// fails in one of several ways.
			"close": func(t *rapid.T) {
				name, e := node()
				zone := rapid.SampledFrom(zones).Draw(t, "zone")
				if e.evaluated && rapid.IntRange(0, 9).Draw(t, "stays") > 0 {
					zone = e.zone
				}
				want, held := l.mayClose(name, zone), slices.Contains(e.reserved, zone)
				if got := ledger.Reserve(BudgetScope{Gate: "gate", Zone: zone}, name, time.Time{}); got != want {
					t.Fatalf("budget was reserved for node %s in zone %q: %t, want %t", name, zone, got, want)
				}
				if !want {
					ledger.Set(name, states(name, zone, v1alpha1.StateOpen, true), seq)
					e.reserved, e.uncertain = nil, false
					return
				}
				if !slices.Contains(e.reserved, zone) {
					e.reserved = append(e.reserved, zone)
				}
				if z := ledger.peek(BudgetScope{Gate: "gate", Zone: zone}); !held && z.used+z.inFlight > gate.MaxReclosed(l.budget, z.members) {
					t.Fatalf("the reservation exceeds the budget: %+v", *z)
				}
				switch rapid.SampledFrom([]string{"written", "conflict", "denied", "lost"}).Draw(t, "ends") {
				case "written":
					ledger.Set(name, states(name, zone, v1alpha1.StateClosed, false), seq)
					e.reserved, e.uncertain = nil, false
				case "conflict":
					ledger.Note(name, states(name, zone, v1alpha1.StateOpen, false), seq)
				case "denied":
					ledger.Release(name)
					ledger.Note(name, states(name, zone, v1alpha1.StateOpen, false), seq)
					if !e.uncertain {
						e.reserved = nil
					}
				case "lost":
					ledger.MarkUncertain(name)
					ledger.Note(name, states(name, zone, v1alpha1.StateOpen, false), seq)
					e.uncertain = true
				}
			},
			"grant": func(t *rapid.T) { // until it is written, the node is recorded as waiting
				name, e := node()
				if !e.queued || !l.mayClose(name, e.zone) {
					t.Skip()
				}
				if !ledger.Reserve(BudgetScope{Gate: "gate", Zone: e.zone}, name, time.Time{}) {
					t.Fatalf("no budget was reserved for node %s in zone %q", name, e.zone)
				}
				if !slices.Contains(e.reserved, e.zone) {
					e.reserved = append(e.reserved, e.zone)
				}
				l.queue = slices.DeleteFunc(l.queue, func(other string) bool { return other == name })
			},
			"open": func(t *rapid.T) {
				name, e := node()
				ledger.Set(name, states(name, rapid.SampledFrom(zones).Draw(t, "zone"), v1alpha1.StateOpen, false), seq)
				e.reserved, e.uncertain = nil, false
			},
			"closed by another": func(t *rapid.T) {
				name, e := node()
				ledger.Set(name, states(name, rapid.SampledFrom(zones).Draw(t, "zone"), v1alpha1.StateClosed, false), seq)
				e.reserved, e.uncertain = nil, false
			},
			"forget": func(*rapid.T) {
				name, e := node()
				l.account(name, "", "", false)
				*e = modelNode{}
				ledger.Forget(name)
			},
			"read again": func(*rapid.T) {
				name, e := node()
				e.uncertain = false
				ledger.MarkCertain(name)
			},
			"edit": func(t *rapid.T) {
				l.budget = new(rapid.SampledFrom([]intstr.IntOrString{
					intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromInt32(3), intstr.FromInt32(100),
					intstr.FromString("0%"), intstr.FromString("1%"), intstr.FromString("50%"), intstr.FromString("100%"),
				}).Draw(t, "budget"))
				seq++
				l.counted = false
				setTerms()
			},
			"count": func(*rapid.T) { // all nodes are evaluated
				for name, e := range l.nodes {
					if e.evaluated {
						ledger.Note(name, states(name, e.zone, e.state, e.queued), seq)
					}
				}
				l.counted = true
				var fleet []string
				for name, e := range l.nodes {
					if e.evaluated {
						fleet = append(fleet, name)
					}
				}
				ledger.SetFleet(fleet, seq, true)
			},
		})
		for _, name := range names {
			ledger.Forget(name)
		}
		if len(ledger.gates)+len(ledger.reservations)+len(ledger.nodes)+len(ledger.uncertain) > 0 {
			t.Errorf("entries of forgotten nodes remain: %+v", ledger)
		}
	})
}

// compareCounts compares the ledger's counts and the nodes that are due with the model.
func compareCounts(t *rapid.T, ledger *Ledger, l *budgetModel, zones []string) {
	var due []string
	for _, zone := range zones {
		members, used := l.count(zone)
		z := ledger.peek(BudgetScope{Gate: "gate", Zone: zone})
		queue := l.queueOf(zone)
		if z.members != members || z.used+z.inFlight != used || !slices.Equal(z.queue.first(z.queue.len()), queue) {
			t.Fatalf("counts of zone %q: %+v, want %d members, %d used, and queue %v", zone, *z, members, used, queue)
		}
		due = append(due, queue[:min(l.available(zone), len(queue))]...)
	}
	if got, want := ledger.Summary("gate").ThrottledKnown, l.throttledKnown(zones); got != want {
		t.Fatalf("it is known whether nodes have to wait: %t, want %t", got, want)
	}
	got := ledger.Due()
	slices.Sort(got)
	slices.Sort(due)
	if !slices.Equal(got, due) {
		t.Fatalf("due nodes are %v, want %v", got, due)
	}
}

// A node that waits only because of another node's reservation is reported, even if it is unknown
// for long whether that node has been closed.
func TestReservationMakesOthersWait(t *testing.T) {
	ledger, s := NewLedger(), BudgetScope{Gate: "gate", Zone: "a"}
	ledger.SetTerms(map[string]BudgetTerms{"gate": {Budget: new(intstr.FromInt32(1)), Since: 1}})
	throttled := member("a", v1alpha1.StateOpen, "")
	throttled[0].Queued, throttled[0].Throttled = true, true
	ledger.Set("n1", throttled, 1)
	ledger.Set("n2", member("a", v1alpha1.StateOpen, ""), 1)
	ledger.SetFleet([]string{"n1", "n2"}, 1, true)
	if !ledger.Reserve(s, "n1", time.Time{}) || ledger.Summary("gate").ThrottledKnown {
		t.Error("n1 does not have a reservation, or is reported as waiting nevertheless")
	}
	ledger.MarkUncertain("n1")
	ledger.Note("n1", member("a", v1alpha1.StateOpen, ""), 1)
	ledger.Set("n2", throttled, 1)
	if got := ledger.Summary("gate"); !got.ThrottledKnown || got.Throttled.Count != 1 {
		t.Errorf("%d nodes wait, known: %t; want n2", got.Throttled.Count, got.ThrottledKnown)
	}
}

// After a pause, nothing is granted before all nodes have been evaluated, not even before
// the pause has been detected, or to a node that has a reservation.
func TestNothingIsGrantedAfterAPause(t *testing.T) {
	ledger, s, now := NewLedger(), BudgetScope{Gate: "gate", Zone: "a"}, time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	ledger.SetTerms(map[string]BudgetTerms{"gate": {Budget: new(intstr.FromInt32(100)), Since: 1}})
	evaluate := func(seq uint64) {
		for _, name := range []string{"n1", "n2"} {
			ledger.Set(name, member("a", v1alpha1.StateOpen, ""), seq)
		}
		ledger.SetFleet([]string{"n1", "n2"}, seq, true)
	}
	evaluate(1)
	if ledger.Heartbeat(now) || ledger.Heartbeat(now.Add(PausedAfter)) || !ledger.Reserve(s, "n1", now.Add(2*PausedAfter)) {
		t.Fatal("a pause was detected, but there was none")
	}
	now = now.Add(time.Minute)
	granted := func() bool { // n1 has a reservation
		first, second := ledger.Reserve(s, "n1", now), ledger.Reserve(s, "n2", now)
		return first || second
	}
	if granted() {
		t.Error("budget was granted immediately after a pause")
	}
	if !ledger.Heartbeat(now) || granted() {
		t.Error("the pause was not detected")
	}
	ledger.Note("n1", member("a", v1alpha1.StateOpen, ""), 1)
	ledger.SetFleet([]string{"n1", "n2"}, 1, true)
	if granted() {
		t.Error("budget was granted before all nodes had been evaluated")
	}
	ledger.Note("n2", member("a", v1alpha1.StateOpen, ""), 1)
	ledger.SetFleet([]string{"n1", "n2"}, 1, true)
	if ledger.Heartbeat(now) || !ledger.Reserve(s, "n1", now) || !ledger.Reserve(s, "n2", now) {
		t.Error("no budget was granted after all nodes had been evaluated")
	}
}

// After the observed nodes were replaced by an earlier state, nodes that are closed may not count.
func TestNothingIsGrantedAfterARewind(t *testing.T) {
	ledger, s, now := NewLedger(), BudgetScope{Gate: "gate", Zone: "a"}, time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	rewinds := int64(3) // in an earlier term
	ledger.FollowRewinds(func() int64 { return rewinds })
	ledger.SetTerms(map[string]BudgetTerms{"gate": {Budget: new(intstr.FromInt32(100)), Since: 1}})
	evaluate := func() {
		for _, name := range []string{"n1", "n2"} {
			ledger.Note(name, member("a", v1alpha1.StateOpen, ""), 1)
		}
		ledger.SetFleet([]string{"n1", "n2"}, 1, true)
	}
	evaluate()
	if ledger.NoteRewind() || !ledger.Reserve(s, "n1", now) {
		t.Fatal("a rewind was detected, but there was none")
	}
	granted := func() bool { // n1 has a reservation
		first, second := ledger.Reserve(s, "n1", now), ledger.Reserve(s, "n2", now)
		return first || second
	}
	rewinds++
	if evaluate(); granted() {
		t.Error("budget was granted immediately after a rewind")
	}
	if !ledger.NoteRewind() || granted() {
		t.Error("the rewind was not detected")
	}
	if evaluate(); ledger.NoteRewind() || !ledger.Reserve(s, "n1", now) || !ledger.Reserve(s, "n2", now) {
		t.Error("no budget was granted after all nodes had been evaluated")
	}
}

// A gate's conditions have a count of their own, which is as large as that of its closed nodes.
func TestConditionsAreCountedSeparately(t *testing.T) {
	closing, publishing := BudgetScope{Gate: "gate", Zone: "a"}, BudgetScope{Gate: "gate", Zone: "a", Conditions: true}
	for _, c := range []struct {
		closed, published bool // n1
		closes, publishes bool // n2 may be closed, and get the condition
	}{
		{closes: true, publishes: true},
		{closed: true, publishes: true},
		{published: true, closes: true},
		{closed: true, published: true},
	} {
		ledger := NewLedger()
		ledger.SetTerms(map[string]BudgetTerms{"gate": {Budget: new(intstr.FromString("50%")), Since: 1}})
		one, other := member("a", v1alpha1.StateOpen, ""), member("a", v1alpha1.StateClosed, v1alpha1.ReasonBirth)
		if c.closed {
			one = member("a", v1alpha1.StateClosed, v1alpha1.ReasonRegression)
		}
		one[0].Published, other[0].ConditionQueued = c.published, true
		ledger.Set("n1", one, 1)
		ledger.Set("n2", other, 1)
		ledger.SetFleet([]string{"n1", "n2"}, 1, true)
		due := len(ledger.Due()) == 1
		if closes, publishes := ledger.Admits(closing, "n2"), ledger.Admits(publishing, "n2"); closes != c.closes || publishes != c.publishes || due != publishes {
			t.Errorf("%+v: n2 may be closed: %t, and get the condition: %t; it is due: %t", c, closes, publishes, due)
		}
		ledger.Forget("n1")
		ledger.Forget("n2")
		if len(ledger.gates) > 0 {
			t.Errorf("%+v: entries of forgotten nodes remain: %+v", c, ledger.gates["gate"])
		}
	}
}
