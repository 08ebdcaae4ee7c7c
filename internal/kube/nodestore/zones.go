// SPDX-License-Identifier: Apache-2.0

package nodestore

import (
	"maps"
	"slices"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/packed"
)

// Zones counts nodes by the value of their zone label. Nodes without the label form one
// zone.
type Zones map[string]*zone

type zone struct {
	nodes       int
	unreachable map[string]bool
}

func (z *zone) counts() gate.Zone { return gate.Zone{Nodes: z.nodes, Silent: len(z.unreachable)} }

// resident contains those facts about a node that Zones uses.
type resident struct {
	name, zone  string
	unreachable bool
}

// residentOf returns the resident of a stored node, or nil.
func residentOf(n *packed.Node) *resident {
	if n == nil {
		return nil
	}
	return &resident{name: n.Name, zone: n.Zone(), unreachable: n.Silent()}
}

// residentOfFacts returns the resident of a node that is not stored.
func residentOfFacts(n *gate.Node) *resident {
	return &resident{name: n.Name, zone: n.Zone(), unreachable: n.Silent()}
}

// Count adds a node that has not been counted.
func (z Zones) Count(n *gate.Node) { z.move(nil, residentOfFacts(n)) }

// Of returns the counts of a zone.
func (z Zones) Of(name string) gate.Zone {
	if zone, ok := z[name]; ok {
		return zone.counts()
	}
	return gate.Zone{}
}

// move replaces a node's old state by its new one; either may be nil. It returns the
// unreachable nodes of zones that have become partitioned or have ceased to be.
func (z Zones) move(old, now *resident) []string {
	var affected []string
	for _, n := range []*resident{old, now} {
		if n != nil && !slices.Contains(affected, n.zone) {
			affected = append(affected, n.zone)
		}
	}
	before := make([]bool, len(affected))
	for i, name := range affected {
		before[i] = z.partitioned(name)
	}
	z.leave(old)
	z.enter(now)
	var changed []string
	for i, name := range affected {
		if z.partitioned(name) != before[i] && z[name] != nil {
			changed = slices.AppendSeq(changed, maps.Keys(z[name].unreachable))
		}
	}
	return changed
}

func (z Zones) partitioned(name string) bool {
	zone, ok := z[name]
	return ok && zone.counts().Partitioned()
}

func (z Zones) leave(n *resident) {
	if n == nil {
		return
	}
	zone := z[n.zone]
	zone.nodes--
	delete(zone.unreachable, n.name)
	if zone.nodes == 0 {
		delete(z, n.zone)
	}
}

func (z Zones) enter(n *resident) {
	if n == nil {
		return
	}
	if z[n.zone] == nil {
		z[n.zone] = &zone{unreachable: make(map[string]bool)}
	}
	z[n.zone].nodes++
	if n.unreachable {
		z[n.zone].unreachable[n.name] = true
	}
}
