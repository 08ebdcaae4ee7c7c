// SPDX-License-Identifier: Apache-2.0

// Package report converts the measurements of a benchmark's turns to rows with
// verdicts, and writes them as Markdown and JSON. Figures with turns of the limit
// are reported as ratios within a round, with their spread, because absolute
// values depend on the machine and the moment.
package report

import (
	"fmt"
	"math"
	"slices"
)

// A Sample contains the observations of one or more turns, by quantity.
type Sample map[string][]float64

// Add adds observations of a quantity.
func (s Sample) Add(quantity string, observations ...float64) {
	s[quantity] = append(s[quantity], observations...)
}

// A Round contains the observations of both subjects in one round of turns.
type Round struct {
	Nodegate, Limit Sample
}

// A Statistic computes one number from a round's observations, of which there
// must be at least one.
type Statistic func([]float64) float64

// Percentile returns the nearest rank, which is always one of the observations.
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

// A Spread contains the median, the minimum and the maximum of the rounds'
// values.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf returns the spread of at least one value.
func SpreadOf(values []float64) *Spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return &Spread{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}
}

// String is of the form "1.07 (0.98–1.12)", or "1.07" where there is no spread.
func (s *Spread) String() string {
	if s == nil {
		return ""
	}
	if s.Min == s.Max {
		return number(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", number(s.Median), number(s.Min), number(s.Max))
}

// number has three significant digits, and all digits before the point.
func number(v float64) string {
	if v == 0 {
		return "0"
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	return fmt.Sprintf("%.*f", min(max(digits, 0), 4), v)
}
