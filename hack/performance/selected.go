// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nodegate/nodegate/bench/report"
)

// selections lists, by name, the rows from which the page draws conclusions. The pages of
// results have all rows.
var selections = map[string][]quantity{
	"openings": {
		{"P1", "p50"},
		{"P11", "p50"},
		burst,
		{"P4", "5000 nodes: written by etcd per node"},
		{"P4", "5000 nodes: allocated by API server and etcd per node"},
		ownCPU,
		idleSeldom,
		verified,
		{"P8", "slowest of a turn while nodes report ÷ slowest of a turn without load"},
	},
	"patches": {
		{"P1", "p50"},
		{"P17", "and tests of the taint's effect and value: allocated"},
		{"P17", "and test of the Node's UID: allocated"},
		{"P17", "and test of its boot ID: allocated"},
		{"P17", "and test and change of the gate's record: nodegate's: allocated"},
		{"P17", "and test and change of the gate's record: nodegate's: p50"},
	},
	"gates": {
		{"P9", "p50 of a CREATE, 1 gate"},
		{"P9", "the webhook's own CPU a CREATE"},
		{"P9", "CPU added, 2 of 20 gates"},
		{"P9", "CPU added, 2 of 200 gates"},
		{"P9", "added to the p50 of a CREATE, 20 of 20 gates"},
		{"P9", "added to the p50 of a CREATE, 200 of 200 gates"},
		{"P12", "decision"},
		{"P12", "decision if every gate is evaluated"},
		{"P12", "writes for a flip, nothing to write"},
	},
	"failures": {
		{"P10", "10 changes per second: most writes in any 2 s"},
		{"P16", "leader killed (SIGKILL)"},
		{"P16", "leader stopped (SIGTERM)"},
	},
}

// selected returns the given rows of a report.
func selected(r *report.Report, rows []quantity) []report.Result {
	var all []report.Result
	for _, result := range r.Results {
		result.Rows = slices.DeleteFunc(slices.Clone(result.Rows), func(row report.Row) bool {
			return !slices.Contains(rows, quantity{result.ID, row.What})
		})
		if len(result.Rows) > 0 {
			all = append(all, result)
		}
	}
	return all
}

// goalsText returns how many goals a run has reached, and those that it has not.
func goalsText(r *report.Report) string {
	var sentences []string
	for _, verdict := range []report.Verdict{report.Reached, report.NotReached, report.NotDecided} {
		rows := r.With(verdict)
		sentence := fmt.Sprintf("Goals %s: %d", verdict, len(rows))
		if verdict == report.NotReached && len(rows) > 0 {
			sentence += " (" + strings.Join(rows, "; ") + ")"
		}
		sentences = append(sentences, sentence+".")
	}
	return strings.Join(sentences, "\n") + "\n"
}

// rateText returns how many nodes were opened per second.
func rateText(r *report.Report) string {
	row := find(r, burst)
	if row == nil || row.Limit == nil {
		return notMeasured
	}
	return fmt.Sprintf("In the last run, nodegate opened %.0f nodes a second, and the limit %.0f (P2, 5,000 nodes; medians).\n",
		1000/row.Nodegate.Median, 1000/row.Limit.Median)
}
