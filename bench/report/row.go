// SPDX-License-Identifier: Apache-2.0

package report

// A Row is one measured quantity.
type Row struct {
	What     string  `json:"what"`
	Unit     string  `json:"unit"`
	Nodegate *Spread `json:"nodegate,omitempty"`
	Limit    *Spread `json:"limit,omitempty"`
	Ratio    *Spread `json:"ratio,omitempty"`
	Goal     *Goal   `json:"goal,omitempty"`
	Verdict  Verdict `json:"verdict,omitempty"`
	// Why states why the row is not decided, unless its interval contains the goal.
	Why string `json:"why,omitempty"`
}

// Compare returns the row of a quantity. The ratio is computed within each pair, so that
// a machine that is slower for a while affects both subjects. Pairs without observations
// of nodegate are skipped; the limit and the ratio are of those pairs that also have
// observations of the limit, if any. Disturbed pairs do not count. If there are no others,
// or too few, the row shows what was measured, and is not decided. If a value of the limit is
// not positive, the row has no ratio, and is not decided by it.
func Compare(what, unit string, pairs []Pair, quantity string, of Statistic, goal *Goal) Row {
	counting, disturbed := Undisturbed(pairs)
	var nodegate, limit, ratio []float64
	meaningless := false
	for _, pair := range counting {
		a, measured := pair.Nodegate.value(quantity, of)
		b, compared := pair.Limit.value(quantity, of)
		if !measured {
			continue
		}
		nodegate = append(nodegate, a)
		if compared {
			limit = append(limit, b)
		}
		switch {
		case compared && b > 0:
			ratio = append(ratio, a/b)
		case compared:
			meaningless = true
		}
	}
	row := Row{What: what, Unit: unit, Nodegate: SpreadOf(nodegate), Limit: SpreadOf(limit), Ratio: SpreadOf(ratio), Goal: goal}
	row = row.judged(leastConfidence, disturbed)
	if !meaningless {
		return row
	}
	if goal != nil && goal.Of == OfRatio {
		row = row.undecided()
	}
	row.Ratio = nil // the pairs that remain would be a selection
	return row
}

// undecided returns the row as one that is not decided, because of values that are not
// positive if there is no other reason.
func (r Row) undecided() Row {
	if r.Goal != nil && r.Why == "" {
		r.Verdict, r.Why = NotDecided, notPositive
	}
	return r
}

// Alone returns the row of a quantity of nodegate that is not measured in pairs. Too few
// values decide nothing, because they may be noise.
func Alone(what, unit string, goal *Goal, values ...float64) Row {
	row := Row{What: what, Unit: unit, Nodegate: SpreadOf(values), Goal: goal}.judged(leastConfidence, false)
	if row.Why == tooFewPairs {
		row.Why = tooFewValues
	}
	return row
}

// Count returns the row of a quantity of nodegate that is counted exactly. The goal is
// reached if all values are within it, even if it is only one.
func Count(what string, goal *Goal, values ...float64) Row {
	row := Row{What: what, Nodegate: countsOf(values), Goal: goal}
	switch {
	case goal == nil:
	case row.Nodegate == nil:
		row.Verdict, row.Why = NotDecided, notMeasured
	default:
		row.Verdict = goal.verdictOfCounts(row.Nodegate)
	}
	return row
}

// Counted returns the row of a quantity of nodegate that is counted exactly in each pair.
// Disturbed pairs count, too: other work of the machine does not excuse a needless write.
func Counted(what string, pairs []Pair, quantity string, goal *Goal) Row {
	var values []float64
	for _, pair := range pairs {
		values = append(values, pair.Nodegate[quantity]...)
	}
	return Count(what, goal, values...)
}

// Total returns the row of a number that is counted in all pairs together.
func Total(what string, pairs []Pair, count func(nodegate Sample) float64, goal *Goal) Row {
	counting, disturbed := Undisturbed(pairs)
	total := 0.0
	for _, pair := range counting {
		total += count(pair.Nodegate)
	}
	return Row{What: what, Nodegate: SpreadOf([]float64{total}), Goal: goal}.judged(0, disturbed)
}

// A Series is a quantity in several pairs.
type Series struct {
	Pairs    []Pair
	Quantity string
}

// Growth returns the row of the ratio of two series, pair by pair. If a value that counts is
// to be divided by one that is not positive, it is not decided, and shows none of them.
func Growth(what string, before, after Series, of Statistic, goal *Goal) Row {
	const growth = ""
	var pairs []Pair
	meaningless := false
	for i := range min(len(before.Pairs), len(after.Pairs)) {
		earlier, later := before.Pairs[i], after.Pairs[i]
		pair := Pair{Nodegate: Sample{}, Limit: Sample{}, Disturbed: earlier.Disturbed || later.Disturbed}
		for target, samples := range map[*Sample][2]Sample{
			&pair.Nodegate: {earlier.Nodegate, later.Nodegate},
			&pair.Limit:    {earlier.Limit, later.Limit},
		} {
			a, measuredBefore := samples[0].value(before.Quantity, of)
			b, measuredAfter := samples[1].value(after.Quantity, of)
			switch {
			case !measuredBefore || !measuredAfter:
			case a > 0:
				target.Add(growth, b/a)
			case !pair.Disturbed:
				meaningless = true
			}
		}
		pairs = append(pairs, pair)
	}
	row := Compare(what, "", pairs, growth, Mean, goal)
	if meaningless {
		row = row.undecided()
		row.Nodegate, row.Limit, row.Ratio = nil, nil, nil
	}
	return row
}

// judged returns the row with its verdict. A quantity that was not measured, or only on a
// disturbed machine, or in too few pairs for the confidence, is not decided.
func (r Row) judged(confidence float64, disturbed bool) Row {
	r.Verdict, r.Why = "", ""
	if r.Goal == nil {
		return r
	}
	measured := r.decisive()
	r.Verdict = NotDecided
	switch {
	case measured == nil:
		r.Why = notMeasured
	case disturbed:
		r.Why = allDisturbed
	case measured.Confidence < confidence:
		r.Why = tooFewPairs
	default:
		r.Verdict = r.Goal.verdict(measured)
	}
	return r
}

// decisive returns the values to which the goal applies: the ratio or nodegate's own.
// Without a goal, it returns the ratio, if there is one.
func (r *Row) decisive() *Spread {
	switch {
	case r.Goal != nil && r.Goal.Of == OfRatio, r.Goal == nil && r.Ratio != nil:
		return r.Ratio
	}
	return r.Nodegate
}
