// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/bench/scene"
)

func TestParseDecisions(t *testing.T) {
	const output = `goos: linux
pkg: github.com/nodegate/nodegate/internal/controller
BenchmarkFlip/condition/decision-2                   	    5000	      4470 ns/op	         1.000 signals/op	     912 B/op	       9 allocs/op
BenchmarkFlip/condition/decision-2                   	    5000	      4500 ns/op	         1.000 signals/op	     912 B/op	       9 allocs/op
BenchmarkFlip/condition/decision_of_everything-2     	    5000	    114000 ns/op	       100.0 signals/op	   61000 B/op	     120 allocs/op
PASS
`
	d, err := parseDecisions([]byte(output))
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct{ got, want []float64 }{
		"narrow":            {d.narrow, []float64{4.47, 4.5}},
		"signals of it":     {d.narrowSignals, []float64{1, 1}},
		"everything":        {d.whole, []float64{114}},
		"signals of all it": {d.wholeSignals, []float64{100}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", what, c.got, c.want)
		}
	}
	for _, row := range d.rows() {
		if row.Verdict == report.NotReached {
			t.Errorf("%s: %s", row.What, row.Verdict)
		}
	}
}

// A benchmark without the quantities that the figure needs is an error.
func TestParseDecisionsRefuses(t *testing.T) {
	for _, output := range []string{
		"", "PASS\n",
		"BenchmarkFlip/condition/decision-2 5000 4470 ns/op 1.000 signals/op\n", // and nothing of everything
		"BenchmarkFlip/condition/decision-2 5000 4470 ns/op\nBenchmarkFlip/condition/decision_of_everything-2 5000 4470 ns/op\n",
		"BenchmarkFlip/condition/decision-2 5000 much ns/op\n",
	} {
		if d, err := parseDecisions([]byte(output)); err == nil {
			t.Errorf("%q is read as %v", output, d)
		}
	}
}

// Of two nodes as they are before and after a flip, exactly one condition differs.
func TestFlippedNode(t *testing.T) {
	born := scene.Node("node", time.Unix(1e9, 0))
	f := &flips{pasture: &pasture{herd: &herd{node: born, since: time.Unix(1e9, 0)}}}
	at := map[corev1.NodeConditionType]time.Time{}
	before := f.nodeAt(7, at).Status.Conditions
	for i, what := range []flipped{unwatched, damped, closes} {
		at[what.condition()] = time.Unix(2e9+int64(i), 0)
		after := f.nodeAt(7, at).Status.Conditions
		if len(after) != len(born.Status.Conditions)+manyGates {
			t.Fatalf("%d conditions", len(after))
		}
		var changed []corev1.NodeConditionType
		for n := range after {
			if after[n] != before[n] {
				changed = append(changed, after[n].Type)
			}
		}
		if !slices.Equal(changed, []corev1.NodeConditionType{what.condition()}) {
			t.Errorf("%v have changed, want %s", changed, what.condition())
		}
		before = after
	}
}
