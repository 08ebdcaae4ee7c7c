// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"sync"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// GateState is the state of one gate on one node.
type GateState struct {
	Gate     string
	Selected bool
	State    string
	Reason   v1alpha1.Reason
	Zone     string
	Since    time.Time
	Signal   string
	// Blocked is the reading of what prevents the gate from opening apart from its signals.
	Blocked gate.Reading
	Reading gate.Reading
	// undecided names the signal that is unknown and could close an open gate, or is "".
	undecided string
	// Throttled reports whether the node waits for budget: to be closed, or to be checked
	// for idleness. Queued reports whether it is queued for it.
	Throttled bool
	Queued    bool
	Contended bool
	Overdue   bool
	// Published reports whether the node has the gate's condition. ConditionQueued reports
	// whether it is queued for budget to get it.
	Published, ConditionQueued bool
	// Ring contains the names of the gates that contradict each other on the node,
	// including this gate.
	Ring string
	// NonMember is why a selected node is not a member of the gate, or "".
	NonMember v1alpha1.NonMemberReason
	// Unlisted reports whether this is the state of a record whose gate is not listed.
	Unlisted bool
	// Override is the state that a manual override requests. While an override is
	// followed or has just ended, underOverride is true, and own and ownReason are the
	// gate's state and reason apart from the override.
	underOverride bool
	Override, own string
	ownReason     v1alpha1.Reason
	// Ignored is why an override is ignored, or "".
	Ignored string
	// Denied is the API server's error if it denied writing the node for this gate. Failed is the error
	// if writing has failed for another reason, and FailedLong reports whether it has for a while.
	Denied, Failed string
	FailedLong     bool
}

// scope and conditionScope return the budgets that the node may count against.
func (s *GateState) scope() BudgetScope { return BudgetScope{Gate: s.Gate, Zone: s.Zone} }
func (s *GateState) conditionScope() BudgetScope {
	return BudgetScope{Gate: s.Gate, Zone: s.Zone, Conditions: true}
}

// budgeted reports whether the node counts against the gate's budget. A node that is no
// longer a member counts until it has been opened.
func (s *GateState) budgeted() bool {
	state, reason := s.withoutOverride()
	return state == v1alpha1.StateClosed && gate.IsBudgeted(reason)
}

// Ledger holds the state of every gate on every node, as last decided and written, and the
// reservations of budgets. Status, metrics and budgets are computed from it.
type Ledger struct {
	mu    sync.Mutex
	gates map[string]*gateEntry
	// nodes contains all nodes that have been evaluated.
	nodes map[string]*nodeEntry
	// named contains those of nodes that a summary may name, which are few in most fleets.
	named map[string]*nodeEntry
	// terms contains the budgets by gate, as set by SetTerms.
	terms map[string]BudgetTerms
	// evaluated is the number of the latest gate set with which the whole fleet has been
	// evaluated. counted is the same, but only if no other replica could close nodes any
	// more: until then, counts may be too low.
	evaluated, counted uint64
	// lastHeartbeat is the time at which the process was last known to run.
	lastHeartbeat time.Time
	// rewinds returns how often the observed nodes were replaced by an earlier state. rewound is
	// the number for which the nodes were counted.
	rewinds func() int64
	rewound int64
	// reservations contains the reservations of nodes whose write is in flight. It is unknown
	// whether the write of an uncertain node succeeded.
	reservations map[string]map[BudgetScope]bool
	uncertain    map[string]bool
}

// gateEntry contains the states of one gate.
type gateEntry struct {
	name string
	// shapes contains the shapes of the gate's states, by common part.
	shapes map[GateState]*shape
	zones  map[zoneKey]*zoneEntry
	// summary is cached until something in it changes.
	summary *Summary
}

// zoneKey is a BudgetScope of one gate.
type zoneKey struct {
	zone       string
	conditions bool
}

func (s BudgetScope) zone() zoneKey { return zoneKey{s.Zone, s.Conditions} }
func (k zoneKey) scope(gateName string) BudgetScope {
	return BudgetScope{gateName, k.zone, k.conditions}
}

// zoneEntry counts the nodes of one gate in one zone, which share a budget. Used counts
// the nodes that are closed or have the condition, depending on the scope. A node whose
// write is in flight counts as inFlight until it counts as used, and never as both.
type zoneEntry struct {
	members, used, inFlight int
	// queue contains the nodes that wait for budget, in order of arrival.
	queue queue
}

func (z *zoneEntry) isEmpty() bool {
	return z.members == 0 && z.used == 0 && z.inFlight == 0 && z.queue.len() == 0
}

// NewLedger returns an empty Ledger.
func NewLedger() *Ledger {
	return &Ledger{
		gates: make(map[string]*gateEntry), nodes: make(map[string]*nodeEntry), named: make(map[string]*nodeEntry),
		reservations: make(map[string]map[BudgetScope]bool), uncertain: make(map[string]bool),
		rewinds: func() int64 { return 0 },
	}
}

