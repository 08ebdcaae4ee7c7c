// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/nodegate/nodegate/e2e/judge"
	"github.com/nodegate/nodegate/e2e/torture/faultproxy"
	"github.com/nodegate/nodegate/testcluster"
)

// Report is the result of a phase.
type Report struct {
	Seed      uint64
	ID, Title string
	// Skipped is the reason why the phase did not run, or "". If it is set, nothing else is.
	Skipped string
	// Injected counts the faults that were injected.
	Injected map[faultproxy.Fault]int
	// Starts counts processes of nodegate, and Kills counts processes ended by SIGKILL.
	Starts, Kills int64
	// Steps counts the steps of churn, and Failures those that failed because the API
	// server was down or another writer was faster.
	Steps, Failures int64
	// Patches counts nodegate's patches of Nodes by HTTP status code. Repeated counts the
	// patches that changed nothing.
	Patches  map[int32]int
	Repeated int
	// Converged is the longest time from the end of faults, with everything ready, until
	// the gates that wait for nothing but facts were open on all nodes. AllOpen is the
	// same for all gates, some of which wait for up to a minute.
	Converged, AllOpen time.Duration
	Took               time.Duration
	// Notes are additional measurements.
	Notes []string
	// Verdict is the judge's verdict.
	Verdict *judge.Verdict
	// Wrong are failures that the verdict does not contain.
	Wrong []error

	injects []faultproxy.Fault
	lacks   []judge.Rule
	mu      sync.Mutex
}

func newReport(seed uint64, p phase) *Report {
	return &Report{
		Seed: seed, ID: p.id, Title: p.title, injects: p.injects, lacks: p.lacks,
		Injected: make(map[faultproxy.Fault]int), Patches: make(map[int32]int),
	}
}

// failed adds an error, unless it is nil.
func (r *Report) failed(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Wrong = append(r.Wrong, err)
}

// note adds a measurement.
func (r *Report) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// inject counts a fault that no proxy has injected.
func (r *Report) inject(f faultproxy.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Injected[f]++
}

// addReplica adds the counts of a replica.
func (r *Report) addReplica(from *replica) {
	for f, n := range from.proxy.Injected() {
		r.Injected[f] += n
	}
	r.Starts += from.starts.Load()
	r.Kills += from.kills.Load()
}

// count counts nodegate's patches.
func (r *Report) count(s *site) error {
	r.Steps, r.Failures = s.fleet.steps.Load(), s.fleet.failures.Load()
	seen := make(map[string]bool) // resource versions
	return testcluster.ReadAuditFile(s.cluster.AuditLog(), s.since.Logged, func(event *auditv1.Event) error {
		if event.ObjectRef == nil || event.ObjectRef.Resource != "nodes" || event.ResponseStatus == nil || testcluster.IsDryRun(event) {
			return nil
		}
		version := testcluster.ResourceVersion(event)
		first := !seen[version]
		seen[version] = true
		if event.Verb != "patch" || event.User.Username != s.installation.Username() {
			return nil
		}
		r.Patches[event.ResponseStatus.Code]++
		if event.ResponseStatus.Code == http.StatusOK && version != "" && !first {
			r.Repeated++
		}
		return nil
	})
}

// Pass reports whether there are no failures and the verdict passes, or the phase was skipped.
func (r *Report) Pass() bool {
	return r.Skipped != "" || len(r.Wrong) == 0 && len(r.failures()) == 0
}

// failures returns the judge's violations, the rules under which nothing was checked, and whether
// there were no faults. A phase may lack a rule only if there is nothing that it applies to.
func (r *Report) failures() []string {
	if r.Verdict == nil {
		return []string{"the run was not judged"}
	}
	var all []string
	if why := r.harmless(); why != "" {
		all = append(all, why)
	}
	for _, v := range r.Verdict.Violations {
		all = append(all, v.String())
	}
	for _, rule := range r.Verdict.Unchecked() {
		switch notJudged := total(r.Verdict.NotJudged[rule]); {
		case notJudged > 0:
			all = append(all, fmt.Sprintf("of %d cases under rule %s, none was judged", notJudged, rule))
		case !slices.Contains(r.lacks, rule):
			all = append(all, fmt.Sprintf("nothing was checked under rule %s", rule))
		}
	}
	return all
}

// harmless returns why the phase proves nothing, or "".
func (r *Report) harmless() string {
	injected := func(f faultproxy.Fault) bool { return r.Injected[f] > 0 }
	switch {
	case r.injects == nil && r.Steps == r.Failures:
		return "there was no churn"
	case r.injects != nil && !slices.ContainsFunc(r.injects, injected):
		return fmt.Sprintf("none of these faults was injected: %v", r.injects)
	}
	return ""
}

// shown is the maximum number of the judge's findings in a report.
const shown = 10

// WriteTo writes the report as text.
func (r *Report) WriteTo(w io.Writer) (int64, error) {
	if r.Skipped != "" {
		n, err := fmt.Fprintf(w, "%s %s: not run: %s\n", r.ID, r.Title, r.Skipped)
		return int64(n), err
	}
	var text strings.Builder
	state := "passed"
	if !r.Pass() {
		state = "FAILED"
	}
	fmt.Fprintf(&text, "%s %s: %s (seed %d, %s)\n", r.ID, r.Title, state, r.Seed, r.Took.Round(time.Second))
	for _, f := range slices.Sorted(maps.Keys(r.Injected)) {
		fmt.Fprintf(&text, "  %6d %s\n", r.Injected[f], f)
	}
	fmt.Fprintf(&text, "  %6d starts of nodegate, %d SIGKILLs\n", r.Starts, r.Kills)
	fmt.Fprintf(&text, "  %6d steps of churn (%d additional steps failed)\n", r.Steps-r.Failures, r.Failures)
	for _, code := range slices.Sorted(maps.Keys(r.Patches)) {
		fmt.Fprintf(&text, "  %6d patches answered %d\n", r.Patches[code], code)
	}
	fmt.Fprintf(&text, "  %6d patches that changed nothing\n", r.Repeated)
	fmt.Fprintf(&text, "  gates that wait only for facts opened %s after everything was ready, all gates after %s\n",
		r.Converged.Round(time.Millisecond), r.AllOpen.Round(time.Millisecond))
	for _, note := range r.Notes {
		fmt.Fprintf(&text, "  %s\n", note)
	}
	r.writeRules(&text)
	for _, err := range r.Wrong {
		fmt.Fprintf(&text, "  FAILURE: %v\n", err)
	}
	failures := r.failures()
	for _, f := range failures[:min(len(failures), shown)] {
		fmt.Fprintf(&text, "  FAILURE: %s\n", f)
	}
	if more := len(failures) - shown; more > 0 {
		fmt.Fprintf(&text, "  FAILURE: and %d more\n", more)
	}
	n, err := io.WriteString(w, text.String())
	return int64(n), err
}

// writeRules writes how much the judge has checked under each rule, and what it could not judge.
func (r *Report) writeRules(text *strings.Builder) {
	if r.Verdict == nil {
		return
	}
	for _, rule := range judge.Rules() {
		fmt.Fprintf(text, "  %6d checks of rule %s\n", total(r.Verdict.Checked[rule]), rule)
		notJudged := r.Verdict.NotJudged[rule]
		for _, why := range slices.Sorted(maps.Keys(notJudged)) {
			fmt.Fprintf(text, "  %6d NOT JUDGED: %s\n", notJudged[why], why)
		}
	}
}

func total(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}
