// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"time"
)

// Gate states are stored for every node of the fleet, so they must be small. Most states of
// a gate differ only in the time. Their common part is stored once per gate, as a shape.

// nodeEntry contains the states of one node.
type nodeEntry struct {
	// seq is the number of the gate set with which the node was last evaluated.
	seq uint64
	// states are sorted by gate name.
	states []compactState
}

// stateOf returns the state of a gate on the node, or nil.
func (n *nodeEntry) stateOf(g *gateEntry) *compactState {
	if i := slices.IndexFunc(n.states, func(s compactState) bool { return s.shape.gate == g }); i >= 0 {
		return &n.states[i]
	}
	return nil
}

// isNamed reports whether a summary may name the node.
func (n *nodeEntry) isNamed() bool {
	return slices.ContainsFunc(n.states, func(s compactState) bool { return s.shape.named })
}

// equals reports whether the node has these states.
func (n *nodeEntry) equals(states []GateState) bool {
	if len(n.states) != len(states) {
		return false
	}
	for i := range states {
		if !n.states[i].equals(&states[i]) {
			return false
		}
	}
	return true
}

// shape is the common part of a gate's states on several nodes.
type shape struct {
	GateState GateState
	gate      *gateEntry
	// nodes is the number of nodes with this shape.
	nodes int
	// named reports whether a summary may name nodes with this shape.
	named bool
}

// compactState is a GateState in compact form.
type compactState struct {
	shape *shape
	// since is a Unix time in microseconds. A time.Time is three times as large.
	since int64
	// subject is the subject of the reading, such as a pod of this node. It is nil if
	// there is none, for example because the gate does not wait.
	subject *string
}

// add returns the state in compact form, and counts its node.
func (g *gateEntry) add(s *GateState) compactState {
	out := compactState{since: s.Since.UnixMicro()}
	if subject := s.Reading.Subject; subject != "" {
		out.subject = &subject
	}
	common := s.common()
	out.shape = g.shapes[common]
	if out.shape == nil {
		out.shape = &shape{GateState: common, gate: g, named: common.named()}
		g.shapes[common] = out.shape
	}
	out.shape.nodes++
	return out
}

// remove subtracts the state's node from the count of its shape.
func (g *gateEntry) remove(s *compactState) {
	if s.shape.nodes--; s.shape.nodes == 0 {
		delete(g.shapes, s.shape.GateState)
	}
}

// any reports whether any node has a shape for which is returns true.
func (g *gateEntry) any(is func(*shape) bool) bool {
	for _, s := range g.shapes {
		if is(s) {
			return true
		}
	}
	return false
}

// common returns the part of a state that other nodes may have in common.
func (s *GateState) common() GateState {
	out := *s
	out.Since, out.Reading.Subject = time.Time{}, ""
	return out
}

// GateState returns the full state.
func (s *compactState) GateState() GateState {
	out := s.shape.GateState
	out.Since = time.UnixMicro(s.since).UTC()
	if s.subject != nil {
		out.Reading.Subject = *s.subject
	}
	return out
}

// equals reports whether this is the compact form of a state.
func (s *compactState) equals(full *GateState) bool {
	subject := ""
	if s.subject != nil {
		subject = *s.subject
	}
	return s.since == full.Since.UnixMicro() && subject == full.Reading.Subject && s.shape.GateState == full.common()
}
