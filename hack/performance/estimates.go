// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/nodegate/nodegate/bench/report"

// A quantity is a row of a figure.
type quantity struct{ figure, row string }

// The quantities on which the estimates are based. Times were measured with
// measuredFleet nodes, memory with two fleets.
const (
	measuredFleet = 5000.0
	largestFleet  = 50000.0
)

var (
	memorySmall = quantity{"P5", "peak, 5000 nodes, 15000 gate pods, 150000 other pods"}
	memoryLarge = quantity{"P5", "peak, 50000 nodes, 150000 gate pods"}
	burst       = quantity{"P2", "5000 nodes, per node"}
	ownCPU      = quantity{"P7", "5000 nodes: CPU per opened node"}
	idleSeldom  = quantity{"P7-idle", "idle, each node reporting every 5 minutes"}
	idleOften   = quantity{"P7-idle", "idle, each node reporting every 10 seconds"}
	verified    = quantity{"P6", "all nodes verified"}
	writes      = quantity{"P3", "writes for each node"}
)

var quantities = []quantity{memorySmall, memoryLarge, burst, ownCPU, idleSeldom, idleOften, verified, writes}

// How often each node was reported in the rows of P7-idle, in seconds; seldom is a
// kubelet's default (nodeStatusReportFrequency).
const (
	seldom = 300
	often  = 10
)

// estimates lists the page's predictions. Each is a straight line, because
// nodegate's work for a node does not depend on other nodes.
func estimates(r *report.Report) []estimate {
	memory := line(measuredFleet, measured(r, memorySmall), largestFleet, measured(r, memoryLarge))
	idle := line(measuredFleet/seldom, measured(r, idleSeldom), measuredFleet/often, measured(r, idleOften))
	times := func(q quantity, unit float64) func(float64) float64 {
		return func(nodes float64) float64 { return nodes * measured(r, q) * unit }
	}
	const one, two = "one gate, one pod", "two gates, three pods"
	return []estimate{
		{"peak memory", two, "MiB", "P5: the straight line through 5,000 and 50,000 nodes", memory},
		{"all nodes ready at once, until the last is open", one, "s", "P2: nodes × the time per node at 5,000", times(burst, 1e-3)},
		{"nodegate's CPU time for this", one, "s", "P7: nodes × the CPU time per opened node at 5,000", times(ownCPU, 1e-3)},
		{
			"CPU with heartbeats only, every five minutes", one, "% of a core",
			"P7-idle: the straight line through both rates of reports", func(nodes float64) float64 { return idle(nodes / seldom) },
		},
		{
			"cold start, until all nodes are verified", one, "s",
			"P6: nodes × the time per node at 5,000, without a fixed part; at least the time at 5,000",
			func(nodes float64) float64 { return measured(r, verified) * max(1, nodes/measuredFleet) },
		},
		{"writes per opened node", one, "", "P3: the same for any fleet", func(float64) float64 { return measured(r, writes) }},
	}
}
