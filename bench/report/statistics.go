// SPDX-License-Identifier: Apache-2.0

// Package report turns what the turns of a benchmark measured into rows that say
// whether a goal was reached, and writes them for people and for programs.
// Figures that take turns with the limit are told as ratios within a round, with
// their spread, because absolute ones belong to one machine and one moment.
package report

import (
	"fmt"
	"math"
	"slices"
)

// A Sample is what was measured in one or more turns: observations, by what they
// are of.
type Sample map[string][]float64

// Add adds observations of a quantity.
func (s Sample) Add(quantity string, observations ...float64) {
	s[quantity] = append(s[quantity], observations...)
}

// A Round is what one round of turns measured of both.
type Round struct {
	Nodegate, Limit Sample
}

// A Statistic makes one number of a round's observations, of which there is at
// least one.
type Statistic func([]float64) float64

// Percentile returns the nearest rank, which is always one of the observations.
func Percentile(p int) Statistic {
	return func(observations []float64) float64 {
		sorted := slices.Sorted(slices.Values(observations))
		return sorted[max(0, (len(sorted)*p+99)/100-1)]
	}
}

// Mean is the arithmetic one.
func Mean(observations []float64) float64 {
	var total float64
	for _, o := range observations {
		total += o
	}
	return total / float64(len(observations))
}

// A Spread is the middle and the ends of what the rounds came to.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf returns that of at least one value.
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
