// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"maps"
	"slices"

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

// of returns the counts of a node's zone.
func (z zones) of(n *gate.Node) gate.Zone {
	if zone, ok := z[n.Zone()]; ok {
		return zone.counts()
	}
	return gate.Zone{}
}

// move counts a node that was old and is now; either may be nil. It returns
// the silent nodes of zones that came to look partitioned, or ceased to.
func (z zones) move(old, now *gate.Node) []string {
	var affected []string
	for _, n := range []*gate.Node{old, now} {
		if n != nil && !slices.Contains(affected, n.Zone()) {
			affected = append(affected, n.Zone())
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

func (z zones) leave(n *gate.Node) {
	if n == nil {
		return
	}
	name := n.Zone()
	zone := z[name]
	zone.nodes--
	delete(zone.silent, n.Name)
	if zone.nodes == 0 {
		delete(z, name)
	}
}

func (z zones) enter(n *gate.Node) {
	if n == nil {
		return
	}
	name := n.Zone()
	if z[name] == nil {
		z[name] = &zone{silent: make(map[string]bool)}
	}
	z[name].nodes++
	if n.Silent() {
		z[name].silent[n.Name] = true
	}
}
