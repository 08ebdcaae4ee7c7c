// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"fmt"

	"github.com/nodegate/nodegate/bench/report"
)

var servers = Figure{
	ID: "P4", Title: "What an opened node costs the API server and etcd",
	Measure: measureServers,
	Profiled: func(e *Env) Profiled {
		p := profiledBurst(e)
		p.Server = true
		return p
	},
}

func measureServers(ctx context.Context, e *Env) (report.Result, error) {
	var r report.Result
	bursts, err := e.measureBursts(ctx)
	if err != nil {
		return r, err
	}
	for _, b := range bursts {
		r.Rows = append(r.Rows,
			report.Compare(fmt.Sprintf("%d nodes: CPU of API server and etcd per node", b.nodes), "ms", b.rounds, serverCPU, report.Mean, report.TimesLimit(1.10)),
			report.Compare(fmt.Sprintf("%d nodes: written by etcd per node", b.nodes), "KiB", b.rounds, storeBytes, report.Mean, report.TimesLimit(1.10)))
	}
	r.Rows = append(r.Rows, growth("CPU", bursts, serverCPU), growth("bytes", bursts, storeBytes))
	r.Notes = []string{
		"In the turns of P2, until API server, etcd, observer and subject were at rest again. CPU is that of the two processes in /proc.",
		"Bytes are those that etcd wrote to its write-ahead log (`" + walBytes + "`), which has every change once: the whole node, its " +
			"managed fields included, for each PATCH. What its database file holds besides is the same bytes in pages.",
	}
	for _, b := range bursts {
		r.Notes = append(r.Notes, fmt.Sprintf("Left out is what a turn costs in which nobody opens anything: with %d nodes, %s of CPU and %.1f MiB.",
			b.nodes, b.idle.servers, b.idle.bytes/(1<<20)))
	}
	return r, nil
}
