// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/aclements/go-moremath/stats"
)

const (
	// wantedConfidence is the confidence of intervals, if there are enough values.
	wantedConfidence = 0.95
	// leastConfidence is the confidence below which the interval of pairs decides nothing.
	// Five pairs reach 93.75 %, four only 87.5 %.
	leastConfidence = 0.9
)

// A Spread describes several measured values.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// N is the number of values. It is 0 in results that were written before intervals
	// were computed; they have none of the following fields.
	N int `json:"n,omitempty"`
	// Low and High are the confidence interval of the median, and Confidence is its
	// confidence. Up to eight values, the interval is from the minimum to the maximum. That
	// of exact counts always is, and has no confidence.
	Low        float64 `json:"low,omitempty"`
	High       float64 `json:"high,omitempty"`
	Confidence float64 `json:"confidence,omitempty"`
}

// SpreadOf returns the spread of values, or nil if there are none.
//
// The interval is between two of the sorted values: the closest to the median for which
// the binomial distribution gives the wanted confidence, with as many values below as
// above. It assumes only that the values are independent.
func SpreadOf(values []float64) *Spread {
	if len(values) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	outside := 0 // values on either side of the interval
	for confidenceWith(n, outside+1) >= wantedConfidence {
		outside++
	}
	return &Spread{
		Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1], N: n,
		Low: sorted[outside], High: sorted[n-1-outside], Confidence: confidenceWith(n, outside),
	}
}

// countsOf returns the spread of exact counts, or nil if there are none. Each of them
// matters, so the interval contains them all.
func countsOf(values []float64) *Spread {
	s := SpreadOf(values)
	if s != nil {
		s.Low, s.High, s.Confidence = s.Min, s.Max, 0
	}
	return s
}

// confidenceWith returns the confidence of the interval that leaves out the given number of
// values on either side. A value is below the median with a probability of one half. The
// median is below the interval if no more values than that are below it.
func confidenceWith(n, outside int) float64 {
	below := stats.BinomialDist{N: n, P: 0.5}
	return max(0, 1-2*below.CDF(float64(outside)))
}

// String returns a text such as "1.07 (0.98–1.12)", the median with its interval, or
// "1.07" if the interval's ends do not differ in the digits shown.
func (s *Spread) String() string {
	if s == nil {
		return ""
	}
	low, high := s.Low, s.High
	if s.N == 0 {
		low, high = s.Min, s.Max
	}
	median, from, to := number(s.Median), number(low), number(high)
	if from == to {
		return median
	}
	return fmt.Sprintf("%s (%s–%s)", median, from, to)
}

// number formats v with three significant digits, and all digits before the point.
func number(v float64) string {
	if v == 0 {
		return "0"
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	return fmt.Sprintf("%.*f", min(max(digits, 0), 4), v)
}
