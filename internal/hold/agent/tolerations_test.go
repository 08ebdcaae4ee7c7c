// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"strings"
	"testing"
)

// tolerating returns the JSON of a pod with the same toleration many times, as the API server
// writes it.
func tolerating(times int, toleration string) []byte {
	return []byte(`{"metadata":{"uid":"p"},"spec":{"restartPolicy":"Always","tolerations":[` + strings.Repeat(toleration+",", times-1) + toleration + `]}}`)
}

// An author of pods can write more tolerations than the agent has memory for. It keeps none of
// them, and does not decode them either.
func TestManyTolerationsAreNotKept(t *testing.T) {
	const short, everything = `{"key":"a"}`, `{"operator":"Exists"}`
	for _, test := range []struct {
		times      int
		toleration string
		kept       int
	}{
		{1, short, 1},
		{64, everything, 64},
		{65, everything, 0},
		{140_000, short, 0},
		{140_000, everything, 0},
		{50, `{"key":"` + strings.Repeat("a", 63) + `","operator":"Equal","value":"` + strings.Repeat("b", 63) + `"}`, 0},
		{1, `{"key":"` + strings.Repeat("a", 1<<20) + `"}`, 0},
	} {
		raw := tolerating(test.times, test.toleration)
		var p pod
		allocations := testing.AllocsPerRun(1, func() {
			p = pod{}
			if err := json.Unmarshal(raw, &p); err != nil {
				t.Fatal(err)
			}
		})
		if len(p.Spec.Tolerations) != test.kept || cap(p.Spec.Tolerations) > 2*test.kept {
			t.Errorf("%d times %.30s: %d are kept, in space for %d", test.times, test.toleration, len(p.Spec.Tolerations), cap(p.Spec.Tolerations))
		}
		if test.kept == 0 && allocations > 100 {
			t.Errorf("%d times %.30s: %.0f allocations", test.times, test.toleration, allocations)
		}
		gates := []*nodeGate{gateNamed("a", func(*nodeGate) {})}
		state := stateOf(boot, 0, nodeWith(map[string]string{recordAnnotationPrefix + "a": `{"state":"Closed","boot":"boot-2"}`}), gates, []*pod{&p})
		if waits := len(state.Pods["p"].Gates) == 1; waits != (test.kept == 0) {
			t.Errorf("%d times %.30s: the pod waits: %v", test.times, test.toleration, waits)
		}
	}
}

// If the field occurs twice, the last one counts.
func TestTolerationsAreReplaced(t *testing.T) {
	var p pod
	for raw, want := range map[string]int{`{"spec":{"tolerations":[{"key":"a"},{"key":"b"}]}}`: 2, `{"spec":{"tolerations":[{"key":"c"}]}}`: 1, `{"spec":{"tolerations":null}}`: 0} {
		if err := json.Unmarshal([]byte(raw), &p); err != nil || len(p.Spec.Tolerations) != want {
			t.Errorf("%s: %v, %v", raw, p.Spec.Tolerations, err)
		}
	}
	if json.Unmarshal([]byte(`{"spec":{"tolerations":7}}`), &p) == nil {
		t.Error("a number is accepted")
	}
}
