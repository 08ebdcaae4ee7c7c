// SPDX-License-Identifier: Apache-2.0

package gateset

import (
	"time"

	"github.com/nodegate/nodegate/internal/gate"
)

// OpensTogether reports whether any gate of the set opens together.
func (s *Set) OpensTogether() bool {
	for i := range s.Gates {
		if s.Gates[i].Together != nil {
			return true
		}
	}
	return false
}

// SetGroups sets Groups in the facts about nodes, which must be all nodes of the groups.
// It does nothing if no gate opens together.
func (s *Set) SetGroups(nodes []gate.Facts, now time.Time) {
	if !s.OpensTogether() {
		return
	}
	groups := s.Groups(nodes, func(f *gate.Facts) gate.Decision { return s.Decide(f, now) })
	for i := range nodes {
		nodes[i].Groups = groups[i]
	}
}

// groupOf identifies a group.
type groupOf struct{ gate, name string }

// Groups returns what is known about the groups of each node, in the order of the nodes,
// given a function that decides about a node. A node's fitness does not depend on its
// group, so one decision about each node is sufficient.
func (s *Set) Groups(nodes []gate.Facts, decide func(*gate.Facts) gate.Decision) []map[string]gate.Group {
	members := make(map[groupOf]*gate.GroupMembers)
	for i := range nodes {
		n := &nodes[i].Node
		d := decide(&nodes[i])
		for j := range d.Verdicts {
			v := &d.Verdicts[j]
			t := s.Together(v.Gate)
			if t == nil || !v.Selected || t.Name(n.Labels) == "" {
				continue
			}
			of := groupOf{v.Gate, t.Name(n.Labels)}
			if members[of] == nil {
				members[of] = &gate.GroupMembers{}
			}
			members[of].Set(n.Name, t.Member(n.Labels, v))
		}
	}
	out := make([]map[string]gate.Group, len(nodes))
	for i := range nodes {
		n := &nodes[i].Node
		out[i] = make(map[string]gate.Group)
		for j := range s.Gates {
			if g := &s.Gates[j]; g.Together != nil {
				group := gate.Group{}
				if all := members[groupOf{g.Name, g.Together.Name(n.Labels)}]; all != nil {
					group = all.Of(n.Name)
				}
				group.Known = true
				out[i][g.Name] = group
			}
		}
	}
	return out
}
