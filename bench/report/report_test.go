// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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

// Intervals are symmetric, and as narrow as the confidence allows.
func TestSpreads(t *testing.T) {
	ascending := func(n int) (all []float64) {
		for i := range n {
			all = append(all, float64(n-i)) // not sorted
		}
		return all
	}
	for name, test := range map[string]struct {
		values []float64
		want   Spread
	}{
		"one":              {[]float64{7}, Spread{7, 7, 7, 1, 7, 7, 0}},
		"two":              {ascending(2), Spread{1.5, 1, 2, 2, 1, 2, 0.5}},
		"five":             {ascending(5), Spread{3, 1, 5, 5, 1, 5, 0.9375}},
		"six":              {ascending(6), Spread{3.5, 1, 6, 6, 1, 6, 0.96875}},
		"eight":            {ascending(8), Spread{4.5, 1, 8, 8, 1, 8, 0.9921875}},
		"nine":             {ascending(9), Spread{5, 1, 9, 9, 2, 8, 0.9609375}},
		"ten":              {ascending(10), Spread{5.5, 1, 10, 10, 2, 9, 0.978515625}},
		"one differs":      {[]float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 9}, Spread{1, 1, 9, 10, 1, 1, 0.978515625}},
		"all are the same": {[]float64{2, 2}, Spread{2, 2, 2, 2, 2, 2, 0.5}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(&test.want, SpreadOf(test.values), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The interval contains the median as often as its confidence promises. The values are
// random, but the same in each run.
func TestConfidence(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const trials = 20000
	for _, n := range []int{5, 6, 10, 12} {
		contained, confidence := 0, 0.0
		for range trials {
			values := make([]float64, n)
			for i := range values {
				values[i] = random.ExpFloat64() // skewed, like latencies
			}
			s := SpreadOf(values)
			if s.Low <= math.Ln2 && math.Ln2 <= s.High { // the median of the distribution
				contained++
			}
			confidence = s.Confidence
		}
		if share := float64(contained) / trials; math.Abs(share-confidence) > 0.01 {
			t.Errorf("%d values: %v of the intervals contain the median, want %v", n, share, confidence)
		}
	}
}

func TestSpreadText(t *testing.T) {
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
	if got := (&Spread{Median: 2, Min: 1, Max: 3}).String(); got != "2.00 (1.00–3.00)" {
		t.Errorf("a spread without an interval: %q", got)
	}
}

// pairsOf returns pairs of different speed, in which nodegate takes ratio times as long as
// the limit.
func pairsOf(ratios ...float64) (all []Pair) {
	slowness := []float64{1, 10, 3, 2, 5, 4, 7}
	for i, ratio := range ratios {
		limit := 2 * slowness[i%len(slowness)]
		all = append(all, Pair{Nodegate: Sample{"q": {ratio * limit}}, Limit: Sample{"q": {limit}}})
	}
	return all
}

// disturb marks pairs as disturbed.
func disturb(pairs []Pair) []Pair {
	for i := range pairs {
		pairs[i].Disturbed = true
	}
	return pairs
}

// unrelated sets the limit's value in the first pair.
func unrelated(pairs []Pair, value float64) []Pair {
	pairs[0].Limit = Sample{"q": {value}}
	return pairs
}

// negative makes nodegate's value in the first pair negative.
func negative(pairs []Pair) []Pair {
	pairs[0].Nodegate = Sample{"q": {-1}}
	return pairs
}

// A machine that is slower in some pairs does not affect the ratio.
func TestRatiosAreWithinPairs(t *testing.T) {
	row := Compare("", "ms", pairsOf(2, 2, 2), "q", Mean, nil)
	if row.Nodegate.String() != "12.0 (4.00–40.0)" || row.Limit.String() != "6.00 (2.00–20.0)" || row.Ratio.String() != "2.00" || row.Ratio.N != 3 {
		t.Errorf("%v, %v, %v", row.Nodegate, row.Limit, row.Ratio)
	}
}

func TestVerdicts(t *testing.T) {
	many := slices.Repeat([]float64{1.05}, 10)
	outlier := append(slices.Clone(many), 9)
	tenCounts := []float64{0, 0, 0, 0, 3, 0, 0, 0, 0, 0}
	limitIsZero := make([]Pair, 5)
	for i := range limitIsZero {
		limitIsZero[i] = Pair{Nodegate: Sample{"q": {1}}, Limit: Sample{"q": {0}}}
	}
	for name, test := range map[string]struct {
		row  Row
		want Verdict
		why  string
	}{
		"interval below":                  {Compare("", "", pairsOf(1, 1.02, 1.04, 1.06, 1.08), "q", Mean, TimesLimit(1.1)), Reached, ""},
		"interval up to the goal":         {Compare("", "", pairsOf(1, 1.1, 1.1, 1.1, 1.1), "q", Mean, TimesLimit(1.1)), Reached, ""},
		"interval above":                  {Compare("", "", pairsOf(1.11, 1.2, 1.3, 1.4, 1.5), "q", Mean, TimesLimit(1.1)), NotReached, ""},
		"interval contains the goal":      {Compare("", "", pairsOf(1.0, 1.02, 1.04, 1.06, 1.12), "q", Mean, TimesLimit(1.1)), NotDecided, ""},
		"median above, interval contains": {Compare("", "", pairsOf(1.0, 1.2, 1.3, 1.4, 1.5), "q", Mean, TimesLimit(1.1)), NotDecided, ""},
		"one outlier of eleven":           {Compare("", "", pairsOf(outlier...), "q", Mean, TimesLimit(1.1)), Reached, ""},
		"four pairs":                      {Compare("", "", pairsOf(1, 1, 1, 1), "q", Mean, TimesLimit(1.1)), NotDecided, tooFewPairs},
		"four pairs above":                {Compare("", "", pairsOf(2, 2, 2, 2), "q", Mean, TimesLimit(1.1)), NotDecided, tooFewPairs},
		"nodegate's value, interval below": {
			Compare("", "", pairsOf(1, 0.1, 0.3, 0.4, 0.2), "q", Mean, AtMost(4)), Reached, "",
		},
		"nodegate's value, interval above": {
			Compare("", "", pairsOf(1, 1, 1, 1, 1), "q", Mean, AtMost(1)), NotReached, "",
		},
		"disturbed pairs do not count": {
			Compare("", "", append(pairsOf(1, 1, 1, 1, 1), disturb(pairsOf(9, 9, 9, 9, 9, 9))...), "q", Mean, TimesLimit(1.1)), Reached, "",
		},
		"too few undisturbed pairs": {
			Compare("", "", append(pairsOf(1, 1, 1, 1), disturb(pairsOf(1, 1))...), "q", Mean, TimesLimit(1.1)), NotDecided, tooFewPairs,
		},
		"all pairs are disturbed":   {Compare("", "", disturb(pairsOf(many...)), "q", Mean, TimesLimit(1.1)), NotDecided, allDisturbed},
		"within, interval inside":   {Compare("", "", pairsOf(0.96, 1, 1, 1.01, 1.04), "q", Mean, Within(0.05)), Reached, ""},
		"within, interval above":    {Compare("", "", pairsOf(1.06, 1.1, 1.1, 1.1, 1.1), "q", Mean, Within(0.05)), NotReached, ""},
		"within, interval below":    {Compare("", "", pairsOf(0.9, 0.9, 0.9, 0.9, 0.94), "q", Mean, Within(0.05)), NotReached, ""},
		"within, below and inside":  {Compare("", "", pairsOf(0.94, 1, 1, 1, 1), "q", Mean, Within(0.05)), NotDecided, ""},
		"no goal":                   {Alone("", "", nil, 1), "", ""},
		"one count":                 {Count("", AtMost(1), 1), Reached, ""},
		"one count above":           {Count("", AtMost(1), 1.1), NotReached, ""},
		"two counts around":         {Count("", AtMost(1), 0.9, 1.1), NotReached, ""},
		"one count of five above":   {Count("", AtMost(0), 0, 0, 0, 0, 3), NotReached, ""},
		"one count of ten above":    {Count("", AtMost(0), tenCounts...), NotReached, ""},
		"ten counts within":         {Count("", AtMost(3), tenCounts...), Reached, ""},
		"negative":                  {Count("", AtMost(1), -3), Reached, ""},
		"a goal of zero is missed":  {Count("", AtMost(0), 1), NotReached, ""},
		"nothing was counted":       {Count("", AtMost(1)), NotDecided, notMeasured},
		"nothing was measured":      {Alone("", "", AtMost(1)), NotDecided, notMeasured},
		"one value":                 {Alone("", "", AtMost(1), 0.1), NotDecided, tooFewValues},
		"one value above":           {Alone("", "", AtMost(1), 9), NotDecided, tooFewValues},
		"four values":               {Alone("", "", AtMost(1), 0.1, 0.1, 0.1, 0.1), NotDecided, tooFewValues},
		"five values":               {Alone("", "", AtMost(1), 0.1, 0.2, 0.3, 0.4, 1), Reached, ""},
		"five values above":         {Alone("", "", AtMost(1), 2, 2, 2, 2, 1.1), NotReached, ""},
		"nothing to compare with":   {Compare("", "", pairsOf(many...), "other", Mean, TimesLimit(9)), NotDecided, notMeasured},
		"the limit's value is zero": {Compare("", "", limitIsZero, "q", Mean, TimesLimit(9)), NotDecided, notMeasured},
		"the limit's value is negative": {
			Compare("", "", unrelated(pairsOf(many...), -1), "q", Mean, TimesLimit(1.1)), NotDecided, notPositive,
		},
		"the limit's value is zero in one pair": {
			Compare("", "", unrelated(pairsOf(many...), 0), "q", Mean, TimesLimit(1.1)), NotDecided, notPositive,
		},
		"the limit's value is negative in a disturbed pair": {
			Compare("", "", append(pairsOf(many...), disturb(unrelated(pairsOf(1), -1))...), "q", Mean, TimesLimit(1.1)), Reached, "",
		},
		"the limit's value is negative, goal in a unit": {
			Compare("", "", unrelated(pairsOf(1, 1, 1, 1, 1), -1), "q", Mean, AtMost(100)), Reached, "",
		},
		"growth from a negative value": {
			Growth("", Series{negative(pairsOf(many...)), "q"}, Series{pairsOf(many...), "q"}, Mean, AtMost(9)), NotDecided, notPositive,
		},
		"growth from positive values": {
			Growth("", Series{pairsOf(many...), "q"}, Series{pairsOf(many...), "q"}, Mean, AtMost(9)), Reached, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if test.row.Verdict != test.want || test.row.Why != test.why {
				t.Errorf("%q, %q; want %q, %q", test.row.Verdict, test.row.Why, test.want, test.why)
			}
		})
	}
}

// Without one of its pairs, a ratio would be that of a selection, so there is none, with and
// without a goal. The number of values is then that of nodegate's.
func TestRatiosOfAllPairsOrNone(t *testing.T) {
	pairs := unrelated(pairsOf(2, 2, 2, 2, 2), -1)
	for _, goal := range []*Goal{nil, TimesLimit(9), AtMost(100)} {
		row := Compare("", "", pairs, "q", Mean, goal)
		if row.Ratio != nil || row.Nodegate.N != 5 || row.Limit.N != 5 || row.count() != "5" {
			t.Errorf("goal %+v: ratio %v, n = %q: %+v", goal, row.Ratio, row.count(), row)
		}
	}
	grown := Growth("", Series{negative(pairsOf(2, 2, 2, 2, 2)), "q"}, Series{pairsOf(1, 1, 1, 1, 1), "q"}, Mean, nil)
	if grown.Nodegate != nil || grown.Ratio != nil {
		t.Errorf("growth: %+v", grown)
	}
}

// A disturbed measurement is shown, although it decides nothing.
func TestDisturbedPairsAreShown(t *testing.T) {
	if row := Compare("", "", disturb(pairsOf(2, 2)), "q", Mean, nil); row.Ratio.String() != "2.00" || row.Verdict != "" {
		t.Errorf("%+v", row)
	}
	if row := Compare("", "", append(disturb(pairsOf(9, 9)), pairsOf(2)...), "q", Mean, nil); row.Ratio.String() != "2.00" {
		t.Errorf("%+v", row)
	}
}

// Counts are decided on a disturbed machine, too.
func TestCountsOfDisturbedPairs(t *testing.T) {
	pairs := disturb(pairsOf(1, 1, 1, 1, 1))
	if row := Compare("", "", Counts(pairs), "q", Mean, TimesLimit(1.1)); row.Verdict != Reached || row.Ratio.N != 5 {
		t.Errorf("%+v", row)
	}
	if !pairs[0].Disturbed {
		t.Error("the pairs were changed")
	}
}

func TestTotals(t *testing.T) {
	values := func(s Sample) float64 { return float64(len(s["q"])) }
	row := Total("", append(pairsOf(1, 1), disturb(pairsOf(1))...), values, AtMost(2))
	if row.Nodegate.Median != 2 || row.Verdict != Reached {
		t.Errorf("%v, %s", row.Nodegate, row.Verdict)
	}
	if row := Total("", disturb(pairsOf(1)), values, AtMost(2)); row.Nodegate.Median != 1 || row.Verdict != NotDecided {
		t.Errorf("%v, %s", row.Nodegate, row.Verdict)
	}
}

// A violation is shown, and decides, in whichever pair it is: also in a disturbed one.
func TestCountedPairs(t *testing.T) {
	pairs := make([]Pair, 10)
	for i := range pairs {
		pairs[i].Nodegate = Sample{"writes": {0}}
	}
	pairs[4] = Pair{Nodegate: Sample{"writes": {3}}, Disturbed: true}
	row := Counted("", pairs, "writes", AtMost(0))
	if row.Verdict != NotReached || row.Nodegate.String() != "0 (0–3.00)" || row.Nodegate.N != 10 {
		t.Errorf("%s, %v, n = %d", row.Verdict, row.Nodegate, row.Nodegate.N)
	}
	if row := Counted("", pairs, "reads", AtMost(0)); row.Verdict != NotDecided || row.Why != notMeasured {
		t.Errorf("nothing was counted: %+v", row)
	}
}

func TestGrowthIsPairByPair(t *testing.T) {
	small := []Pair{{Nodegate: Sample{"q": {1}}, Limit: Sample{"q": {2}}}, {Nodegate: Sample{"q": {10}}, Limit: Sample{"q": {20}}}}
	large := []Pair{
		{Nodegate: Sample{"q": {3}}, Limit: Sample{"q": {4}}}, {Nodegate: Sample{"q": {30}}, Limit: Sample{"q": {40}}},
		{Nodegate: Sample{"q": {1}}, Limit: Sample{"q": {1}}},
	}
	row := Growth("", Series{small, "q"}, Series{large, "q"}, Mean, nil)
	if row.Nodegate.String() != "3.00" || row.Limit.String() != "2.00" || row.Ratio.String() != "1.50" || row.Nodegate.N != 2 {
		t.Errorf("%+v", row)
	}
	large[1].Disturbed = true
	if row := Growth("", Series{small, "q"}, Series{large, "q"}, Mean, nil); row.Nodegate.N != 1 {
		t.Errorf("a disturbed pair counts: %+v", row)
	}
	if row := Growth("", Series{small, "q"}, Series{[]Pair{{}}, "q"}, Mean, AtMost(3)); row.Verdict != NotDecided {
		t.Errorf("nothing was measured: %+v", row)
	}
}

func TestPeers(t *testing.T) {
	var table strings.Builder
	Peers(&table, []Subject{
		{Name: "nodegate", Latencies: []float64{4, 6, 5}, Contended: []float64{7, 8, 9}, PerSecond: 200, Requests: 1.1, Writes: 1, CPU: 0.9, Memory: 45, Lost: 0, Foreign: 39},
		{Name: "other", PerSecond: 20, Requests: 4, Writes: 2, CPU: 3, Memory: 60, Lost: 2, Foreign: 39},
	})
	for _, want := range []string{
		"| nodegate | 5.00 | 6.00 | 8.00 | 9.00 | 200 | 1.10 | 1.00 | 0.900 | 45.0 | 0 of 39 |\n",
		"| other | - | - | - | - | 20.0 | 4.00 | 2.00 | 3.00 | 60.0 | 2 of 39 |\n",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("%q is not in:\n%s", want, table.String())
		}
	}
}
