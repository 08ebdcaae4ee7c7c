// SPDX-License-Identifier: Apache-2.0

package report

import "fmt"

// A Goal is the maximum for a quantity's median.
type Goal struct {
	// Of is the column that is compared with it.
	Of Column `json:"of"`
	// AtMost is in the row's unit, or a ratio.
	AtMost float64 `json:"atMost"`
}

// A Column is one of a row's three.
type Column string

// What a goal may be about: nodegate's own value, or its ratio to the limit's.
const (
	OfNodegate Column = "nodegate"
	OfRatio    Column = "ratio"
)

// AtMost is the goal of an own value.
func AtMost(value float64) *Goal { return &Goal{OfNodegate, value} }

// TimesLimit is the goal of a ratio.
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

// Compare returns the row of a quantity that was measured for both subjects. The
// ratio is computed within each round, so that a temporarily slower machine
// affects both. Rounds in which one of them has no observations are left out.
func Compare(what, unit string, rounds []Round, quantity string, of Statistic, goal *Goal) Row {
	var nodegate, limit, ratio []float64
	for _, round := range rounds {
		ours, theirs := round.Nodegate[quantity], round.Limit[quantity]
		if len(ours) == 0 || len(theirs) == 0 {
			continue
		}
		a, b := of(ours), of(theirs)
		nodegate, limit = append(nodegate, a), append(limit, b)
		if b != 0 {
			ratio = append(ratio, a/b)
		}
	}
	row := Row{What: what, Unit: unit, Goal: goal}
	if len(nodegate) > 0 {
		row.Nodegate, row.Limit = SpreadOf(nodegate), SpreadOf(limit)
	}
	if len(ratio) > 0 {
		row.Ratio = SpreadOf(ratio)
	}
	return row.judged()
}

// Alone returns the row of a quantity of nodegate alone, with one value for each
// round.
func Alone(what, unit string, values []float64, goal *Goal) Row {
	row := Row{What: what, Unit: unit, Goal: goal}
	if len(values) > 0 {
		row.Nodegate = SpreadOf(values)
	}
	return row.judged()
}

// judged compares the row with its goal. A quantity that was not measured has not
// reached it.
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

// text is of the form "≤ 1.15 × the limit" or "≤ 0.6 ms".
func (g *Goal) text(unit string) string {
	switch {
	case g == nil:
		return ""
	case g.Of == OfRatio:
		return fmt.Sprintf("≤ %s × the limit", plain(g.AtMost))
	case unit == "":
		return "≤ " + plain(g.AtMost)
	}
	return fmt.Sprintf("≤ %s %s", plain(g.AtMost), unit)
}

// plain formats a number in human-readable form.
func plain(v float64) string { return fmt.Sprintf("%g", v) }

// Growth makes a row of how a quantity changes with what differs between two series
// of rounds, such as the size of the fleet: its value after by that before, round by
// round.
func Growth(what string, before, after []Round, quantity string, of Statistic, goal *Goal) Row {
	var rounds []Round
	for i := range min(len(before), len(after)) {
		rounds = append(rounds, Round{
			Nodegate: grown(before[i].Nodegate, after[i].Nodegate, quantity, of),
			Limit:    grown(before[i].Limit, after[i].Limit, quantity, of),
		})
	}
	return Compare(what, "", rounds, quantity, Mean, goal)
}

func grown(before, after Sample, quantity string, of Statistic) Sample {
	if len(before[quantity]) == 0 || len(after[quantity]) == 0 {
		return nil
	}
	value := of(before[quantity])
	if value == 0 {
		return nil
	}
	return Sample{quantity: {of(after[quantity]) / value}}
}
