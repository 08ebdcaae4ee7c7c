// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A Result is the result of one figure.
type Result struct {
	// ID is the figure's ID, such as P1.
	ID    string `json:"id"`
	Title string `json:"title"`
	Rows  []Row  `json:"rows"`
	// Took is the duration of the measurement. Figures with the same turns share one
	// measurement, whose duration is that of the first of them.
	Took string `json:"took,omitempty"`
	// Rounds are those of the measurement, if it has any.
	Rounds *Rounds `json:"rounds,omitempty"`
	// Notes explain the rows.
	Notes []string `json:"notes,omitempty"`
}

// Rounds are the rounds of a figure's measurement.
type Rounds struct {
	// Measured is the number of rounds, including those that were rejected and repeated.
	Measured int `json:"measured"`
	// Rejections states for each rejected round why it was rejected.
	Rejections []string `json:"rejections,omitempty"`
}

// A Report contains the results of a run.
type Report struct {
	// Command repeats the run. Quick specifies whether it was a quick run.
	Command string `json:"command"`
	Quick   bool   `json:"quick"`
	Date    string `json:"date"`
	Machine string `json:"machine"`
	// LoadBefore and LoadAfter are the machine's load averages.
	LoadBefore string `json:"loadBefore"`
	LoadAfter  string `json:"loadAfter"`
	// Versions are the versions of the components.
	Versions string `json:"versions"`
	// Cuts is the number of times that the API server ended a watch of the limit or of the
	// observer.
	Cuts int `json:"cuts"`
	// Took is the duration of the whole run.
	Took    string   `json:"took"`
	Results []Result `json:"results"`
}

// Table writes the rows as a Markdown table, with a row for the title of each figure.
func (r *Report) Table(out io.Writer) {
	fmt.Fprintln(out, "| | what | unit | nodegate | limit | ratio | n | goal | |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, result := range r.Results {
		fmt.Fprintf(out, "| **%s** | **%s** | | | | | | | |\n", result.ID, result.Title)
		for _, row := range result.Rows {
			fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", result.ID, row.What, row.Unit,
				cmp.Or(row.Nodegate.String(), unmeasured), row.Limit, row.Ratio, row.count(), row.Goal.text(row.Unit), row.verdict())
		}
	}
}

// unmeasured is the value of a quantity that could not be measured.
const unmeasured = "-"

// count returns the number of values on which the row is based: those of nodegate if it has no
// ratio.
func (r *Row) count() string {
	if s := cmp.Or(r.decisive(), r.Nodegate); s != nil && s.N > 0 {
		return strconv.Itoa(s.N)
	}
	return ""
}

// verdict returns the verdict as Markdown.
func (r *Row) verdict() string {
	switch {
	case r.Verdict == NotReached:
		return "**" + string(r.Verdict) + "**"
	case r.Why != "":
		return string(r.Verdict) + ": " + r.Why
	}
	return string(r.Verdict)
}

// Times returns the duration of each figure, such as "P1 2m3s, P3 15s".
func (r *Report) Times() string {
	var all []string
	for _, result := range r.Results {
		all = append(all, result.ID+" "+result.Took)
	}
	return strings.Join(all, ", ")
}

// Rejected returns the number of rejected rounds of each figure with rounds, such as "P1 1
// of 6, P2 0 of 10".
func (r *Report) Rejected() string {
	var all []string
	for _, result := range r.Results {
		if n := result.Rounds; n != nil {
			all = append(all, fmt.Sprintf("%s %d of %d", result.ID, len(n.Rejections), n.Measured))
		}
	}
	return strings.Join(all, ", ")
}

// HasIntervals reports whether the results contain confidence intervals, which older ones
// do not.
func (r *Report) HasIntervals() bool {
	for _, result := range r.Results {
		for _, row := range result.Rows {
			if row.Nodegate != nil && row.Nodegate.N == 0 {
				return false
			}
		}
	}
	return true
}

// With returns the rows with a verdict, such as "P1 p99".
func (r *Report) With(verdict Verdict) []string {
	var all []string
	for _, result := range r.Results {
		for _, row := range result.Rows {
			if row.Verdict == verdict {
				all = append(all, result.ID+" "+row.What)
			}
		}
	}
	return all
}

