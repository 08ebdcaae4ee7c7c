// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i) // not sorted
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
			before := slices.Clone(test.observations)
			if p50, p99 := Percentile(50)(test.observations), Percentile(99)(test.observations); p50 != test.p50 || p99 != test.p99 {
				t.Errorf("p50 %v, p99 %v; want %v, %v", p50, p99, test.p50, test.p99)
			}
			if !slices.Equal(before, test.observations) {
				t.Error("the observations were reordered")
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
		t.Errorf("no values: %q", got)
	}
}

// twice returns rounds of different speed, in which nodegate always takes twice as long
// as the limit.
func twice() []Round {
	var rounds []Round
	for _, slowness := range []float64{1, 10, 3} {
		rounds = append(rounds, Round{Nodegate: Sample{"q": {4 * slowness}}, Limit: Sample{"q": {2 * slowness}}})
	}
	return rounds
}

// A machine that is slower in some rounds does not affect the ratio.
func TestRatiosAreWithinRounds(t *testing.T) {
	row := Compare("", "ms", twice(), "q", Mean, nil)
	want := Row{Unit: "ms", Nodegate: &Spread{12, 4, 40}, Limit: &Spread{6, 2, 20}, Ratio: &Spread{2, 2, 2}}
	if diff := cmp.Diff(want, row); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
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
		"ratio reached":             {Compare("", "", twice(), "q", Mean, TimesLimit(2)), Reached},
		"ratio missed":              {Compare("", "", twice(), "q", Mean, TimesLimit(1.99)), NotReached},
		"value reached":             {Compare("", "", twice(), "q", Mean, AtMost(12)), Reached},
		"value missed":              {Compare("", "", twice(), "q", Mean, AtMost(11)), NotReached},
		"the median is compared":    {Alone("", "", AtMost(1), 1, 1, 9), Reached},
		"no goal":                   {Alone("", "", nil, 1), ""},
		"nothing was measured":      {Alone("", "", AtMost(1)), NotReached},
		"nothing to compare with":   {Compare("", "", twice(), "other", Mean, TimesLimit(9)), NotReached},
		"the limit's value is zero": {Compare("", "", []Round{{Sample{"q": {1}}, Sample{"q": {0}}}}, "q", Mean, TimesLimit(9)), NotReached},
		"a goal of zero is missed":  {Alone("", "", AtMost(0), 1), NotReached},
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
	row := Growth("", Series{small, "q"}, Series{large, "q"}, Mean, AtMost(3))
	if row.Nodegate.String() != "3.00" || row.Limit.String() != "2.00" || row.Ratio.String() != "1.50" || row.Verdict != Reached {
		t.Errorf("%+v", row)
	}
	if row := Growth("", Series{small, "q"}, Series{[]Round{{}}, "q"}, Mean, AtMost(3)); row.Verdict != NotReached {
		t.Errorf("nothing was measured: %+v", row)
	}
}

func sample() *Report {
	return &Report{
		Command: "go run ./bench", Date: "2026-01-02", Machine: "a machine", LoadBefore: "0.1", LoadAfter: "0.2", Versions: "go1.26",
		Results: []Result{
			{ID: "P1", Title: "Opening", Rows: []Row{
				Compare("p50", "ms", twice(), "q", Mean, TimesLimit(1.15)),
				Alone("writes", "", AtMost(1), 1),
			}, Notes: []string{"A note."}, Took: "1m30s"},
			{ID: "P2", Title: "Others", Rows: []Row{Alone("time", "ms", AtMost(0.6), 0.5)}, Took: "0s"},
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
		"Duration of each figure: P1 1m30s, P2 0s.\n",
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
		t.Errorf("the JSON results in another page:\n%s", again.String())
	}
}

func TestPageOfAQuickRunThatReachedAll(t *testing.T) {
	r := sample()
	r.Quick, r.Cuts, r.Results = true, 2, r.Results[1:]
	var page bytes.Buffer
	r.page(&page)
	if !strings.Contains(page.String(), "All goals were reached") || !strings.Contains(page.String(), "quick run") || !strings.Contains(page.String(), "observer 2 times") {
		t.Error(page.String())
	}
}
