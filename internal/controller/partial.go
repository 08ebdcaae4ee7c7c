// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// In a partial reconcile of a node, only the gates that read what has changed are decided.
//
// This requires that the node is settled: its last reconcile left nothing to do (see
// gate.Decision.Settled), used the current set of gates, and was carried out. All other
// nodes are reconciled fully. So is a node that is enqueued without a recorded change:
// because time has passed, the gates have changed or a write is retried.

// addChange records what has changed on a node. The caller must enqueue the node
// afterwards.
func (s *nodeStates) addChange(node string, change gate.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.at(node)
	state.change = state.change.And(change)
}

// takeChange returns what must be reconciled on a node, and when the node must be
// reconciled fully. seq is the number of the gate set that will be used. takeChange must be
// called before facts are gathered. The node is not settled until settle is called.
func (s *nodeStates) takeChange(node string, seq uint64, now time.Time) (gate.Change, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.byName[node]
	if state == nil {
		return gate.Everything(), time.Time{}
	}
	change, recheck := state.change, state.recheck
	settled := state.settledUnder != 0 && state.settledUnder == seq
	state.change, state.settledUnder, state.recheck = gate.Change{}, 0, time.Time{}
	due := !recheck.IsZero() && !now.Before(recheck)
	if !settled || due || change.IsNothing() {
		return gate.Everything(), time.Time{}
	}
	return change, recheck
}

// settle marks a node as settled under the gate set with this number. At the time recheck,
// unless it is zero, the node must be reconciled fully.
func (s *nodeStates) settle(node string, seq uint64, recheck time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.at(node)
	state.settledUnder, state.recheck = seq, recheck
}

// affected returns the gates that must be decided for a node, all or a part, and when the
// node must be reconciled fully.
func (c *Controller) affected(node string, set *gateset.Set, now time.Time) (*gateset.Set, time.Time) {
	change, recheck := c.nodes.takeChange(node, set.Seq, now)
	if part, some := set.Parts.Touched(change); some {
		return set.Only(part), recheck
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
