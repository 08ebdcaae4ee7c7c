// SPDX-License-Identifier: Apache-2.0

package torture

import (
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
