// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"slices"
	"sync"

	"github.com/nodegate/nodegate/internal/gate"
)

// Groups is the ledger of fitness: which nodes are fit in their groups, for gates that open
// together. A decision about a node reads it as a fact (Of), and its result is stored (Put).
// When that changes whether a group is complete, the other nodes must be reconciled.
//
// It is derived from decisions only. After a restart it is empty, and complete again when
// every node has been decided once. A gate that changes starts again in the same way: what
// was fit by its former signals is not known to be fit by the new ones.
//
// The cost of a call does not depend on the size of the group, unless the group becomes complete or
// incomplete.
type Groups struct {
	mu    sync.Mutex
	gates map[string]*gateGroups
}

// gateGroups contains the groups of one gate.
type gateGroups struct {
	// since is the number of the gate set in which the gate last changed.
	since uint64
	// names contains the name of each node's group.
	names  map[string]string
	groups map[string]*group
}

// group contains the nodes of one group.
type group struct {
	members gate.GroupMembers
	// complete reports whether enough nodes are fit. outdated is true if the nodes that
	// wait for the group were decided before it last changed.
	complete, outdated bool
}

// GroupKey identifies the group of a node for one gate. Since is the number of the gate
// set in which the gate last changed.
type GroupKey struct {
	Gate  string
	Since uint64
	Name  string
}

// NewGroups returns an empty ledger.
func NewGroups() *Groups { return &Groups{gates: make(map[string]*gateGroups)} }

// Of returns what is known about the other nodes of a node's group.
func (l *Groups) Of(key GroupKey, node string) gate.Group {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.gates[key.Gate]
	if g == nil || g.since != key.Since || g.groups[key.Name] == nil {
		return gate.Group{}
	}
	return g.groups[key.Name].members.Of(node)
}

// Put stores a node's fitness in its group; it leaves its former group. An empty name of
// the group means that the node has none. Put returns the nodes that must be reconciled,
// because it has changed whether their group is complete. The node itself is one of them:
// it may have been decided before the others changed. So is a node that joins a group, if it
// waits although the group is complete, or if the gate closes together.
func (l *Groups) Put(key GroupKey, t *gate.Together, node string, m gate.GroupMember) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.gates[key.Gate]
	switch {
	case g == nil && key.Name == "", g != nil && g.since > key.Since: // decided with an outdated gate
		return nil
	case g == nil, g.since < key.Since:
		g = &gateGroups{since: key.Since, names: make(map[string]string), groups: make(map[string]*group)}
		l.gates[key.Gate] = g
	}
	var affected []string
	if was := g.names[node]; was != key.Name {
		affected = g.leave(t, node)
	}
	if key.Name == "" {
		return affected
	}
	of := g.groups[key.Name]
	if of == nil {
		of = &group{}
		g.groups[key.Name] = of
	}
	g.names[node] = key.Name
	before, known := of.members.Get(node)
	if known && before == m {
		return affected
	}
	of.members.Set(node, m)
	changed := of.update(t)
	// A node that joins was not told what changed while it was decided: that the group became
	// complete, for which it waits, or incomplete, for which it may have to close.
	missed := !known && (t.Closes || m.Waits && of.complete)
	if missed && !slices.Contains(changed, node) {
		changed = append(changed, node)
	}
	return append(affected, changed...)
}

// leave removes a node from its group. It returns the nodes that must be reconciled.
func (g *gateGroups) leave(t *gate.Together, node string) []string {
	name := g.names[node]
	of := g.groups[name]
	if of == nil {
		return nil
	}
	delete(g.names, node)
	if of.members.Delete(node); of.members.Len() == 0 {
		delete(g.groups, name)
		return nil
	}
	return of.update(t)
}

// update determines whether a group is complete, and returns its nodes if that has
// changed.
func (of *group) update(t *gate.Together) []string {
	complete := of.members.Complete(t)
	if of.outdated = complete == of.complete; of.outdated {
		return nil
	}
	of.complete = complete
	var nodes []string
	for name := range of.members.All() {
		nodes = append(nodes, name)
	}
	return nodes
}

// Forget drops a deleted node. together returns the openTogether of a gate, or nil if it
// has none. Forget returns the nodes that must be reconciled, by gate.
func (l *Groups) Forget(node string, together func(gate string) *gate.Together) map[string][]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var affected map[string][]string
	for name, g := range l.gates {
		t := together(name)
		if t == nil {
			continue
		}
		if nodes := g.leave(t, node); len(nodes) > 0 {
			if affected == nil {
				affected = make(map[string][]string)
			}
			affected[name] = nodes
		}
	}
	return affected
}

// Keep drops all gates that do not open together, according to a function like that of
// Forget.
func (l *Groups) Keep(together func(gate string) *gate.Together) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.gates, func(name string, _ *gateGroups) bool { return together(name) == nil })
}

// Outdated returns the nodes whose decision does not depend on a change of their group, but
// whose explanation does: they wait for a group that is still incomplete. It returns each
// change once.
func (l *Groups) Outdated() (nodes []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.gates {
		for _, of := range g.groups {
			if !of.outdated {
				continue
			}
			of.outdated = false
			for name, m := range of.members.All() {
				if m.Waits {
					nodes = append(nodes, name)
				}
			}
		}
	}
	return nodes
}

// Count returns the number of complete and incomplete groups of a gate.
func (l *Groups) Count(gateName string) (complete, incomplete int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.gates[gateName]; g != nil {
		for _, of := range g.groups {
			if of.complete {
				complete++
			} else {
				incomplete++
			}
		}
	}
	return complete, incomplete
}