// CutsText returns sentences about watches that were ended.
func (r *Report) CutsText() string {
	return fmt.Sprintf("The API server ended a watch of the limit or the observer %d times. Rounds in which that happened while something was measured are rejected; exact counts include them.", r.Cuts)
}

// introduction is true for each figure of each report. What applies to some figures only, such
// as what the limit is, is in their notes.
const introduction = `Values are medians of n measurements, with the confidence interval of the median in parentheses: 95 % or more, or 93.75 %
with five values. With fewer values, it is from the minimum to the maximum. That also applies to exact counts, such as writes.
Ratios are computed within pairs of measurements of nodegate and of the limit. There is no ratio if a value of the limit is not
positive. The notes on each figure describe its limit, and how its values are measured. CPU time and memory of processes are
those that the operating system counts; allocations and heaps are counted by Go's runtime.

A goal is reached if the whole interval is within it, and not reached if the whole interval is outside. Otherwise this run
does not decide. Less than five values decide nothing, unless they are exact counts. If one of these is outside of the goal,
it is not reached.
`

// rejection explains the numbers of rejected rounds.
const rejection = `In the following figures, a round in which the machine did something else, or in which the API server ended a watch of the
limit or the observer, is rejected, and repeated if there is time. Only counts that other work does not affect, such as bytes
and writes, include rejected rounds.
`

// Page writes the report as Markdown.
func (r *Report) Page(out io.Writer) {
	fmt.Fprintf(out, "# Results\n\nMeasured by `%s` on %s, in %s: %s.\n", r.Command, r.Date, r.Took, r.Machine)
	fmt.Fprintf(out, "%s. Load average before %s, after %s.\n", r.Versions, r.LoadBefore, r.LoadAfter)
	if r.Quick {
		fmt.Fprint(out, "\nThis was a quick run with few rounds and small fleets. It checks that the figures can be measured; the values are not meaningful.\n")
	}
	if r.Cuts > 0 {
		fmt.Fprintf(out, "\n%s\n", r.CutsText())
	}
	fmt.Fprintf(out, "\n%s\n", introduction)
	r.Table(out)
	r.verdicts(out)
	if rejected := r.Rejected(); rejected != "" {
		fmt.Fprintf(out, "\n%s\nRejected rounds, of all: %s.\n", rejection, rejected)
	}
	fmt.Fprintf(out, "\nDuration of each figure: %s.\n", r.Times())
	for _, result := range r.Results {
		fmt.Fprintf(out, "\n## %s: %s\n\n", result.ID, result.Title)
		for _, note := range result.Notes {
			fmt.Fprintf(out, "- %s\n", note)
		}
		if n := result.Rounds; n != nil {
			for _, reason := range n.Rejections {
				fmt.Fprintf(out, "- Rejected round: %s.\n", reason)
			}
		}
	}
}

// verdicts lists the rows whose goals were not reached, or are not decided.
func (r *Report) verdicts(out io.Writer) {
	missed, undecided := r.With(NotReached), r.With(NotDecided)
	if len(missed) > 0 {
		fmt.Fprintf(out, "\nNot reached: %s.\n", strings.Join(missed, "; "))
	}
	if len(undecided) > 0 {
		fmt.Fprintf(out, "\nNot decided: %s.\n", strings.Join(undecided, "; "))
	}
	if len(missed)+len(undecided) == 0 {
		fmt.Fprintf(out, "\nAll goals were reached.\n")
	}
}

// Write writes RESULTS.md and results.json to a directory.
func (r *Report) Write(dir string) error {
	var page bytes.Buffer
	r.Page(&page)
	content, err := json.MarshalIndent(r, "", "  ")
	err = errors.Join(err,
		os.WriteFile(filepath.Join(dir, "RESULTS.md"), page.Bytes(), 0o644),
		os.WriteFile(filepath.Join(dir, "results.json"), append(content, '\n'), 0o644))
	if err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	return nil
}
