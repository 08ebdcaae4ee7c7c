// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"time"
)

// How gates stand on nodes is kept for each node of the fleet, so that it is kept
// small: most nodes stand alike, but for since when. What is alike is kept once for
// each gate, as a shape.

// nodeTally is the tally of one node.
type nodeTally struct {
	// seq is the number of the set of gates in the light of which the node was last
	// accounted for.
	seq uint64
	// stands are in the order of their gates' names.
	stands []stand
}

// under is how a gate stands on the node; nil if the node is not under it.
func (n *nodeTally) under(g *gateTally) *stand {
	if i := slices.IndexFunc(n.stands, func(s stand) bool { return s.shape.gate == g }); i >= 0 {
		return &n.stands[i]
	}
	return nil
}

// isAs tells whether this is how the gates stand on the node.
func (n *nodeTally) isAs(standings []standing) bool {
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
	standing standing
	gate     *gateTally
	// nodes counts those on which the gate stands so.
	nodes int
	// named is true where a summary may name nodes on which the gate stands so.
	named bool
}

// stand is a standing as it is kept.
type stand struct {
	shape *shape
	// since is in microseconds of Unix time: a time.Time is three times as large.
	since int64
	// subject is what the reading is about, such as a pod of this node. Nil for
	// nothing, which it is where the gate waits for nothing.
	subject *string
}

// keep returns a standing as it is kept.
func (g *gateTally) keep(s *standing) stand {
	out := stand{since: s.since.UnixMicro()}
	if subject := s.reading.Subject; subject != "" {
		out.subject = &subject
	}
	common := s.common()
	out.shape = g.shapes[common]
	if out.shape == nil {
		out.shape = &shape{standing: common, gate: g, named: common.named()}
		g.shapes[common] = out.shape
	}
	out.shape.nodes++
	return out
}

// drop gives up what is kept of a standing.
func (g *gateTally) drop(s *stand) {
	if s.shape.nodes--; s.shape.nodes == 0 {
		delete(g.shapes, s.shape.standing)
	}
}

// common is what of a standing other nodes may have in common.
func (s *standing) common() standing {
	out := *s
	out.since, out.reading.Subject = time.Time{}, ""
	return out
}

// standing returns what was kept.
func (s *stand) standing() standing {
	out := s.shape.standing
	out.since = time.UnixMicro(s.since).UTC()
	if s.subject != nil {
		out.reading.Subject = *s.subject
	}
	return out
}

// is tells whether this was kept.
func (s *stand) is(now *standing) bool {
	subject := ""
	if s.subject != nil {
		subject = *s.subject
	}
	return s.since == now.since.UnixMicro() && subject == now.reading.Subject && s.shape.standing == now.common()
}
