// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodegate/nodegate/bench/report"
)

func row(what, unit string, median float64) report.Row {
	return report.Row{What: what, Unit: unit, Nodegate: report.SpreadOf([]float64{median})}
}

// aRun contains all quantities that the page needs, in round numbers.
func aRun() *report.Report {
	values := map[quantity]float64{
		memorySmall: 55, memoryLarge: 145, burst: 2, ownCPU: 0.5, idleSeldom: 0.3, idleOften: 5.1333, verified: 1.5, writes: 1,
	}
	r := &report.Report{Command: "make bench", Date: "2026-01-02", Machine: "a machine", Versions: "go1", LoadBefore: "0.1", LoadAfter: "0.2"}
	for _, q := range quantities {
		i := slices.IndexFunc(r.Results, func(result report.Result) bool { return result.ID == q.figure })
		if i < 0 {
			i, r.Results = len(r.Results), append(r.Results, report.Result{ID: q.figure})
		}
		r.Results[i].Rows = append(r.Results[i].Rows, row(q.row, "", values[q]))
	}
	return r
}

func TestEstimates(t *testing.T) {
	all := estimates(aRun())
	at := func(what string, nodes float64) float64 {
		i := slices.IndexFunc(all, func(e estimate) bool { return strings.Contains(e.what, what) })
		if i < 0 {
			t.Fatalf("no estimate contains %q", what)
		}
		return all[i].at(nodes)
	}
	for _, c := range []struct {
		what        string
		nodes, want float64
	}{
		{"memory", 5000, 55},
		{"memory", 50000, 145},
		{"memory", 100000, 245},
		{"until the last is open", 15000, 30},
		{"CPU time for this", 15000, 7.5},
		{"heartbeats", 5000, 0.3},
		{"heartbeats", 150000, 5.1333}, // as many reports as from 5,000 nodes every ten seconds
		{"cold start", 100000, 30},
		{"cold start", 1000, 1.5}, // at least the measured time
		{"writes", 100000, 1},
	} {
		if got := at(c.what, c.nodes); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s of %.0f nodes: %v, want %v", c.what, c.nodes, got, c.want)
		}
	}
}

