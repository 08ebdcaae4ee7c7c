// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPercentilesAreNearestRanks(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i) // in no order
	}
	for name, test := range map[string]struct {
		observations []float64
		p50, p99     float64
	}{
		"one":       {[]float64{7}, 7, 7},
		"two":       {[]float64{9, 3}, 3, 9},
		"three":     {[]float64{9, 1, 3}, 3, 9},
		"a hundred": {hundred, 50, 99},
	} {
		t.Run(name, func(t *testing.T) {
			before := append([]float64(nil), test.observations...)
			if p50, p99 := Percentile(50)(test.observations), Percentile(99)(test.observations); p50 != test.p50 || p99 != test.p99 {
				t.Errorf("p50 %v, p99 %v; want %v, %v", p50, p99, test.p50, test.p99)
			}
			for i := range before {
				if before[i] != test.observations[i] {
					t.Fatal("the observations were reordered: they may belong to others, too")
				}
			}
		})
	}
}

func TestSpread(t *testing.T) {
	for want, values := range map[string][]float64{
		"2.00 (1.00–3.00)":   {3, 1, 2},
		"2.50 (1.00–4.00)":   {4, 1, 2, 3},
		"7.00":               {7, 7},
		"0.0123":             {0.0123},
		"1234 (12.3–123457)": {12.345, 123456.7, 1234},
		"0":                  {0},
	} {
		if got := SpreadOf(values).String(); got != want {
			t.Errorf("%v: %q, want %q", values, got, want)
		}
	}
	if got := (*Spread)(nil).String(); got != "" {
		t.Errorf("what was not measured: %q", got)
	}
}

// twice are rounds on a machine that is slower in some than in others, in which
// nodegate always takes twice as long as the limit.
func twice() []Round {
	var rounds []Round
	for _, slowness := range []float64{1, 10, 3} {
		rounds = append(rounds, Round{Nodegate: Sample{"q": {4 * slowness}}, Limit: Sample{"q": {2 * slowness}}})
	}
	return rounds
}

// A machine that is slower in one round is so for both, and the ratio must not
// show it.
func TestRatiosAreWithinRounds(t *testing.T) {
	row := Compare("", "ms", twice(), "q", Mean, nil)
	if want := (Spread{2, 2, 2}); *row.Ratio != want {
		t.Errorf("ratio %v, want %v", row.Ratio, want)
	}
	if want := (Spread{12, 4, 40}); *row.Nodegate != want {
		t.Errorf("nodegate %v, want %v", row.Nodegate, want)
	}
	if want := (Spread{6, 2, 20}); *row.Limit != want {
		t.Errorf("limit %v, want %v", row.Limit, want)
	}
}

func TestTurnsOfARoundArePooled(t *testing.T) {
	round := Round{Nodegate: Sample{}, Limit: Sample{"q": {1}}}
	round.Nodegate.Add("q", 1, 2)
	round.Nodegate.Add("q", 9)
	if row := Compare("", "", []Round{round}, "q", Percentile(99), nil); row.Nodegate.Median != 9 {
		t.Errorf("p99 %v, want 9, of both turns", row.Nodegate)
	}
}

func TestVerdicts(t *testing.T) {
	for name, test := range map[string]struct {
		row  Row
		want Verdict
	}{
		"ratio just reached":                  {Compare("", "", twice(), "q", Mean, TimesLimit(2)), Reached},
		"ratio missed":                        {Compare("", "", twice(), "q", Mean, TimesLimit(1.99)), NotReached},
		"own value, however the ratio":        {Compare("", "", twice(), "q", Mean, AtMost(12)), Reached},
		"own value missed":                    {Compare("", "", twice(), "q", Mean, AtMost(11)), NotReached},
		"the median counts, not the worst":    {Alone("", "", []float64{1, 1, 9}, AtMost(1)), Reached},
		"no goal":                             {Alone("", "", []float64{1}, nil), ""},
		"nothing measured reaches no goal":    {Alone("", "", nil, AtMost(1)), NotReached},
		"nothing to compare reaches no goal":  {Compare("", "", twice(), "other", Mean, TimesLimit(9)), NotReached},
		"a limit of zero has no ratio":        {Compare("", "", []Round{{Sample{"q": {1}}, Sample{"q": {0}}}}, "q", Mean, TimesLimit(9)), NotReached},
		"a write too many where none is free": {Alone("", "", []float64{1}, AtMost(0)), NotReached},
	} {
		t.Run(name, func(t *testing.T) {
			if test.row.Verdict != test.want {
				t.Errorf("%q, want %q", test.row.Verdict, test.want)
			}
		})
	}
}

