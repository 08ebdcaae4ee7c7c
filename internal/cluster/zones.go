// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"maps"
	"slices"

	"github.com/nodegate/nodegate/internal/cluster/packed"
	"github.com/nodegate/nodegate/internal/gate"
)

// zones counts nodes by the value of their zone label. Nodes without it are
// one zone.
type zones map[string]*zone

type zone struct {
	nodes  int
	silent map[string]bool
}

func (z *zone) counts() gate.Zone { return gate.Zone{Nodes: z.nodes, Silent: len(z.silent)} }

// resident is a node, as far as zones count it.
type resident struct {
	name, zone string
	silent     bool
}

// residence makes a node that is kept into a resident; none remains none.
func residence(n *packed.Node) *resident {
	if n == nil {
		return nil
	}
	return &resident{name: n.Name, zone: n.Zone(), silent: n.Silent()}
}

// observed makes a node that is not kept into a resident.
func observed(n *gate.Node) *resident {
	return &resident{name: n.Name, zone: n.Zone(), silent: n.Silent()}
}

// of returns the counts of a zone.
func (z zones) of(name string) gate.Zone {
	if zone, ok := z[name]; ok {
		return zone.counts()
	}
	return gate.Zone{}
}

// move counts a node that was old and is now; either may be nil. It returns
// the silent nodes of zones that came to look partitioned, or ceased to.
func (z zones) move(old, now *resident) []string {
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
			changed = slices.AppendSeq(changed, maps.Keys(z[name].silent))
		}
	}
	return changed
}

func (z zones) partitioned(name string) bool {
	zone, ok := z[name]
	return ok && zone.counts().Partitioned()
}

func (z zones) leave(n *resident) {
	if n == nil {
		return
	}
	zone := z[n.zone]
	zone.nodes--
	delete(zone.silent, n.name)
	if zone.nodes == 0 {
		delete(z, n.zone)
	}
}

func (z zones) enter(n *resident) {
	if n == nil {
		return
	}
	if z[n.zone] == nil {
		z[n.zone] = &zone{silent: make(map[string]bool)}
	}
	z[n.zone].nodes++
	if n.silent {
		z[n.zone].silent[n.name] = true
	}
}
