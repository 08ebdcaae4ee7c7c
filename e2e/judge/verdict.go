// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// Rule is the identifier of a rule in README.md.
type Rule string

// The rules.
const (
	// RuleOpening requires that no gate opens against the newest committed facts.
	RuleOpening Rule = "S1"
	// RuleForeign requires that only their owners change taints, labels, annotations
	// and fields of Nodes.
	RuleForeign Rule = "S2"
	// RuleBirth requires that no Node is ever visible ungated.
	RuleBirth Rule = "S3"
	// RuleClosing requires that gates close for the reason that they record, and within
	// budget.
	RuleClosing Rule = "S4"
	// RuleNodes requires that nodegate stops no node from registering, reporting or being
	// deleted.
	RuleNodes Rule = "S5"
	// RuleLockout requires that nodegate's policies do not reject nodegate's own requests.
	RuleLockout Rule = "S6"
	// RuleQuiet requires that, after a quiet period, every node is in the state that
	// its gates require.
	RuleQuiet Rule = "L"
)

// Rules returns all rules, in the order of the verdict.
func Rules() []Rule {
	return []Rule{RuleOpening, RuleForeign, RuleBirth, RuleClosing, RuleNodes, RuleLockout, RuleQuiet}
}

var titles = map[Rule]string{
	RuleOpening: "no gate opens against the newest committed facts",
	RuleForeign: "only their owners change taints, labels, annotations and fields of nodes",
	RuleBirth:   "no node is ever visible ungated",
	RuleClosing: "gates close for the reason that they record, and within budget",
	RuleNodes:   "nodegate stops no node from registering, reporting or being deleted",
	RuleLockout: "nodegate's policies do not reject nodegate's own requests",
	RuleQuiet:   "after a quiet period, every node is in the state that its gates require",
}

// Violation is a write or a final state that violates a rule.
type Violation struct {
	Rule       Rule
	Node, Gate string
	Revision   int64
	// At is the latest time at which the revision can have been committed.
	At time.Time
	// Who is the user and the audit ID of the request, if known.
	Who string
	// What is what happened, and Why is the reason for which it violates the rule.
	What, Why string
}

// String returns the violation as a single line.
func (v Violation) String() string {
	where := ""
	if v.Node != "" {
		where = "node " + v.Node + ", "
	}
	if v.Gate != "" {
		where += "gate " + v.Gate + ", "
	}
	who := ""
	if v.Who != "" {
		who = " by " + v.Who
	}
	return fmt.Sprintf("%s: %srevision %d, %s%s: %s: %s", v.Rule, where, v.Revision, v.At.UTC().Format("15:04:05.000"), who, v.What, v.Why)
}

// Verdict is the result of judging a run.
type Verdict struct {
	// From and To are the first and the last revision that were judged.
	From, To int64
	// Checked counts the checks, by rule and by what was checked.
	Checked map[Rule]map[string]int
	// NotJudged counts, by rule and reason, the cases that a rule applies to and that the
	// judge cannot decide.
	NotJudged map[Rule]map[string]int
	// Violations are sorted by revision.
	Violations []Violation
}

func newVerdict(h *revisions.History) *Verdict {
	v := &Verdict{From: h.From, To: h.To, Checked: make(map[Rule]map[string]int), NotJudged: make(map[Rule]map[string]int)}
	for _, rule := range Rules() {
		v.Checked[rule], v.NotJudged[rule] = make(map[string]int), make(map[string]int)
	}
	return v
}

// Pass reports whether there are no violations and every rule was checked at least
// once. A history in which nothing happens therefore does not pass.
func (v *Verdict) Pass() bool { return len(v.Violations) == 0 && len(v.Unchecked()) == 0 }

// Unchecked returns the rules under which nothing was checked.
func (v *Verdict) Unchecked() []Rule {
	return slices.DeleteFunc(Rules(), func(r Rule) bool { return len(v.Checked[r]) > 0 })
}

// Broken returns the rules that were violated.
func (v *Verdict) Broken() []Rule {
	return slices.DeleteFunc(Rules(), func(r Rule) bool {
		return !slices.ContainsFunc(v.Violations, func(found Violation) bool { return found.Rule == r })
	})
}

func (v *Verdict) sort() {
	slices.SortStableFunc(v.Violations, func(a, b Violation) int { return cmp.Compare(a.Revision, b.Revision) })
}

// WriteTo writes the verdict as text.
func (v *Verdict) WriteTo(w io.Writer) (int64, error) {
	var text strings.Builder
	fmt.Fprintf(&text, "revisions %d to %d\n", v.From, v.To)
	for _, rule := range Rules() {
		broken := 0
		for i := range v.Violations {
			if v.Violations[i].Rule == rule {
				broken++
			}
		}
		state := "ok"
		switch {
		case broken > 0:
			state = fmt.Sprintf("%d VIOLATIONS", broken)
		case len(v.Checked[rule]) == 0:
			state = "NOTHING CHECKED"
		}
		fmt.Fprintf(&text, "%-2s %s: %s\n", rule, titles[rule], state)
		writeCounts(&text, "checked", v.Checked[rule])
		writeCounts(&text, "NOT JUDGED", v.NotJudged[rule])
	}
	for i := range v.Violations {
		fmt.Fprintln(&text, v.Violations[i])
	}
	n, err := io.WriteString(w, text.String())
	return int64(n), err
}

func writeCounts(text *strings.Builder, title string, counts map[string]int) {
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(text, "     %s: %d %s\n", title, counts[what], what)
	}
}