func TestGrowthIsRoundByRound(t *testing.T) {
	small := []Round{{Sample{"q": {1}}, Sample{"q": {2}}}, {Sample{"q": {10}}, Sample{"q": {20}}}}
	large := []Round{{Sample{"q": {3}}, Sample{"q": {4}}}, {Sample{"q": {30}}, Sample{"q": {40}}}, {Sample{"q": {1}}, Sample{"q": {1}}}}
	row := Growth("", small, large, "q", Mean, AtMost(3))
	if row.Nodegate.String() != "3.00" || row.Limit.String() != "2.00" || row.Ratio.String() != "1.50" || row.Verdict != Reached {
		t.Errorf("%+v", row)
	}
	if row := Growth("", small[:1], []Round{{}}, "q", Mean, AtMost(3)); row.Verdict != NotReached {
		t.Errorf("of nothing: %+v", row)
	}
}

func sample() *Report {
	return &Report{
		Command: "go run ./bench", Date: "2026-01-02", Machine: "a machine", LoadBefore: "0.1", LoadAfter: "0.2", Versions: "go1.26",
		Results: []Result{
			{ID: "P1", Title: "Opening", Rows: []Row{
				Compare("p50", "ms", twice(), "q", Mean, TimesLimit(1.15)),
				Alone("writes", "", []float64{1}, AtMost(1)),
			}, Notes: []string{"A note."}, Took: "1m30s"},
			{ID: "P2", Title: "Others", Rows: []Row{Alone("time", "ms", []float64{0.5}, AtMost(0.6))}, Took: "0s"},
		},
	}
}

func TestPage(t *testing.T) {
	dir, r := t.TempDir(), sample()
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "RESULTS.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| P1 | p50 | ms | 12.0 (4.00–40.0) | 6.00 (2.00–20.0) | 2.00 | ≤ 1.15 × the limit | **not reached** |\n",
		"| P1 | writes |  | 1.00 |  |  | ≤ 1 | reached |\n",
		"| P2 | time | ms | 0.500 |  |  | ≤ 0.6 ms | reached |\n",
		"Not reached: P1 p50.\n", "## P1: Opening\n\n- A note.\n", "`go run ./bench`", "before 0.1, after 0.2",
		"How long each figure took: P1 1m30s, P2 0s.\n",
	} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("no %q in:\n%s", want, page)
		}
	}
	for _, unwanted := range []string{"quick", "too busy"} {
		if bytes.Contains(page, []byte(unwanted)) {
			t.Errorf("%q in:\n%s", unwanted, page)
		}
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
	read.page(&again)
	if again.String() != string(page) {
		t.Errorf("the JSON says something else than the page:\n%s", again.String())
	}
}

func TestPageOfAQuickRunThatReachedAll(t *testing.T) {
	r := sample()
	r.Quick, r.Cuts, r.Results = true, 2, r.Results[1:]
	var page bytes.Buffer
	r.page(&page)
	if !strings.Contains(page.String(), "Every goal was reached") || !strings.Contains(page.String(), "quick run") || !strings.Contains(page.String(), "too busy: 2 times") {
		t.Error(page.String())
	}
	if !r.Results[0].Reached() || sample().Results[0].Reached() {
		t.Error("Reached is true where a goal was missed, or false where none was")
	}
}
