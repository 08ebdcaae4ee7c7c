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
	gate     string
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
	// nodes are all that were accounted for.
	nodes map[string]*nodeTally
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
	name string
	// shapes are how the gate stands on nodes, each once.
	shapes map[standing]*shape
	zones  map[string]*zoneTally
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
		gates: make(map[string]*gateTally), nodes: make(map[string]*nodeTally),
		slots: make(map[string]map[slot]bool), doubtful: make(map[string]bool),
	}
}

// set replaces what is known of a node, as decided in the light of a set of
// gates, and gives back the slots that the node holds. The standings are in the
// order of their gates' names.
func (t *tally) set(node string, standings []standing, seq uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replace(node, standings, nil).seq = seq
	t.free(node)
}

// note is like set for a node that could not be written, or of which that is not
// known: what the node holds, it keeps.
func (t *tally) note(node string, standings []standing, seq uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replace(node, standings, nil).seq = seq
}

// amend replaces what is known of a node for the gates that are covered, and gives back
// the slots that the node holds if it was written. What is known for others stays, and so
// does in the light of which gates that was decided.
func (t *tally) amend(node string, standings []standing, covers func(gate string) bool, written bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.replace(node, standings, covers); written {
		t.free(node)
	}
}

// forget drops a node, and the slots that it holds.
func (t *tally) forget(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n, known := t.nodes[node]; known {
		for i := range n.stands {
			t.leave(node, &n.stands[i])
		}
		delete(t.nodes, node)
	}
	t.free(node)
}

// names returns all nodes that were accounted for and not forgotten.
func (t *tally) names() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.nodes))
}

// replace makes these the standings of a node under the gates that are covered, or
// all where covers is nil.
func (t *tally) replace(node string, standings []standing, covers func(gate string) bool) *nodeTally {
	n, known := t.nodes[node]
	if !known {
		n = &nodeTally{}
		t.nodes[node] = n
	}
	if covers == nil && n.isAs(standings) {
		return n
	}
	before, after := n.stands, make([]stand, 0, max(len(n.stands), len(standings)))
	pass := func(old *stand) { // a gate under which the node is said to be no more, or not spoken of
		if covers == nil || covers(old.shape.gate.name) {
			t.leave(node, old)
		} else {
			after = append(after, *old)
		}
	}
	for i := range standings {
		s := &standings[i]
		for len(before) > 0 && before[0].shape.gate.name < s.gate {
			pass(&before[0])
			before = before[1:]
		}
		var old *stand
		if len(before) > 0 && before[0].shape.gate.name == s.gate {
			old, before = &before[0], before[1:]
		}
		after = append(after, t.change(node, old, s))
	}
	for i := range before {
		pass(&before[i])
	}
	n.stands = after
	return n
}

// change has a gate stand on a node as it does now. Old is how it stood; nil if
// the node was not under it.
func (t *tally) change(node string, old *stand, s *standing) stand {
	if old != nil && old.is(s) {
		return *old
	}
	g := t.gate(s.gate)
	g.summary = nil
	now := g.keep(s)
	t.count(s, +1)
	t.line(slot{s.gate, s.zone}, node, s.queued)
	if old != nil {
		was := &old.shape.standing
		if was.zone != s.zone {
			t.line(slot{s.gate, was.zone}, node, false)
		}
		g.drop(old)
		t.count(was, -1)
	}
	return now
}

// leave takes a node from under a gate.
func (t *tally) leave(node string, old *stand) {
	g, was := old.shape.gate, &old.shape.standing
	g.summary = nil
	g.drop(old)
	t.line(slot{g.name, was.zone}, node, false)
	t.count(was, -1)
}

// count adds a standing to what budgets rest on, or takes it away.
func (t *tally) count(s *standing, by int) {
	at := slot{s.gate, s.zone}
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
		g = &gateTally{name: name, shapes: make(map[standing]*shape), zones: make(map[string]*zoneTally)}
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
	if len(g.zones) == 0 && len(g.shapes) == 0 {
		delete(t.gates, s.gate)
	}
}
