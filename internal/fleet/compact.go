// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"time"
)

// How gates stand on nodes is kept for each node of the fleet, so that it is kept
// small: most nodes stand alike, but for since when. What is alike is kept once for
// each gate, as a shape.

// nodeEntry contains the states of one node.
type nodeEntry struct {
	// seq is the number of the gate set with which the node was last evaluated.
	seq uint64
	// stands are in the order of their gates' names.
	stands []compactState
}

// under is how a gate stands on the node; nil if the node is not under it.
func (n *nodeEntry) under(g *gateEntry) *compactState {
	if i := slices.IndexFunc(n.stands, func(s compactState) bool { return s.shape.gate == g }); i >= 0 {
		return &n.stands[i]
	}
	return nil
}

// isAs tells whether this is how the gates stand on the node.
func (n *nodeEntry) isAs(standings []GateState) bool {
	if len(n.stands) != len(standings) {
		return false
	}
	for i := range standings {
		if !n.stands[i].is(&standings[i]) {
			return false
		}
	}
	return true
}

// shape is how a gate stands on nodes, but for what is each node's own.
type shape struct {
	GateState GateState
	gate      *gateEntry
	// nodes counts those on which the gate stands so.
	nodes int
	// named is true where a summary may name nodes on which the gate stands so.
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

// keep returns a standing as it is kept.
func (g *gateEntry) keep(s *GateState) compactState {
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

// drop gives up what is kept of a standing.
func (g *gateEntry) drop(s *compactState) {
	if s.shape.nodes--; s.shape.nodes == 0 {
		delete(g.shapes, s.shape.GateState)
	}
}

// common is what of a standing other nodes may have in common.
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

// is tells whether this was kept.
func (s *compactState) is(now *GateState) bool {
	subject := ""
	if s.subject != nil {
		subject = *s.subject
	}
	return s.since == now.Since.UnixMicro() && subject == now.Reading.Subject && s.shape.GateState == now.common()
}
