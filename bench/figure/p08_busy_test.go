// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"testing"

	"github.com/nodegate/nodegate/bench/report"
)

func TestBusyRows(t *testing.T) {
	const edits, reports = "the gate is edited", "nodes report"
	pair := func(edited, reported []float64) report.Pair {
		return report.Pair{
			Nodegate: report.Sample{unloaded: {4, 5}, whileEdited: edited, whileReported: reported},
			Limit:    report.Sample{unloaded: {4}, whileReported: {8}},
		}
	}
	calm := []float64{5}
	for name, c := range map[string]struct {
		busy           [][]float64 // one for each pair
		times, starved float64
		fast, fed      bool
	}{
		"as fast as without load": {[][]float64{{4, 5}}, 1, 0, true, true},
		"twice as slow":           {[][]float64{{4, 10}}, 2, 0, true, true},
		"slower":                  {[][]float64{{4, 11}}, 2.2, 0, false, true},
		"a second":                {[][]float64{{4, 1000}}, 200, 0, false, true},
		"more than a second":      {[][]float64{{1001, 1002}}, 200.4, 2, false, false},
		"one round of three":      {[][]float64{{5}, {10}, {1001}}, 2, 1, true, false},
	} {
		var whenEdited, whenReported []report.Pair
		for _, latencies := range c.busy {
			whenEdited = append(whenEdited, pair(latencies, calm))
			whenReported = append(whenReported, pair(calm, latencies))
		}
		for _, load := range []struct {
			pairs       []report.Pair
			busy, other string
		}{{whenEdited, edits, reports}, {whenReported, reports, edits}} {
			rows := map[string]report.Row{}
			for _, row := range busyRows(load.pairs) {
				rows[row.What] = row
			}
			times, starved := rows["slowest of a turn while "+load.busy+" ÷ slowest of a turn without load"], rows["starved nodes while "+load.busy]
			if times.Nodegate.Median != c.times || starved.Nodegate.Median != c.starved {
				t.Errorf("%s while %s: %v times as slow, %v starved, want %v and %v", name, load.busy, times.Nodegate.Median, starved.Nodegate.Median, c.times, c.starved)
			}
			if c.fast != (times.Nodegate.Median <= 2) || (starved.Verdict == report.Reached) != c.fed {
				t.Errorf("%s while %s: the goals are %s and %s", name, load.busy, times.Verdict, starved.Verdict)
			}
			if limit := rows["slowest of a turn while nodes report ÷ slowest of a turn without load"].Limit; limit == nil || limit.Median != 2 {
				t.Errorf("%s while %s: the limit is %v times as slow while nodes report, want 2", name, load.busy, limit)
			}
			if r := rows["starved nodes while "+load.other]; r.Verdict != report.Reached {
				t.Errorf("%s while %s: nodes are starved while %s", name, load.busy, load.other)
			}
		}
	}
}
