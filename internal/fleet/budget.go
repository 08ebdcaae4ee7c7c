// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/internal/gate"
)

// BudgetScope identifies the nodes that share one budget: those of a gate in a zone.
type BudgetScope struct {
	Gate, Zone string
	// Conditions selects the budget of nodes with the gate's condition (see
	// gate.WantCondition) instead of that of closed nodes. Both are equally large, and
	// are counted separately.
	Conditions bool
}

// BudgetTerms contains a gate's budget, and Since, the number of the gate set in which
// the gate last changed.
type BudgetTerms struct {
	Budget *intstr.IntOrString
	Since  uint64
}

// SetTerms sets the budgets of all gates.
func (l *Ledger) SetTerms(all map[string]BudgetTerms) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.terms = all
}

// Reserve reserves budget for a node if it is the node's turn (see Admits). It returns
// true if the node already has a reservation. After a pause or a rewind, it returns false until
// all nodes have been evaluated again, because another replica may have used up the budget, or
// nodes that are closed may not count. now must be the time of the call: an earlier time may be
// from before the pause.
func (l *Ledger) Reserve(s BudgetScope, node string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wasPaused(now) || l.wasRewound() {
		return false
	}
	if l.reservations[node][s] { // of an earlier attempt, which failed or whose outcome is unknown
		return l.counted > 0
	}
	if !l.isTurn(s, node) {
		return false
	}
	l.zone(s).inFlight++
	l.enqueue(s, node, false)
	if l.reservations[node] == nil {
		l.reservations[node] = make(map[BudgetScope]bool)
	}
	l.reservations[node][s] = true
	return true
}

// Admits reports whether Reserve would succeed: there is budget for all nodes that are
// queued before the node, and for the node itself.
func (l *Ledger) Admits(s BudgetScope, node string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isTurn(s, node)
}

func (l *Ledger) isTurn(s BudgetScope, node string) bool {
	available, queue := l.available(s), &l.peek(s).queue
	return available > queue.len() || queue.isAmongFirst(available, node)
}

// available returns how many more nodes may be closed. It is zero until all nodes have
// been evaluated since the gate last changed, because the number of closed nodes is
// unknown until then.
func (l *Ledger) available(s BudgetScope) int {
	if !l.isCounted(s.Gate) {
		return 0
	}
	z := l.peek(s)
	return max(gate.MaxReclosed(l.terms[s.Gate].Budget, l.members(s))-z.used-z.inFlight, 0)
}

// members returns the number of the gate's nodes in the zone.
func (l *Ledger) members(s BudgetScope) int {
	s.Conditions = false
	return l.peek(s).members
}

// Due returns the queued nodes for which there is budget now.
func (l *Ledger) Due() (nodes []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, g := range l.gates {
		for zone, z := range g.zones {
			if z.queue.len() > 0 {
				nodes = append(nodes, z.queue.first(l.available(zone.scope(name)))...)
			}
		}
	}
	return nodes
}

// enqueue adds a node to a queue, in which it keeps its position, or removes it.
func (l *Ledger) enqueue(s BudgetScope, node string, queued bool) {
	if queued {
		l.zone(s).queue.add(node)
	} else if l.peek(s).queue.remove(node) {
		l.tidy(s)
	}
}

// Queued returns the nodes that are queued for budget, in order.
func (l *Ledger) Queued(s BudgetScope) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := &l.peek(s).queue
	return queue.first(queue.len())
}

// Reserving returns the nodes that hold reservations, unsorted.
func (l *Ledger) Reserving() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	nodes := slices.Collect(maps.Keys(l.reservations))
	return slices.AppendSeq(nodes, maps.Keys(l.uncertain))
}

// Release releases the reservations of a node whose write has certainly failed, unless
// the outcome of an earlier write is uncertain.
func (l *Ledger) Release(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.uncertain[node] {
		l.free(node)
	}
}

// MarkUncertain records that the outcome of a node's write is unknown. The node keeps its
// reservations until it has been read again.
func (l *Ledger) MarkUncertain(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.reservations[node]) > 0 {
		l.uncertain[node] = true
	}
}

// IsUncertain reports whether a node must be read again before it is evaluated.
func (l *Ledger) IsUncertain(node string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.uncertain[node]
}

// MarkCertain records that a node has been read again.
func (l *Ledger) MarkCertain(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.uncertain, node)
}

func (l *Ledger) free(node string) {
	for s := range l.reservations[node] {
		l.zone(s).inFlight--
		l.tidy(s)
	}
	delete(l.reservations, node)
	delete(l.uncertain, node)
}

// SetFleet records that the fleet consists of these nodes, and reports whether all of them have
// been evaluated with the gate set seq or a later one. If mayCount is false, another replica may
// still close nodes, so budget is not granted yet. A new node that has not been evaluated delays
// the count only briefly.
func (l *Ledger) SetFleet(fleet []string, seq uint64, mayCount bool) (complete bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	with := seq
	for _, node := range fleet {
		with = min(with, l.seqOf(node))
	}
	l.evaluated = max(l.evaluated, with)
	if mayCount {
		l.counted = max(l.counted, with)
	}
	return with == seq
}

