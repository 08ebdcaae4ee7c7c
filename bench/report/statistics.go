// SPDX-License-Identifier: Apache-2.0

// Package report converts the observations of a benchmark to rows with verdicts, and
// writes them as Markdown and JSON. Ratios to the limit are computed within pairs of
// turns, because absolute values depend on the machine and its current load.
package report

import "slices"

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

// A Pair contains the observations of both subjects in successive turns, or of nodegate
// alone.
type Pair struct {
	Nodegate, Limit Sample
	// Disturbed is true if the machine did something else in the round of the pair.
	Disturbed bool
}

// Undisturbed returns the pairs that count: those that were not disturbed or, if all were,
// all of them. The second result reports whether all were disturbed.
func Undisturbed(pairs []Pair) (counting []Pair, disturbed bool) {
	for _, pair := range pairs {
		if !pair.Disturbed {
			counting = append(counting, pair)
		}
	}
	if len(counting) == 0 {
		return pairs, len(pairs) > 0
	}
	return counting, false
}

// Counts returns the pairs as if none were disturbed. It is for quantities that other work
// of the machine does not affect, such as numbers of writes.
func Counts(pairs []Pair) []Pair {
	all := slices.Clone(pairs)
	for i := range all {
		all[i].Disturbed = false
	}
	return all
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

// Slowest returns the maximum. It replaces high percentiles of fewer than a hundred
// observations, which are the maximum as well.
func Slowest(observations []float64) float64 { return slices.Max(observations) }

// Mean returns the arithmetic mean.
func Mean(observations []float64) float64 {
	var total float64
	for _, o := range observations {
		total += o
	}
	return total / float64(len(observations))
}
