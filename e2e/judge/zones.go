// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"github.com/nodegate/nodegate/e2e/judge/facts"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// isPartition reports whether so many nodes of a zone are unreachable that the network may be
// partitioned.
func isPartition(nodes, unreachable int) bool { return nodes >= 3 && unreachable*100 > 55*nodes }

// partitioned reports whether a zone may be partitioned.
func partitioned(m revisions.Moment, zone string) bool {
	nodes, unreachable := 0, 0
	for _, node := range m.AllNodes() {
		if facts.ZoneOf(node) == zone {
			nodes++
			if facts.IsUnreachable(node) {
				unreachable++
			}
		}
	}
	return isPartition(nodes, unreachable)
}

// certainlyPartitioned reports whether a zone may be partitioned, given that the changed node is
// unreachable and in this zone, and whatever nodegate knew about the others: the state of each of
// them may be any in the window.
func (t *trial) certainlyPartitioned(c *change, zone string) bool {
	if !partitioned(t.Moment(c.revision-1), zone) {
		return false
	}
	since := t.Earliest(c.revision).Add(-t.Lag)
	least, most, unreachable := 1, 1, 1
	for _, id := range t.Names(revisions.KindNode) {
		if id.Name == c.name {
			continue
		}
		ever, always, silent := false, true, true
		for _, node := range t.States(id.Name, since, c.revision) {
			in := node != nil && facts.ZoneOf(node) == zone
			ever, always, silent = ever || in, always && in, silent && in && facts.IsUnreachable(node)
		}
		if ever {
			most++
		}
		if always {
			least++
		}
		if silent {
			unreachable++
		}
	}
	return isPartition(least, unreachable) && isPartition(most, unreachable)
}
