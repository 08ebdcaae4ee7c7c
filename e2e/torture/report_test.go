// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"slices"
	"strings"
	"testing"

	"github.com/nodegate/nodegate/e2e/judge"
)

// reportOf returns the report of a phase in which the judge checked every rule and found nothing.
func reportOf(p phase) *Report {
	r := newReport(1, p)
	r.Verdict = &judge.Verdict{Checked: make(map[judge.Rule]map[string]int)}
	for _, rule := range judge.Rules() {
		r.Verdict.Checked[rule] = map[string]int{"something": 1}
	}
	return r
}

// A phase that injects no fault shows nothing, and fails.
func TestPhaseWithoutFaultsFails(t *testing.T) {
	for _, p := range phases {
		r := reportOf(p)
		if r.Steps, r.Failures = 3, 3; r.Pass() {
			t.Errorf("%s passes without faults and without churn", p.id)
		}
		r.Steps++
		if r.Pass() != (p.id == "R9") {
			t.Errorf("%s with churn and without faults: Pass is %v", p.id, r.Pass())
		}
		for _, f := range p.injects {
			r.inject(f)
		}
		if !r.Pass() {
			t.Errorf("%s fails with faults: %s", p.id, strings.Join(r.failures(), "; "))
		}
	}
}

// What the judge could not judge is in the report.
func TestReportListsWhatIsNotJudged(t *testing.T) {
	r := reportOf(phases[0])
	r.Verdict.NotJudged = map[judge.Rule]map[string]int{judge.RuleOpening: {"signal expression": 7, "signal object": 2}}
	var text strings.Builder
	if _, err := r.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	const want = "       1 checks of rule S1\n       7 NOT JUDGED: signal expression\n       2 NOT JUDGED: signal object\n"
	if !strings.Contains(text.String(), want) {
		t.Errorf("the report is\n%s\nwant\n%s", &text, want)
	}
}

// A phase fails if the judge could judge nothing under a rule, even if the phase may lack the rule.
func TestPhaseInWhichNothingIsJudgedFails(t *testing.T) {
	for _, p := range phases {
		for _, rule := range judge.Rules() {
			r := reportOf(p)
			for _, f := range p.injects {
				r.inject(f)
			}
			r.Steps++
			delete(r.Verdict.Checked, rule)
			r.Verdict.NotJudged = map[judge.Rule]map[string]int{rule: {"signal expression": 7}}
			if want := "of 7 cases under rule " + string(rule) + ", none was judged"; !slices.Contains(r.failures(), want) {
				t.Errorf("%s: the failures are %q, want %q", p.id, r.failures(), want)
			}
		}
	}
}
