// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/internal/gate"
)

// slot is the right to close one node for one gate.
type slot struct{ gate, zone string }

// terms are a gate's budget, and the number of the set in which the gate became
// what it is.
type terms struct {
	budget *intstr.IntOrString
	since  uint64
}

// agree takes over the budgets of all gates.
func (t *tally) agree(all map[string]terms) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.terms = all
}

// reserve takes a slot for a node, if it is the node's turn (see admits). A node
// that has one keeps it.
func (t *tally) reserve(s slot, node string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots[node][s] {
		return true // from an earlier attempt, which failed or of which it is not known how it ended
	}
	if !t.isTurn(s, node) || t.wasPaused(now) {
		return false
	}
	t.zone(s).inFlight++
	t.line(s, node, false)
	if t.slots[node] == nil {
		t.slots[node] = make(map[slot]bool)
	}
	t.slots[node][s] = true
	return true
}

// admits tells whether reserve would give a node a slot: there is one for it
// besides those for the nodes that were in line before it.
func (t *tally) admits(s slot, node string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isTurn(s, node)
}

func (t *tally) isTurn(s slot, node string) bool {
	room, line := t.room(s), t.peek(s).line
	return room > len(line) || slices.Contains(line[:room], node)
}

// room is how many more nodes may be closed: none before it is known how many
// are. The fleet must have been accounted for since the gate became what it is.
func (t *tally) room(s slot) int {
	if !t.knows(s.gate) {
		return 0
	}
	z := t.peek(s)
	return max(gate.MaxReclosed(t.terms[s.gate].budget, z.members)-z.closed-z.inFlight, 0)
}

// due names the nodes whose turn it is. They have not heard of it.
func (t *tally) due() (nodes []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, g := range t.gates {
		for zone, z := range g.zones {
			if len(z.line) > 0 {
				nodes = append(nodes, z.line[:min(t.room(slot{name, zone}), len(z.line))]...)
			}
		}
	}
	return nodes
}

// line has a node stand in line, where it keeps its place, or not.
func (t *tally) line(s slot, node string, stands bool) {
	z := t.peek(s)
	at := slices.Index(z.line, node)
	switch {
	case stands && at < 0:
		z = t.zone(s)
		z.line = append(z.line, node)
	case !stands && at >= 0:
		z.line = slices.Delete(z.line, at, at+1)
		t.tidy(s)
	}
}

// release gives back the slots of a node whose write failed for certain, unless
// an earlier one is in doubt.
func (t *tally) release(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.doubtful[node] {
		t.free(node)
	}
}

// doubt takes note that nobody knows whether a node's write was carried out.
// What the node holds it keeps until it has been read anew.
func (t *tally) doubt(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.slots[node]) > 0 {
		t.doubtful[node] = true
	}
}

// isDoubtful tells whether a node has to be read anew before it is decided upon.
func (t *tally) isDoubtful(node string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.doubtful[node]
}

// trust takes note that the node has been read anew.
func (t *tally) trust(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.doubtful, node)
}

func (t *tally) free(node string) {
	for s := range t.slots[node] {
		t.zone(s).inFlight--
		t.tidy(s)
	}
	delete(t.slots, node)
	delete(t.doubtful, node)
}

// settle takes note that the fleet is these nodes, at the time of the set of
// this number. Nodes that came just now and have not been looked at do not hold
// up anything for long.
func (t *tally) settle(fleet []string, seq uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, node := range fleet {
		seq = min(seq, t.seqOf(node))
	}
	t.settled = max(t.settled, seq)
}

// isSettledFor tells whether settle has nothing more to find out, which takes a list
// of all nodes.
func (t *tally) isSettledFor(seq uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.settled >= seq
}

// seqOf is the number of the set in the light of which a node was last accounted
// for; zero if it never was.
func (t *tally) seqOf(node string) uint64 {
	if n, known := t.nodes[node]; known {
		return n.seq
	}
	return 0
}

// pausedAfter is after how long without a beat a process may have been replaced
// as the leader without knowing it: leases (controller-runtime's defaults) are
// given up 10 s after they were last renewed, and taken 15 s after.
const pausedAfter = 5 * time.Second

// beat takes note that the process runs, and tells whether it was paused. Then
// nobody knows how many nodes are closed until all have been looked at again.
func (t *tally) beat(now time.Time) (paused bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if paused = t.wasPaused(now); paused {
		t.settled = 0
		for _, n := range t.nodes {
			n.seq = 0
		}
	}
	t.beaten = now.Round(0)
	return paused
}

// wasPaused goes by the wall clock: a machine that sleeps stops the other one.
func (t *tally) wasPaused(now time.Time) bool {
	return !t.beaten.IsZero() && now.Round(0).Sub(t.beaten) > pausedAfter
}

// isSettled tells whether it is known how many nodes a gate holds closed.
func (t *tally) isSettled(gateName string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.knows(gateName)
}

func (t *tally) knows(gateName string) bool {
	terms, declared := t.terms[gateName]
	return declared && t.settled >= terms.since
}

// peek is zone for those who only look.
func (t *tally) peek(s slot) *zoneTally {
	if g := t.gates[s.gate]; g != nil {
		if z := g.zones[s.zone]; z != nil {
			return z
		}
	}
	return &zoneTally{}
}
