// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"iter"
	"maps"
	"slices"
)

// GroupMembers are the nodes of one group, by name. It counts them as they change, so that what is
// known about a group is found without reading all of its nodes: a group may be a zone, with
// thousands of them. The zero value is an empty group.
type GroupMembers struct {
	byName map[string]GroupMember
	fit    int
	// sizes contains how many nodes declare each size. Few sizes differ.
	sizes map[int]int
	// unfit contains the names of the nodes that are not fit, sorted.
	unfit []string
}

// Get returns a node as a member of the group, and whether it is one.
func (g *GroupMembers) Get(name string) (GroupMember, bool) {
	m, known := g.byName[name]
	return m, known
}

// Set adds or changes a node.
func (g *GroupMembers) Set(name string, m GroupMember) {
	g.Delete(name)
	if g.byName == nil {
		g.byName, g.sizes = make(map[string]GroupMember), make(map[int]int)
	}
	g.byName[name] = m
	g.sizes[m.Size]++
	if m.Fit {
		g.fit++
		return
	}
	at, _ := slices.BinarySearch(g.unfit, name)
	g.unfit = slices.Insert(g.unfit, at, name)
}

// Delete removes a node, if it is a member.
func (g *GroupMembers) Delete(name string) {
	m, known := g.byName[name]
	if !known {
		return
	}
	delete(g.byName, name)
	if g.sizes[m.Size]--; g.sizes[m.Size] == 0 {
		delete(g.sizes, m.Size)
	}
	if m.Fit {
		g.fit--
		return
	}
	if at, found := slices.BinarySearch(g.unfit, name); found {
		g.unfit = slices.Delete(g.unfit, at, at+1)
	}
}

// Len returns the number of nodes.
func (g *GroupMembers) Len() int { return len(g.byName) }

// All returns all nodes, in any order.
func (g *GroupMembers) All() iter.Seq2[string, GroupMember] { return maps.All(g.byName) }

// Complete reports whether enough nodes are fit.
func (g *GroupMembers) Complete(t *Together) bool {
	size := 0
	for declared := range g.sizes {
		size = max(size, declared)
	}
	needed := t.Needed(size)
	return needed > 0 && g.fit >= needed
}

// Of returns what is known about the other nodes of a node's group.
func (g *GroupMembers) Of(node string) Group {
	self, member := g.byName[node]
	of := Group{Fit: g.fit, UnfitCount: len(g.unfit)}
	for size, nodes := range g.sizes {
		if !member || size != self.Size || nodes > 1 {
			of.Size = max(of.Size, size)
		}
	}
	switch {
	case member && self.Fit:
		of.Fit--
	case member:
		of.UnfitCount--
	}
	for _, name := range g.unfit[:min(len(g.unfit), groupNames+1)] {
		if name != node && len(of.Unfit) < groupNames {
			of.Unfit = append(of.Unfit, name)
		}
	}
	return of
}
