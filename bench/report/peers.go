// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
)

// A Subject contains what was measured of one of several programs that do the same work.
type Subject struct {
	Name string
	// Latencies are the times in ms from a daemon that is ready to the taint that is
	// removed, of nodes that become ready one after the other, and Contended the same while
	// another writer adds a taint to each node.
	Latencies, Contended []float64
	// PerSecond is the number of taints that are removed per second if many nodes become
	// ready at once.
	PerSecond float64
	// Requests and Writes are per node: all requests, and PATCHes and updates of nodes.
	Requests, Writes float64
	// CPU is the program's CPU time per node in ms, and Memory its peak in MiB.
	CPU, Memory float64
	// Lost is the number of taints of another writer that are missing afterwards, of Foreign.
	Lost, Foreign int
}

// Peers writes a Markdown table of programs.
func Peers(out io.Writer, subjects []Subject) {
	fmt.Fprintln(out, "| | p50 in ms | p99 in ms | p50 beside a writer | p99 beside a writer | at once, per second | requests per node | writes per node | CPU per node in ms | peak memory in MiB | lost foreign taints |")
	fmt.Fprintln(out, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, s := range subjects {
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %d of %d |\n", s.Name,
			percentile(50, s.Latencies), percentile(99, s.Latencies), percentile(50, s.Contended), percentile(99, s.Contended),
			number(s.PerSecond), number(s.Requests), number(s.Writes), number(s.CPU), number(s.Memory), s.Lost, s.Foreign)
	}
}

// percentile returns the text of a percentile.
func percentile(p int, observations []float64) string {
	if len(observations) == 0 {
		return unmeasured
	}
	return number(Percentile(p)(observations))
}
