// SPDX-License-Identifier: Apache-2.0

// Package report converts the observations of a benchmark to rows with verdicts, and
// writes them as Markdown and JSON. Ratios to the limit are computed within a round,
// because absolute values depend on the machine and its current load.
package report

import (
	"fmt"
	"math"
	"slices"
)

// A Sample contains the observations of one or more turns, by quantity.
type Sample map[string][]float64

// value computes a statistic of a quantity, and reports whether it has observations.
func (s Sample) value(quantity string, of Statistic) (float64, bool) {
	if len(s[quantity]) == 0 {
		return 0, false
	}
	return of(s[quantity]), true
}

// Add adds observations of a quantity.
func (s Sample) Add(quantity string, observations ...float64) {
	s[quantity] = append(s[quantity], observations...)
}

// A Round contains the observations of both subjects in a round of turns.
type Round struct {
	Nodegate, Limit Sample
}

// A Statistic computes a number from at least one observation.
type Statistic func([]float64) float64

// Percentile returns the statistic of a percentile, by nearest rank: the result is always
// one of the observations.
func Percentile(p int) Statistic {
	return func(observations []float64) float64 {
		sorted := slices.Sorted(slices.Values(observations))
		return sorted[max(0, (len(sorted)*p+99)/100-1)]
	}
}

// Mean returns the arithmetic mean.
func Mean(observations []float64) float64 {
	var total float64
	for _, o := range observations {
		total += o
	}
	return total / float64(len(observations))
}

// A Spread contains the median, the minimum and the maximum of several values.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf returns the spread of values, or nil if there are none.
func SpreadOf(values []float64) *Spread {
	if len(values) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return &Spread{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}
}

// String returns a text such as "1.07 (0.98–1.12)", or "1.07" if all values are equal.
func (s *Spread) String() string {
	if s == nil {
		return ""
	}
	if s.Min == s.Max {
		return number(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", number(s.Median), number(s.Min), number(s.Max))
}

// number formats v with three significant digits, and all digits before the point.
func number(v float64) string {
	if v == 0 {
		return "0"
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	return fmt.Sprintf("%.*f", min(max(digits, 0), 4), v)
}
