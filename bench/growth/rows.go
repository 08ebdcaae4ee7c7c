// SPDX-License-Identifier: Apache-2.0

package growth

import (
	"fmt"
	"time"

	"github.com/nodegate/nodegate/bench/report"
)

// growthMax is the goal for a cost per node of the largest fleet, divided by that of the
// one before.
const growthMax = 1.2

// scaleRows returns the rows of all sizes, and the growth between the last two.
func scaleRows(all []*scale) []report.Row {
	var rows []report.Row
	for _, q := range scaleQuantities {
		for _, s := range all {
			rows = append(rows, report.Alone(fmt.Sprintf("%s, %d nodes", q.what, s.nodes), q.unit, nil, q.of(s)))
		}
		if len(all) < 2 || q.per == nil {
			continue
		}
		before, after := all[len(all)-2], all[len(all)-1]
		what := fmt.Sprintf("%s, %d nodes by %d", q.growth, after.nodes, before.nodes)
		rows = append(rows, report.Alone(what, "", report.AtMost(growthMax), q.per(after)/q.per(before)))
	}
	return rows
}

// A scaleQuantity is a quantity of a scale, with one value: nodes of one run are not independent
// of each other. Its growth, if any, is that of per, which is a cost per node.
type scaleQuantity struct {
	what, unit string
	of         func(*scale) float64
	growth     string
	per        func(*scale) float64
}

func micros(d time.Duration, count int) float64 {
	return float64(d.Nanoseconds()) / 1e3 / float64(count)
}

var (
	startPerNode = func(s *scale) float64 { return micros(s.start.nodegate, s.nodes) }
	editPerNode  = func(s *scale) float64 { return micros(s.edit.nodegate, s.nodes) }
	joinPerNode  = func(s *scale) float64 { return micros(s.join.nodegate, s.joining) / 1e3 }
)

var scaleQuantities = []scaleQuantity{
	{what: "start, until all nodes are verified", unit: "s", of: func(s *scale) float64 { return s.verified.Seconds() }},
	{
		what: "nodegate's CPU for the start, per node with four pods", unit: "µs", of: startPerNode,
		growth: "CPU for the start per node", per: startPerNode,
	},
	{what: "peak memory of the start", unit: "MiB", of: func(s *scale) float64 { return s.peak }},
	{what: "memory after the start", unit: "MiB", of: func(s *scale) float64 { return s.memory }},
	{what: "CPU while nodes report every 5 minutes", unit: "% of a core", of: func(s *scale) float64 { return s.idle }},
	{
		what: "CPU for one joining node, 33 per second", unit: "ms", of: joinPerNode,
		growth: "CPU for one joining node", per: joinPerNode,
	},
	{what: "daemons ready → node open, 33 nodes per second, p50", unit: "ms", of: func(s *scale) float64 { return report.Percentile(50)(s.opened) }},
	{what: "daemons ready → node open, 33 nodes per second, slowest", unit: "ms", of: func(s *scale) float64 { return report.Slowest(s.opened) }},
	{what: "a gate is edited, until nodegate is idle", unit: "s", of: func(s *scale) float64 { return s.edited.Seconds() }},
	{
		what: "CPU for an edited gate, per node", unit: "µs", of: editPerNode,
		growth: "CPU for an edited gate per node", per: editPerNode,
	},
	{what: "memory of the standby", unit: "MiB", of: func(s *scale) float64 { return s.standbyMemory }},
	{what: "leader killed → first write of the standby", unit: "s", of: func(s *scale) float64 { return s.firstWrite.Seconds() }},
	{what: "leader killed → all nodes verified", unit: "s", of: func(s *scale) float64 { return s.verifiedAgain.Seconds() }},
}

// scaleNotes returns the notes about all sizes.
func scaleNotes(all []*scale, daemons int) []string {
	notes := []string{
		fmt.Sprintf("A fake API server simulates Nodes with 40 labels and their %d gate pods: it sends them in protobuf over TLS and HTTP/2, accepts JSON patches of Nodes, and sends the resulting events. It does not compress, and has no admission. A real API server answers everything else, such as leader election and the status of gates. All processes share the machine's cores, so CPU times are meaningful, and times are upper bounds.", daemons),
		fmt.Sprintf("Joining: %d nodes join, %d per second, with two closed gates; their daemons become ready %s later. A node is open when the fake API server receives its last patch; the median and the slowest are those of all joining nodes. CPU includes the writes of the gates' status. An edited gate is reconciled on all nodes, as by the resync every ten minutes, and changes none.", all[0].joining, joinRate, daemonStart),
		fmt.Sprintf("The leader is killed (SIGKILL) at the moment at which the daemons of a closed node become ready. The other replica must wait for the Lease to expire, which takes %s here, and 2s by default.", leaseDuration),
	}
	for _, s := range all {
		share := func(u usage) string {
			total := u.nodegate + u.server + u.standIn
			return fmt.Sprintf("%.1f s of nodegate, %.1f s of the fake API server (%.0f %% of the total), %.1f s of the real one and etcd",
				u.nodegate.Seconds(), u.standIn.Seconds(), 100*u.standIn.Seconds()/max(total.Seconds(), 1e-9), u.server.Seconds())
		}
		notes = append(notes, fmt.Sprintf("%d nodes: %d objects, %.0f MB. CPU for the start: %s. For %d joining nodes, with %d patches: %s. For the edited gate: %s. For the replaced leader: %s. The standby was ready after %.1f s.",
			s.nodes, s.initial, float64(s.bytes)/1e6, share(s.start), s.joining, s.patches, share(s.join), share(s.edit), share(s.takeover), s.standbyReady.Seconds()))
	}
	return notes
}