// The rows are of different fleets, so each names its gates and pods, and its figure.
func TestEstimatesNameTheirFleets(t *testing.T) {
	text := expectedText(aRun())
	for _, want := range []string{
		"| peak memory | two gates, three pods | 47 MiB |", "| cold start, until all nodes are verified | one gate, one pod | 1.5 s |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
	for _, e := range estimates(aRun()) {
		if e.gates == "" || !strings.HasPrefix(e.how, "P") {
			t.Errorf("%s: the fleet is %q, and the calculation %q", e.what, e.gates, e.how)
		}
	}
}

// A missing quantity affects exactly the lines that need it.
func TestMissingQuantities(t *testing.T) {
	if text := expectedText(aRun()); strings.Contains(text, "not measured") {
		t.Errorf("a quantity is not measured:\n%s", text)
	}
	for _, q := range quantities {
		r := aRun()
		for i := range r.Results {
			r.Results[i].Rows = slices.DeleteFunc(r.Results[i].Rows, func(row report.Row) bool {
				return r.Results[i].ID == q.figure && row.What == q.row
			})
		}
		missing := 0
		for line := range strings.Lines(expectedText(r)) {
			if strings.Contains(line, "not measured") {
				missing++
			}
		}
		if missing != 1 {
			t.Errorf("without %v, %d rows are not measured, want 1", q, missing)
		}
	}
}

func TestAmount(t *testing.T) {
	for value, want := range map[float64]string{0: "0 s", 0.0123: "0.012 s", 0.5: "0.50 s", 1: "1.0 s", 9.96: "10 s", 12.3: "12 s", 245: "250 s", 1234: "1200 s"} {
		if got := amount(value, "s"); got != want {
			t.Errorf("%v: %q, want %q", value, got, want)
		}
	}
}

func TestFill(t *testing.T) {
	for _, from := range runs {
		t.Run(from.results, func(t *testing.T) { testFill(t, from) })
	}
}

func testFill(t *testing.T, from run) {
	t.Helper()
	place := func(what, text string) string {
		return "before\n" + from.begin + what + " -->\n" + text + "<!-- end -->\nafter\n"
	}
	measured := aRun()
	for name, c := range map[string]struct {
		what string
		want []string
	}{
		"the run":             {"where", []string{"2026-01-02", "a machine", "0.1"}},
		"rows of figures":     {"P3 P6", []string{"| P3 | writes for each node |", "| P6 | all nodes verified |"}},
		"one figure missing":  {"P3 P12", []string{"| P3 |"}},
		"all figures missing": {"P12", []string{"Not measured"}},
		"estimates":           {"expected", []string{"| 50,000 nodes |", "| 150 MiB |"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := from.fill(place(c.what, "")+place(c.what, "something old\n"), measured)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range c.want {
				if strings.Count(got, text) != 2 {
					t.Errorf("%q is not in both places:\n%s", text, got)
				}
			}
			if strings.Contains(got, "something old") || strings.Count(got, "before\n") != 2 || strings.Count(got, "after\n") != 2 {
				t.Errorf("text outside of the places changed, or old text remains:\n%s", got)
			}
			if again, err := from.fill(got, measured); err != nil || again != got {
				t.Errorf("filled in again, the page changes: %v\n%s", err, again)
			}
		})
	}
}

// The page says if watches were ended, which delays observations.
func TestEndedWatches(t *testing.T) {
	r := aRun()
	if text := whereText(r); strings.Contains(text, "ended a watch") {
		t.Error(text)
	}
	if r.Cuts = 2; !strings.Contains(whereText(r), "ended a watch of the limit or the observer 2 times") {
		t.Error(whereText(r))
	}
}

// Without a run, the page says so. Results that were written before intervals were
// computed have minimum and maximum.
func TestOtherResults(t *testing.T) {
	from := runs[0]
	from.results = filepath.Join(t.TempDir(), "results.json")
	none, err := from.read()
	if err != nil {
		t.Fatal(err)
	}
	page := "<!-- from the last run: where -->\n<!-- end -->\n<!-- from the last run: P1 -->\n<!-- end -->\n<!-- from the last run: expected -->\n<!-- end -->\n"
	filled, err := from.fill(page, none)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"no results yet", "Not measured in the last run.", "| not measured |"} {
		if !strings.Contains(filled, want) {
			t.Errorf("%q is not in:\n%s", want, filled)
		}
	}
	const content = `{"results":[{"id":"P1","rows":[{"what":"p50","unit":"ms","nodegate":{"median":2,"min":1,"max":3},"goal":{"of":"ratio","atMost":1.1},"verdict":"reached"}]}]}`
	if err := os.WriteFile(from.results, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := from.read()
	if err != nil {
		t.Fatal(err)
	}
	filled, err = from.fill(page, r)
	if want := "| P1 | p50 | ms | 2.00 (1.00–3.00) |  |  |  | ≤ 1.1 × the limit | reached |"; err != nil || !strings.Contains(filled, want) {
		t.Errorf("%v: %q is not in:\n%s", err, want, filled)
	}
	if !strings.Contains(filled, "minimum and maximum are in parentheses") {
		t.Errorf("it is not clear what is in parentheses:\n%s", filled)
	}
	if err := os.WriteFile(from.results, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := from.read(); err == nil {
		t.Error("damaged results are accepted")
	}
}

func TestFillRejects(t *testing.T) {
	for name, page := range map[string]string{
		"unknown contents":       "<!-- from the last run: speed -->\n<!-- end -->",
		"a place without an end": "<!-- from the last run: where -->\n<!-- end -->\n<!-- from the last run: where -->\n",
	} {
		if got, err := runs[0].fill(page, aRun()); err == nil {
			t.Errorf("%s is accepted:\n%s", name, got)
		}
	}
}

// A page of results is written next to them, and nothing if there are none.
func TestPagesOfResults(t *testing.T) {
	from := run{results: filepath.Join(t.TempDir(), "results.json")}
	if err := from.write(&report.Report{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(from.page()); !os.IsNotExist(err) {
		t.Errorf("without results, there is a page: %v", err)
	}
	if err := from.write(aRun()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(from.page())
	if err != nil || filepath.Base(from.page()) != "RESULTS.md" || !strings.Contains(string(content), "| P3 | writes for each node |") {
		t.Errorf("%s: %v\n%s", from.page(), err, content)
	}
}

// Every measured figure must have the rows on which the page's estimates are
// based, and those that the page selects, because both are found by name.
func TestLastRunHasTheRows(t *testing.T) {
	from := runs[0]
	from.results = "../../" + from.results
	r, err := from.read()
	if err != nil {
		t.Fatal(err)
	}
	needed := slices.Clone(quantities)
	for _, rows := range selections {
		needed = append(needed, rows...)
	}
	for _, q := range needed {
		there := slices.ContainsFunc(r.Results, func(result report.Result) bool { return result.ID == q.figure })
		if there && !r.Quick && math.IsNaN(measured(r, q)) {
			t.Errorf("%s was measured, but has no row %q", q.figure, q.row)
		}
	}
}
