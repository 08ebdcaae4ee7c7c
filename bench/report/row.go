// SPDX-License-Identifier: Apache-2.0

package report

import "fmt"

// A Goal is the maximum for a quantity's median.
type Goal struct {
	// Of is the column to which the goal applies.
	Of Column `json:"of"`
	// AtMost is in the row's unit, or a ratio.
	AtMost float64 `json:"atMost"`
}

// A Column is a column of a row.
type Column string

// The columns to which a goal can apply: nodegate's value, or its ratio to the limit's.
const (
	OfNodegate Column = "nodegate"
	OfRatio    Column = "ratio"
)

// AtMost returns a goal for nodegate's value.
func AtMost(value float64) *Goal { return &Goal{OfNodegate, value} }

// TimesLimit returns a goal for the ratio.
func TimesLimit(ratio float64) *Goal { return &Goal{OfRatio, ratio} }

// A Verdict is the result of comparing a row with its goal.
type Verdict string

// The verdicts. A row without a goal has an empty verdict.
const (
	Reached    Verdict = "reached"
	NotReached Verdict = "not reached"
)

// A Row is one measured quantity.
type Row struct {
	What     string  `json:"what"`
	Unit     string  `json:"unit"`
	Nodegate *Spread `json:"nodegate,omitempty"`
	Limit    *Spread `json:"limit,omitempty"`
	Ratio    *Spread `json:"ratio,omitempty"`
	Goal     *Goal   `json:"goal,omitempty"`
	Verdict  Verdict `json:"verdict,omitempty"`
}

// Compare returns the row of a quantity. The ratio is computed within each round, so that
// a machine that is slower for a while affects both subjects. Rounds without observations
// of nodegate are skipped; the limit and the ratio are of those rounds that also have
// observations of the limit, if any.
func Compare(what, unit string, rounds []Round, quantity string, of Statistic, goal *Goal) Row {
	var nodegate, limit, ratio []float64
	for _, round := range rounds {
		a, measured := round.Nodegate.value(quantity, of)
		b, compared := round.Limit.value(quantity, of)
		if !measured {
			continue
		}
		nodegate = append(nodegate, a)
		if compared {
			limit = append(limit, b)
		}
		if compared && b != 0 {
			ratio = append(ratio, a/b)
		}
	}
	return Row{What: what, Unit: unit, Nodegate: SpreadOf(nodegate), Limit: SpreadOf(limit), Ratio: SpreadOf(ratio), Goal: goal}.judged()
}

// Alone returns the row of a quantity of nodegate, with one value per round.
func Alone(what, unit string, goal *Goal, values ...float64) Row {
	return Row{What: what, Unit: unit, Nodegate: SpreadOf(values), Goal: goal}.judged()
}

// A Series is a quantity in several rounds.
type Series struct {
	Rounds   []Round
	Quantity string
}

// Growth returns the row of the ratio of two series, round by round.
func Growth(what string, before, after Series, of Statistic, goal *Goal) Row {
	const growth = ""
	var rounds []Round
	for i := range min(len(before.Rounds), len(after.Rounds)) {
		round := Round{Nodegate: Sample{}, Limit: Sample{}}
		for target, samples := range map[*Sample][2]Sample{
			&round.Nodegate: {before.Rounds[i].Nodegate, after.Rounds[i].Nodegate},
			&round.Limit:    {before.Rounds[i].Limit, after.Rounds[i].Limit},
		} {
			a, measuredBefore := samples[0].value(before.Quantity, of)
			b, measuredAfter := samples[1].value(after.Quantity, of)
			if measuredBefore && measuredAfter && a != 0 {
				target.Add(growth, b/a)
			}
		}
		rounds = append(rounds, round)
	}
	return Compare(what, "", rounds, growth, Mean, goal)
}

// judged returns the row with its verdict. A quantity that was not measured has not
// reached its goal.
func (r Row) judged() Row {
	if r.Goal == nil {
		return r
	}
	measured := r.Nodegate
	if r.Goal.Of == OfRatio {
		measured = r.Ratio
	}
	r.Verdict = NotReached
	if measured != nil && measured.Median <= r.Goal.AtMost {
		r.Verdict = Reached
	}
	return r
}

// text returns a text such as "≤ 1.15 × the limit" or "≤ 0.6 ms".
func (g *Goal) text(unit string) string {
	switch {
	case g == nil:
		return ""
	case g.Of == OfRatio:
		return fmt.Sprintf("≤ %g × the limit", g.AtMost)
	case unit == "":
		return fmt.Sprintf("≤ %g", g.AtMost)
	}
	return fmt.Sprintf("≤ %g %s", g.AtMost, unit)
}