// FollowRewinds makes the ledger grant nothing after the observed nodes were replaced by an earlier
// state, until NoteRewind is called, and all nodes have been evaluated again. rewinds returns how often
// that has happened.
func (l *Ledger) FollowRewinds(rewinds func() int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rewinds, l.rewound = rewinds, rewinds()
}

// Set replaces the states of a node, which was evaluated with the gate set seq, and
// releases its reservations. The states must be sorted by gate name.
func (l *Ledger) Set(node string, states []GateState, seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replace(node, states, nil).seq = seq
	l.free(node)
}

// Note is like Set for a node whose write failed or may have failed: it keeps its
// reservations.
func (l *Ledger) Note(node string, states []GateState, seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replace(node, states, nil).seq = seq
}

// Amend replaces the states of a node for the gates that are covered, and releases its
// reservations if it was written. The states of other gates, and the number of the gate
// set, do not change.
func (l *Ledger) Amend(node string, states []GateState, covers func(gate string) bool, written bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.replace(node, states, covers); written {
		l.free(node)
	}
}

// Forget drops a node and its reservations.
func (l *Ledger) Forget(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n, known := l.nodes[node]; known {
		for i := range n.states {
			l.leave(node, &n.states[i])
		}
		delete(l.nodes, node)
		delete(l.named, node)
	}
	l.free(node)
}

// replace replaces the states of a node for the gates that are covered, or for all gates
// if covers is nil.
func (l *Ledger) replace(node string, states []GateState, covers func(gate string) bool) *nodeEntry {
	n, known := l.nodes[node]
	if !known {
		n = &nodeEntry{}
		l.nodes[node] = n
	}
	if covers == nil && n.equals(states) {
		return n
	}
	before, after := n.states, make([]compactState, 0, max(len(n.states), len(states)))
	pass := func(old *compactState) { // a gate that has no new state: it is removed if it is covered, or else kept
		if covers == nil || covers(old.shape.gate.name) {
			l.leave(node, old)
		} else {
			after = append(after, *old)
		}
	}
	for i := range states {
		s := &states[i]
		for len(before) > 0 && before[0].shape.gate.name < s.Gate {
			pass(&before[0])
			before = before[1:]
		}
		var old *compactState
		if len(before) > 0 && before[0].shape.gate.name == s.Gate {
			old, before = &before[0], before[1:]
		}
		after = append(after, l.change(node, old, s))
	}
	for i := range before {
		pass(&before[i])
	}
	n.states = after
	if n.isNamed() {
		l.named[node] = n
	} else {
		delete(l.named, node)
	}
	return n
}

// change replaces the state of a gate on a node and returns its compact form. old is nil if
// the gate had no state on the node.
func (l *Ledger) change(node string, old *compactState, s *GateState) compactState {
	if old != nil && old.equals(s) {
		return *old
	}
	g := l.gate(s.Gate)
	g.summary = nil
	now := g.add(s)
	l.count(s, +1)
	l.enqueue(s.scope(), node, s.Queued)
	l.enqueue(s.conditionScope(), node, s.ConditionQueued)
	if old != nil {
		was := &old.shape.GateState
		if was.Zone != s.Zone {
			l.enqueue(was.scope(), node, false)
			l.enqueue(was.conditionScope(), node, false)
		}
		g.remove(old)
		l.count(was, -1)
	}
	return now
}

// leave removes the state of a gate on a node.
func (l *Ledger) leave(node string, old *compactState) {
	g, was := old.shape.gate, &old.shape.GateState
	g.summary = nil
	g.remove(old)
	l.enqueue(was.scope(), node, false)
	l.enqueue(was.conditionScope(), node, false)
	l.count(was, -1)
}

func (l *Ledger) gate(name string) *gateEntry {
	g, ok := l.gates[name]
	if !ok {
		g = &gateEntry{name: name, shapes: make(map[GateState]*shape), zones: make(map[zoneKey]*zoneEntry)}
		l.gates[name] = g
	}
	return g
}

func (l *Ledger) zone(s BudgetScope) *zoneEntry {
	g := l.gate(s.Gate)
	z, ok := g.zones[s.zone()]
	if !ok {
		z = &zoneEntry{}
		g.zones[s.zone()] = z
	}
	return z
}

// tidy drops entries of zones and gates that are empty.
func (l *Ledger) tidy(s BudgetScope) {
	g := l.gate(s.Gate)
	if z := g.zones[s.zone()]; z != nil && z.isEmpty() {
		delete(g.zones, s.zone())
	}
	if len(g.zones) == 0 && len(g.shapes) == 0 {
		delete(l.gates, s.Gate)
	}
}
