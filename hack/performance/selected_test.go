// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/nodegate/nodegate/bench/report"
)

// A selection contains only its rows, in the order of the results.
func TestSelections(t *testing.T) {
	r := aRun()
	r.Results = append(r.Results, report.Result{ID: "P1", Rows: []report.Row{row("p50", "ms", 8), row("slowest of a turn", "ms", 12)}})
	text, err := textOf("openings", r)
	if err != nil || !strings.Contains(text, "| P1 | p50 | ms | 8.00 |") || !strings.Contains(text, "| P2 | 5000 nodes, per node |") {
		t.Errorf("%v\n%s", err, text)
	}
	for _, other := range []string{"slowest of a turn |", "| P3 |"} {
		if strings.Contains(text, other) {
			t.Errorf("%q is selected:\n%s", other, text)
		}
	}
	if len(r.Results[len(r.Results)-1].Rows) != 2 {
		t.Error("the selection changes the report")
	}
	if text, err := textOf("openings", &report.Report{}); err != nil || text != notMeasured {
		t.Errorf("nothing was measured: %v, %s", err, text)
	}
}

// Costs of a fleet's size are side by side. The share of the resync is that of an edited gate.
func TestSlopes(t *testing.T) {
	r := &report.Report{Results: []report.Result{{ID: "P14", Rows: []report.Row{
		row("start, 200 nodes", "s", 1.5), row("start, 100000 nodes", "s", 30),
		row("CPU for an edited gate, per node, 200 nodes", "µs", 100), row("CPU for an edited gate, per node, 100000 nodes", "µs", 60),
		row("CPU for an edited gate per node, 100000 nodes by 200", "", 0.6),
	}}}}
	const want = `| | 200 nodes | 100,000 nodes | growth |
| --- | --- | --- | --- |
| start | 1.50 s | 30.0 s |  |
| CPU for an edited gate, per node | 100 µs | 60.0 µs | 0.600 |
| CPU for the resync every ten minutes: that of an edited gate | 0.0033 % of a core | 1.0 % of a core |  |
`
	if text := slopesText(r); text != want {
		t.Errorf("got:\n%s\nwant:\n%s", text, want)
	}
	if text := slopesText(&report.Report{}); text != notMeasured {
		t.Errorf("nothing was measured: %s", text)
	}
}

// Rows with goals are counted, and those that are not reached are named.
func TestGoals(t *testing.T) {
	r := &report.Report{Results: []report.Result{{ID: "P3", Rows: []report.Row{
		report.Count("writes", report.AtMost(1), 1), report.Count("reads", report.AtMost(0), 2), report.Count("others", nil, 2),
	}}}}
	const want = "Goals reached: 1.\nGoals not reached: 1 (P3 reads).\nGoals not decided: 0.\n"
	if text := goalsText(r); text != want {
		t.Errorf("got:\n%s\nwant:\n%s", text, want)
	}
}

func TestRate(t *testing.T) {
	r := aRun()
	if text := rateText(r); text != notMeasured {
		t.Errorf("without the limit's time: %s", text)
	}
	find(r, burst).Limit = report.SpreadOf([]float64{4})
	if text := rateText(r); !strings.Contains(text, "nodegate opened 500 nodes a second, and the limit 250 ") {
		t.Error(text)
	}
}
