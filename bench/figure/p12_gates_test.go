// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/bench/fixture"
	"github.com/nodegate/nodegate/bench/report"
)

func TestParseDecisions(t *testing.T) {
	const output = `goos: linux
pkg: github.com/nodegate/nodegate/internal/controller
BenchmarkFlip/condition/decision-2                   	    5000	      4470 ns/op	         1.000 signals/op	     912 B/op	       9 allocs/op
BenchmarkFlip/condition/decision-2                   	    5000	      4490 ns/op	         1.000 signals/op	     912 B/op	       9 allocs/op
BenchmarkFlip/condition/decision_of_everything-2     	    5000	    114000 ns/op	       100.0 signals/op	   61000 B/op	     120 allocs/op
PASS
`
	rows, err := parseDecisions([]byte(output))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"4.48 (4.47–4.49)", "1.00", "114", "100"} {
		if row := rows[i]; row.Nodegate.String() != want || row.Verdict == report.NotReached {
			t.Errorf("%s: %s (%s), want %s", row.What, row.Nodegate, row.Verdict, want)
		}
	}
}

// Output without one of the quantities is an error.
func TestParseDecisionsErrors(t *testing.T) {
	for _, output := range []string{
		"", "PASS\n",
		"BenchmarkFlip/condition/decision-2 5000 4470 ns/op 1.000 signals/op\n",
		"BenchmarkFlip/condition/decision-2 5000 4470 ns/op\nBenchmarkFlip/condition/decision_of_everything-2 5000 4470 ns/op\n",
		"BenchmarkFlip/condition/decision-2 5000 much ns/op\n",
	} {
		if rows, err := parseDecisions([]byte(output)); err == nil {
			t.Errorf("%q is parsed as %v", output, rows)
		}
	}
}

// Each step changes exactly one condition.
func TestFlippedNode(t *testing.T) {
	node := fixture.Node("node", time.Unix(1e9, 0))
	since := time.Unix(1e9, 0)
	at := map[corev1.NodeConditionType]time.Time{}
	before := flippedNode(node.DeepCopy(), since, at).Status.Conditions
	for i, what := range []flipped{unread, damped, closes} {
		at[what.condition()] = time.Unix(2e9+int64(i), 0)
		after := flippedNode(node.DeepCopy(), since, at).Status.Conditions
		if len(after) != len(node.Status.Conditions)+manyGates {
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
