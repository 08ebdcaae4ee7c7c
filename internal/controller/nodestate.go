// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/write"
)

// nodeStates has what the controller stores about each node between two reconciles.
// Losing it only causes a delay. The state of gates on nodes is in the ledger.
type nodeStates struct {
	mu     sync.Mutex
	byName map[string]*nodeState
}

// nodeState is the state of the nodes with one name. What depends on the Node itself also
// has its UID.
type nodeState struct {
	// change is what has changed since the node was last reconciled.
	change gate.Change
	// settledUnder is the number of the gate set under which the node is settled, or 0. At
	// the time recheck, unless it is zero, the node must be reconciled fully.
	settledUnder uint64
	recheck      time.Time
	// carried is what the last decision hands on to the next one; may be nil.
	carried *carried
	// signals has signals of closed gates that hold; may be nil.
	signals *heldSignals
	// ignored has the overrides that are ignored, by gate, with the cause.
	ignored map[string]string
	// lost is the last write with transitions whose outcome is unknown; may be nil.
	lost *gateset.Transitions
	// failures counts consecutive failures to write the node.
	failures failures
}

type failures struct {
	denied bool
	count  int
	// since is the time of the first of them.
	since time.Time
}

func newNodeStates() *nodeStates { return &nodeStates{byName: make(map[string]*nodeState)} }

// at returns the state of a node, which is created if it does not exist. The caller must
// hold the lock.
func (s *nodeStates) at(node string) *nodeState {
	state := s.byName[node]
	if state == nil {
		state = &nodeState{}
		s.byName[node] = state
	}
	return state
}

// names returns the names of all nodes with a state. They include every node that has changed or
// has been reconciled and has not been forgotten.
func (s *nodeStates) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.byName))
}

// forget drops the state of a deleted node. It keeps the change, because it may be that of
// a new node with the same name.
func (s *nodeStates) forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.byName[node]
	if delete(s.byName, node); state != nil && !state.change.IsNothing() {
		s.byName[node] = &nodeState{change: state.change}
	}
}

// newlyIgnored stores the overrides of a node that are not followed, with the cause. It
// returns those that were not stored with the same cause before.
func (s *nodeStates) newlyIgnored(node string, ignored map[string]string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.at(node)
	var added map[string]string
	for name, why := range ignored {
		if before, known := state.ignored[name]; !known || before != why {
			put(&added, name, why)
		}
	}
	if state.ignored = ignored; len(ignored) == 0 {
		state.ignored = nil
	}
	return added
}

// failed counts a failed write of a node, and returns the number of consecutive previous
// failures of its kind.
func (s *nodeStates) failed(node string, denied bool, now time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &s.at(node).failures
	if f.denied != denied || f.count == 0 {
		*f = failures{denied: denied, since: now}
	}
	f.count++
	return f.count - 1
}

// failingSince returns the time since which all writes of a node have failed without being denied, or
// zero if the last one did not.
func (s *nodeStates) failingSince(node string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.byName[node]
	if state == nil || state.failures.denied {
		return time.Time{}
	}
	return state.failures.since
}

// succeeded resets the count of failures, and reports whether there were any.
func (s *nodeStates) succeeded(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.byName[node]
	if state == nil || state.failures.count == 0 {
		return false
	}
	state.failures = failures{}
	return true
}

// noteWrite keeps the transitions of a write if its outcome is unknown.
func (s *nodeStates) noteWrite(set *gateset.Set, n *gate.Node, d *gate.Decision, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		if state := s.byName[n.Name]; state != nil && state.lost != nil && state.lost.Share(d.Records) {
			state.lost = nil
		}
	case write.IsUncertain(err):
		if t := gateset.TransitionsOf(set, n, d); t != nil {
			s.at(n.Name).lost = t
		}
	}
}

// carriedOut returns, once, the transitions of a lost write that the node shows.
func (s *nodeStates) carriedOut(n *gate.Node) *gateset.Transitions {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.byName[n.Name]
	if state == nil || state.lost == nil || !state.lost.AreOn(n) {
		return nil
	}
	lost := state.lost
	state.lost = nil
	return lost
}
