// SPDX-License-Identifier: Apache-2.0

package growth

import (
	"strings"
	"testing"
)

// Nodes of one run are not independent of each other, so each size has one value.
func TestOneValuePerSize(t *testing.T) {
	all := []*scale{{nodes: 2, joining: 1, opened: []float64{9, 5, 7}}, {nodes: 4, joining: 1, opened: []float64{3, 3, 4, 8}}}
	want := map[string]float64{", p50, 2 nodes": 7, ", p50, 4 nodes": 3, ", slowest, 2 nodes": 9, ", slowest, 4 nodes": 8}
	for _, row := range scaleRows(all) {
		if row.Nodegate.N != 1 {
			t.Errorf("%s: n = %d, want 1", row.What, row.Nodegate.N)
		}
		if what, ok := strings.CutPrefix(row.What, "daemons ready → node open, 33 nodes per second"); ok {
			if row.Nodegate.Median != want[what] {
				t.Errorf("%s: %v, want %v", row.What, row.Nodegate.Median, want[what])
			}
			delete(want, what)
		}
	}
	if len(want) > 0 {
		t.Errorf("there are no rows for %v", want)
	}
}