// IsEvaluated reports whether the whole fleet has been evaluated since a gate last changed.
func (l *Ledger) IsEvaluated(gateName string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	terms, declared := l.terms[gateName]
	return declared && l.evaluated >= terms.Since
}

// IsCountedFor reports whether the whole fleet has been evaluated with this gate set or a
// later one. If so, the caller need not list all nodes and call SetFleet.
func (l *Ledger) IsCountedFor(seq uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counted >= seq
}

// seqOf returns the number of the gate set with which a node was last evaluated, or zero.
func (l *Ledger) seqOf(node string) uint64 {
	if n, known := l.nodes[node]; known {
		return n.seq
	}
	return 0
}

// PausedAfter is the time without a heartbeat after which a process must not rely on its
// counts. Another replica may have become the leader; it grants no budget for longer than
// this after it has taken over.
const PausedAfter = 5 * time.Second

// Heartbeat records that the process is running, and returns whether it was paused. After
// a pause, the number of closed nodes is unknown until all nodes have been evaluated
// again.
func (l *Ledger) Heartbeat(now time.Time) (paused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if paused = l.wasPaused(now); paused {
		l.discount()
	}
	l.lastHeartbeat = now.Round(0)
	return paused
}

// NoteRewind returns whether the observed nodes were replaced by an earlier state since it was last
// called. If so, the number of closed nodes is unknown until all nodes have been evaluated again.
func (l *Ledger) NoteRewind() (rewound bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rewound = l.wasRewound(); rewound {
		l.rewound = l.rewinds()
		l.discount()
	}
	return rewound
}

// Recount makes the number of closed nodes unknown until all nodes have been evaluated again.
func (l *Ledger) Recount() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.discount()
}

// discount records that no node has been evaluated.
func (l *Ledger) discount() {
	l.evaluated, l.counted = 0, 0 // sets are numbered from 1
	for _, n := range l.nodes {
		n.seq = 0
	}
}

func (l *Ledger) wasRewound() bool { return l.rewinds() != l.rewound }

// wasPaused uses the wall clock, because the monotonic clock stops while a machine is
// suspended.
func (l *Ledger) wasPaused(now time.Time) bool {
	return !l.lastHeartbeat.IsZero() && now.Round(0).Sub(l.lastHeartbeat) > PausedAfter
}

// IsCounted reports whether the number of nodes that a gate keeps closed is known.
func (l *Ledger) IsCounted(gateName string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isCounted(gateName)
}

func (l *Ledger) isCounted(gateName string) bool {
	terms, declared := l.terms[gateName]
	return declared && l.counted >= terms.Since
}

// exceedsBudget reports whether the budget of any zone does not allow closing all of the gate's
// throttled nodes besides the nodes that are closed or being closed. Nodes that are recorded as
// throttled although they hold a reservation, because they have not been written since, do not wait.
func (l *Ledger) exceedsBudget(g *gateEntry) bool {
	waiting := make(map[BudgetScope]int)
	for _, s := range g.shapes {
		if s.GateState.Throttled {
			waiting[s.GateState.scope()] += s.nodes
		}
	}
	for node, scopes := range l.reservations {
		if at := l.throttledIn(g, node); scopes[at] {
			waiting[at]--
		}
	}
	for scope, nodes := range waiting {
		if z := l.peek(scope); nodes > 0 && z.used+z.inFlight+nodes > gate.MaxReclosed(l.terms[g.name].Budget, z.members) {
			return true
		}
	}
	return false
}

// throttledIn returns the budget that a node is recorded to wait for, or an empty scope.
func (l *Ledger) throttledIn(g *gateEntry, node string) BudgetScope {
	if n, known := l.nodes[node]; known {
		if s := n.stateOf(g); s != nil && s.shape.GateState.Throttled {
			return s.shape.GateState.scope()
		}
	}
	return BudgetScope{}
}

// peek is like zone, without creating an entry.
func (l *Ledger) peek(s BudgetScope) *zoneEntry {
	if g := l.gates[s.Gate]; g != nil {
		if z := g.zones[s.zone()]; z != nil {
			return z
		}
	}
	return &zoneEntry{}
}

// CountInterval is the interval at which to check whether the whole fleet has been
// evaluated, so that budget can be granted, and which queued nodes are due.
const CountInterval = time.Second

// count adds a state to the counts of its zone, or subtracts it.
func (l *Ledger) count(s *GateState, by int) {
	at := s.scope()
	z := l.zone(at)
	if s.Selected {
		z.members += by
	}
	if s.budgeted() {
		z.used += by
	}
	l.tidy(at)
	if s.Published {
		at = s.conditionScope()
		l.zone(at).used += by
		l.tidy(at)
	}
}
