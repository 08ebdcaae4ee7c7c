// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// partials determines which nodes are reconciled partially: only the gates that read what
// has changed are decided.
//
// This requires that the node is settled: its last reconcile left nothing to do (see
// gate.Decision.Settled), used the current set of gates, and was carried out. All other
// nodes are reconciled fully. So is a node that is enqueued without a recorded change:
// because time has passed, the gates have changed or a write is retried.
type partials struct {
	mu sync.Mutex
	// changes has what has changed on nodes since they were last reconciled.
	changes map[string]gate.Change
	// settled has the nodes that are settled under the gate set with the number seq, and
	// when they must be reconciled fully; zero for never.
	settled map[string]time.Time
	seq     uint64
}

func newPartials() *partials {
	return &partials{changes: make(map[string]gate.Change), settled: make(map[string]time.Time)}
}

// addChange records what has changed on a node. The caller must enqueue the node
// afterwards.
func (p *partials) addChange(node string, change gate.Change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changes[node] = p.changes[node].And(change)
}

// reset sets the current set of gates. No node is settled under it.
func (p *partials) reset(seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq = seq
	clear(p.settled)
}

// take returns what must be reconciled on a node, and when the node must be reconciled
// fully. It must be called before facts are gathered. The node is not settled until
// settle is called.
func (p *partials) take(node string, seq uint64, now time.Time) (gate.Change, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change := p.changes[node]
	until, settled := p.settled[node]
	delete(p.changes, node)
	delete(p.settled, node)
	due := !until.IsZero() && !now.Before(until)
	if !settled || due || seq != p.seq || change.IsNothing() {
		return gate.Everything(), time.Time{}
	}
	return change, until
}

// settle marks a node as settled under the gate set with this number. At the time until,
// unless it is zero, the node must be reconciled fully.
func (p *partials) settle(node string, seq uint64, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if seq == p.seq {
		p.settled[node] = until
	}
}

// forget drops the state of a deleted node. It keeps changes, because they may be those of
// a new node with the same name.
func (p *partials) forget(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.settled, node)
}

// affected returns the gates that must be decided for a node, all or a part, and when the
// node must be reconciled fully.
func (c *Controller) affected(node string, set *gateset.Set, now time.Time) (*gateset.Set, time.Time) {
	change, until := c.partials.take(node, set.Seq, now)
	if part, some := set.Parts.Touched(change); some {
		return set.Only(part), until
	}
	return set, time.Time{}
}

// recordStates stores in the ledger what was decided about all gates, or a part of them.
// written is false if the decision was not carried out.
func (c *Controller) recordStates(set *gateset.Set, node string, states []fleet.GateState, written bool) {
	switch {
	case set.Part != nil:
		c.ledger.Amend(node, states, set.Scope(), written)
	case written:
		c.ledger.Set(node, states, set.Seq)
	default:
		c.ledger.Note(node, states, set.Seq)
	}
}
