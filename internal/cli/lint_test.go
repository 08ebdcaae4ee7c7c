// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/lint"
)

// The exit status depends on the findings and on what could not be read.
func TestLintExitStatus(t *testing.T) {
	note, warning := lint.Finding{Severity: lint.Note}, lint.Finding{Severity: lint.Warning}
	gap := []lint.Gap{{What: "nodes"}}
	for name, c := range map[string]struct {
		report lint.Report
		want   error
	}{
		"clean":             {lint.Report{}, nil},
		"notes":             {lint.Report{Findings: []lint.Finding{note}}, nil},
		"warnings":          {lint.Report{Findings: []lint.Finding{note, warning}}, errNo},
		"gaps":              {lint.Report{Gaps: gap}, errNotAllRead},
		"findings and gaps": {lint.Report{Findings: []lint.Finding{warning}, Gaps: gap}, errNo},
	} {
		if err := printReport(io.Discard, &output{}, &c.report); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
	}
}

// Gates from files replace declared gates of the same name, and only they are checked.
func TestLintOfFiles(t *testing.T) {
	w := &lint.World{Gates: clitest.Decode(t, clitest.Manifest("one", ""), clitest.Manifest("two", ""))}
	status := v1alpha1.NodeGateStatus{ObservedGeneration: 7}
	w.Gates[1].Status = status
	replaceGates(w, clitest.Decode(t, clitest.Manifest("two", "mode: Paused"), clitest.Manifest("three", "")))
	var names []string
	for _, g := range w.Gates {
		names = append(names, fmt.Sprintf("%s:%s:%d", g.Name, g.Spec.Mode, g.Status.ObservedGeneration))
	}
	if got, want := fmt.Sprint(names, w.Checked), "[one:Enforce:0 two:Paused:7 three:Enforce:0] map[three:true two:true]"; got != want {
		t.Errorf("gates are %s, want %s", got, want)
	}
}
