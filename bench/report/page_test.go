// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func sample() *Report {
	return &Report{
		Command: "go run ./bench", Date: "2026-01-02", Machine: "a machine", LoadBefore: "0.1", LoadAfter: "0.2", Versions: "go1.26", Took: "1m30s",
		Results: []Result{
			{ID: "P1", Title: "Opening", Rows: []Row{
				Compare("p50", "ms", pairsOf(2, 2, 2, 2, 2, 2), "q", Mean, TimesLimit(1.15)),
				Compare("p99", "ms", pairsOf(1, 1.1, 1.2, 1.3, 1.4, 1.5), "q", Mean, TimesLimit(1.2)),
				Compare("instructions", "", pairsOf(1), "unavailable", Mean, nil),
				Count("writes", AtMost(1), 1),
			}, Notes: []string{"A note."}, Took: "1m30s", Rounds: &Rounds{4, []string{"other processes used 12 % of the CPU time"}}},
			{ID: "P2", Title: "Others", Rows: []Row{Alone("time", "ms", AtMost(0.6), 0.5, 0.5, 0.5, 0.5, 0.5)}, Took: "0s"},
		},
	}
}

var update = flag.Bool("update", false, "rewrite golden files")

// ofScale is like a report of simulated fleets: without rounds and without a bare loop as the
// limit.
func ofScale() *Report {
	return &Report{
		Command: "go run ./bench -scale", Date: "2026-01-02", Machine: "a machine", LoadBefore: "0.1", LoadAfter: "0.2", Versions: "go1.26", Took: "1m30s",
		Results: []Result{
			{ID: "P13", Title: "A command", Rows: []Row{
				Compare("time", "s", pairsOf(1, 1.1, 1.2, 1.3, 1.4), "q", Mean, TimesLimit(1.5)),
				Compare("memory", "MiB", []Pair{{Nodegate: Sample{"q": {300}}}}, "q", Mean, nil),
			}, Notes: []string{"The limit is a single request."}, Took: "1m"},
			{ID: "P14", Title: "Growth", Rows: []Row{
				Alone("start, 200 nodes", "s", nil, 1.5),
				Alone("growth", "", AtMost(1.2), 0.8),
			}, Took: "30s"},
		},
	}
}

// The introduction is printed for each report, so it must not describe what only some figures
// have.
func TestIntroductionFitsEachFigure(t *testing.T) {
	for _, particular := range []string{"PATCH", "loop", "observe", "separate process", "audit log", "turns", "A B B A", "/proc"} {
		if strings.Contains(introduction, particular) {
			t.Errorf("the introduction mentions %q, which not all figures have", particular)
		}
	}
}

// The pages of reports, and of the same reports after they were written as JSON and read.
func TestPage(t *testing.T) {
	for name, r := range map[string]*Report{"page.golden": sample(), "scale.golden": ofScale()} {
		t.Run(name, func(t *testing.T) { testPage(t, r, filepath.Join("testdata", name)) })
	}
}

func testPage(t *testing.T, r *Report, golden string) {
	t.Helper()
	dir := t.TempDir()
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "RESULTS.md"))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(page)); diff != "" {
		t.Errorf("differs from %s; if this is right, run go test with -update:\n%s", golden, diff)
	}

	var read Report
	content, err := os.ReadFile(filepath.Join(dir, "results.json"))
	if err == nil {
		err = json.Unmarshal(content, &read)
	}
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	read.Page(&again)
	if diff := cmp.Diff(string(page), again.String()); diff != "" {
		t.Errorf("the JSON results in another page:\n%s", diff)
	}
}

func TestPageOfAQuickRunThatReachedAll(t *testing.T) {
	r := sample()
	r.Quick, r.Cuts, r.Results = true, 2, r.Results[1:]
	var page bytes.Buffer
	r.Page(&page)
	if !strings.Contains(page.String(), "All goals were reached") || !strings.Contains(page.String(), "quick run") || !strings.Contains(page.String(), "observer 2 times") {
		t.Error(page.String())
	}
	// Nothing that counts was observed late.
	if !strings.Contains(page.String(), "are rejected; exact counts include them") || strings.Contains(page.String(), "observed late") {
		t.Error(page.String())
	}
}
