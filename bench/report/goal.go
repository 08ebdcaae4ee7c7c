// SPDX-License-Identifier: Apache-2.0

package report

import "fmt"

// A Goal is the range of a quantity that is to be reached.
type Goal struct {
	// Of is the column to which the goal applies.
	Of Column `json:"of"`
	// AtMost is in the row's unit, or a ratio. AtLeast is 0 if there is no minimum.
	AtMost  float64 `json:"atMost"`
	AtLeast float64 `json:"atLeast,omitempty"`
}

// A Column is a column of a row.
type Column string

// The columns to which a goal can apply: nodegate's value, or its ratio to the limit's.
const (
	OfNodegate Column = "nodegate"
	OfRatio    Column = "ratio"
)

// AtMost returns a goal for nodegate's value.
func AtMost(value float64) *Goal { return &Goal{Of: OfNodegate, AtMost: value} }

// TimesLimit returns a goal for the ratio.
func TimesLimit(ratio float64) *Goal { return &Goal{Of: OfRatio, AtMost: ratio} }

// Within returns a goal for the ratio, which may differ from 1 by a share, such as 0.05.
func Within(share float64) *Goal { return &Goal{Of: OfRatio, AtMost: 1 + share, AtLeast: 1 - share} }

// text returns a text such as "≤ 1.15 × the limit" or "≤ 0.6 ms".
func (g *Goal) text(unit string) string {
	switch {
	case g == nil:
		return ""
	case g.AtLeast > 0:
		return fmt.Sprintf("%g to %g × the limit", g.AtLeast, g.AtMost)
	case g.Of == OfRatio:
		return fmt.Sprintf("≤ %g × the limit", g.AtMost)
	case unit == "":
		return fmt.Sprintf("≤ %g", g.AtMost)
	}
	return fmt.Sprintf("≤ %g %s", g.AtMost, unit)
}

// A Verdict is the result of comparing a row with its goal.
type Verdict string

// The verdicts. A row without a goal has an empty verdict.
const (
	// Reached: the whole interval is within the goal.
	Reached Verdict = "reached"
	// NotReached: the whole interval is outside of the goal.
	NotReached Verdict = "not reached"
	// NotDecided: the measurement cannot tell.
	NotDecided Verdict = "not decided"
)

// Reasons why a row is not decided, other than an interval that contains the goal.
const (
	notMeasured  = "not measured"
	allDisturbed = "all rounds were disturbed"
	tooFewPairs  = "too few pairs"
	tooFewValues = "too few values"
	notPositive  = "a value to divide by is not positive"
)

// verdictOfCounts compares exact counts with the goal, which has no minimum. All of them
// must be within it: a single one above shows that nodegate can miss the goal.
func (g *Goal) verdictOfCounts(s *Spread) Verdict {
	if s.Max > g.AtMost {
		return NotReached
	}
	return Reached
}

// verdict compares an interval with the goal.
func (g *Goal) verdict(s *Spread) Verdict {
	bounded := g.AtLeast > 0
	switch {
	case s.High <= g.AtMost && (!bounded || s.Low >= g.AtLeast):
		return Reached
	case s.Low > g.AtMost, bounded && s.High < g.AtLeast:
		return NotReached
	}
	return NotDecided
}
