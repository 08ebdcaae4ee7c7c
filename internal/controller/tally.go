// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// standing is how one gate stands on one node.
type standing struct {
	selected bool
	state    string
	reason   v1alpha1.Reason
	zone     string
	since    time.Time
	signal   string
	// blocked says what but the signal stands in the way, if anything does.
	blocked gate.Reading
	reading gate.Reading
	// doubt says which signal is unknown, where an open gate could close by it.
	doubt string
	// throttled is true of a node that waits for budget, to be closed or to be
	// looked at, and queued of one that stands in line for it.
	throttled bool
	queued    bool
	contended bool
	overdue   bool
	// stranger is true of a record that is kept although its gate is not known.
	stranger bool
	// override is what a person has the gate be, and own and ownReason are what it
	// is by itself, underOverride: while one is followed, or just ends.
	underOverride bool
	override, own string
	ownReason     v1alpha1.Reason
	// ignored says why an override is not followed, if one is there.
	ignored string
	// denied is what the API server said when it refused to have the node
	// written for this gate.
	denied string
}

// budgeted tells whether the node counts against the gate's budget. One that has
// left the gate does until it has been opened.
func (s *standing) budgeted() bool {
	state, reason := s.byItself()
	return state == v1alpha1.StateClosed && gate.IsBudgeted(reason)
}

// tally knows how every gate stands on every node, as last decided and
// written, and how many more may be closed. It feeds status, metrics and
// budgets.
type tally struct {
	mu    sync.Mutex
	gates map[string]*gateTally
	// nodes are all that were accounted for, and the set of gates (by its number)
	// in the light of which they were.
	nodes map[string]uint64
	// under names the gates under which each node stands, of which there may be
	// many more.
	under map[string][]string
	// terms are the gates' budgets, by name, as last told by agree.
	terms map[string]terms
	// settled is the newest set in the light of which the whole fleet has been
	// accounted for. Before that, what is counted may be too little.
	settled uint64
	// beaten is when the process was last known to run.
	beaten time.Time
	// slots are what nodes hold whose write is in flight. Of the doubtful ones it
	// is not known whether it was carried out.
	slots    map[string]map[slot]bool
	doubtful map[string]bool
}

// gateTally is the tally of one gate.
type gateTally struct {
	nodes map[string]standing
	zones map[string]*zoneTally
	// summary is kept until something it tells of changes.
	summary *summary
}

// zoneTally is what a budget is about: one gate in one zone. What is being
// written counts as inFlight until it counts as closed, never as both.
type zoneTally struct {
	members, closed, inFlight int
	// line are the nodes that wait for budget, in the order in which they came.
	line []string
}

func (z *zoneTally) isEmpty() bool {
	return z.members == 0 && z.closed == 0 && z.inFlight == 0 && len(z.line) == 0
}

func newTally() *tally {
	return &tally{
		gates: make(map[string]*gateTally), nodes: make(map[string]uint64), under: make(map[string][]string),
		slots: make(map[string]map[slot]bool), doubtful: make(map[string]bool),
	}
}

// set replaces what is known of a node, as decided in the light of a set of
// gates, and gives back the slots that the node holds.
func (t *tally) set(node string, standings map[string]standing, seq uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replace(node, standings)
	t.nodes[node] = seq
	t.free(node)
}

// note is like set for a node that could not be written, or of which that is not
// known: what the node holds, it keeps.
func (t *tally) note(node string, standings map[string]standing, seq uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replace(node, standings)
	t.nodes[node] = seq
}

// forget drops a node, and the slots that it holds.
func (t *tally) forget(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replace(node, nil)
	delete(t.nodes, node)
	t.free(node)
}

// names returns all nodes that were accounted for and not forgotten.
func (t *tally) names() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.nodes))
}

// summary sums a gate up. What it returns is shared and read only.
func (t *tally) summary(gateName string) *summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, ok := t.gates[gateName]
	if !ok {
		return &summary{}
	}
	if g.summary == nil {
		g.summary = summarize(g.nodes)
	}
	return g.summary
}

// strangers names gates that are not among these, and of which records are
// kept all the same, since it is not known that they were deleted.
func (t *tally) strangers(known map[string]*v1alpha1.NodeGate) (names few) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, g := range t.gates {
		if known[name] == nil {
			if g.summary == nil {
				g.summary = summarize(g.nodes)
			}
			names.addIf(g.summary.strangers > 0, name)
		}
	}
	return names
}

func (t *tally) replace(node string, standings map[string]standing) {
	under := slices.DeleteFunc(t.under[node], func(name string) bool {
		if _, is := standings[name]; is {
			return false
		}
		g := t.gates[name]
		old := g.nodes[node]
		delete(g.nodes, node)
		g.summary = nil
		t.line(slot{name, old.zone}, node, false)
		t.count(name, &old, -1)
		return true
	})
	for name, s := range standings {
		g := t.gate(name)
		old, was := g.nodes[node]
		switch {
		case !was:
			under = append(under, name)
		case old == s:
			continue
		}
		g.nodes[node] = s
		g.summary = nil
		t.count(name, &s, +1)
		t.line(slot{name, s.zone}, node, s.queued)
		if was {
			if old.zone != s.zone {
				t.line(slot{name, old.zone}, node, false)
			}
			t.count(name, &old, -1)
		}
	}
	if t.under[node] = under; len(under) == 0 {
		delete(t.under, node)
	}
}

// count adds a standing to what budgets rest on, or takes it away.
func (t *tally) count(gateName string, s *standing, by int) {
	at := slot{gateName, s.zone}
	z := t.zone(at)
	if s.selected {
		z.members += by
	}
	if s.budgeted() {
		z.closed += by
	}
	t.tidy(at)
}

func (t *tally) gate(name string) *gateTally {
	g, ok := t.gates[name]
	if !ok {
		g = &gateTally{nodes: make(map[string]standing), zones: make(map[string]*zoneTally)}
		t.gates[name] = g
	}
	return g
}

func (t *tally) zone(s slot) *zoneTally {
	g := t.gate(s.gate)
	z, ok := g.zones[s.zone]
	if !ok {
		z = &zoneTally{}
		g.zones[s.zone] = z
	}
	return z
}

// tidy drops counts, and gates, of which nothing is left.
func (t *tally) tidy(s slot) {
	g := t.gate(s.gate)
	if z := g.zones[s.zone]; z != nil && z.isEmpty() {
		delete(g.zones, s.zone)
	}
	if len(g.zones) == 0 && len(g.nodes) == 0 {
		delete(t.gates, s.gate)
	}
}
