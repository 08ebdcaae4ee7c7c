// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"strings"
	"testing"

	"github.com/nodegate/nodegate/bench/report"
)

// Costs without a subject are the median of several undisturbed turns.
func TestBaseline(t *testing.T) {
	turn := func(cpu float64, disturbed bool) report.Pair {
		return report.Pair{Nodegate: report.Sample{serverCPU: {cpu}, storeBytes: {2048}}, Disturbed: disturbed}
	}
	b := baseline{turn(900, false), turn(5000, true), turn(100, false), turn(110, false)}
	if got := b.median(serverCPU); got != 110 {
		t.Errorf("%v ms, want the median 110", got)
	}
	if got := b.median(ownCPU); got != 0 {
		t.Errorf("%v ms of a quantity that was not counted", got)
	}
	if note := b.note(7); !strings.Contains(note, "with 7 nodes, 110 (100–900) ms of CPU and 2.00 MiB written (median, minimum and maximum of 3 turns).") {
		t.Error(note)
	}
	if note := (baseline{turn(900, true)}).note(7); !strings.Contains(note, "All of these turns were disturbed.") {
		t.Error(note)
	}
}
