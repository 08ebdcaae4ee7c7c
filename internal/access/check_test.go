// SPDX-License-Identifier: Apache-2.0

package access

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
)

// The cause for which a probe fails is logged, but not again with each probe.
func TestCausesOfFailingProbesAreLogged(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	var result error
	probe := Check(log, "feeds", func() error { return result })
	for _, result = range []error{nil, errors.New("not observed yet: nodes, pods"), errors.New("not observed yet: pods"), nil} {
		for range 10 {
			if err := probe(nil); !errors.Is(err, result) {
				t.Errorf("the check returns %v, want %v", err, result)
			}
		}
	}
	want := []string{"not observed yet: nodes, pods", "not observed yet: pods", "succeeds again"}
	if len(lines) != len(want) {
		t.Fatalf("log %q, want %d lines", lines, len(want))
	}
	for i, line := range lines {
		if !strings.Contains(line, want[i]) || !strings.Contains(line, "feeds") {
			t.Errorf("line %q, want %q", line, want[i])
		}
	}
}
