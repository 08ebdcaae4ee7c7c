// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
	// Notes explain the rows.
	Notes []string `json:"notes,omitempty"`
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
	// Cuts is the number of times that the API server ended a watch of the observer.
	Cuts int `json:"cuts"`
	// Took is the duration of the whole run.
	Took    string   `json:"took"`
	Results []Result `json:"results"`
}

// Table writes the rows as a Markdown table.
func (r *Report) Table(out io.Writer) {
	fmt.Fprintln(out, "| | what | unit | nodegate | limit | ratio | goal | |\n| --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, result := range r.Results {
		for _, row := range result.Rows {
			verdict := string(row.Verdict)
			if row.Verdict == NotReached {
				verdict = "**" + verdict + "**"
			}
			fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", result.ID, row.What, row.Unit,
				row.Nodegate, row.Limit, row.Ratio, row.Goal.text(row.Unit), verdict)
		}
	}
}

// Times returns the duration of each figure, such as "P1 2m3s, P3 15s".
func (r *Report) Times() string {
	var all []string
	for _, result := range r.Results {
		all = append(all, result.ID+" "+result.Took)
	}
	return strings.Join(all, ", ")
}

// Missed returns the rows that have not reached their goals, such as "P1 p99".
func (r *Report) Missed() []string {
	var missed []string
	for _, result := range r.Results {
		for _, row := range result.Rows {
			if row.Verdict == NotReached {
				missed = append(missed, result.ID+" "+row.What)
			}
		}
	}
	return missed
}

const introduction = `Values are medians of the rounds, with minimum and maximum. Ratios are computed within a round. The limit is a bare
loop that watches pods and sends one precomputed PATCH for each node, with nodegate's permissions, client settings and
concurrency; it takes turns with nodegate (A B B A). A separate process observes times. Counts come from the API server's
audit log; everything else comes from the operating system, the API server and etcd.
`

// page writes the report as Markdown.
func (r *Report) page(out io.Writer) {
	fmt.Fprintf(out, "# Results\n\nMeasured by `%s` on %s, in %s: %s.\n", r.Command, r.Date, r.Took, r.Machine)
	fmt.Fprintf(out, "%s. Load average before %s, after %s.\n", r.Versions, r.LoadBefore, r.LoadAfter)
	if r.Quick {
		fmt.Fprint(out, "\nThis was a quick run with few rounds and small fleets. It checks that the figures can be measured; the values are not meaningful.\n")
	}
	if r.Cuts > 0 {
		fmt.Fprintf(out, "\nThe machine was too busy: the API server ended a watch of the observer %d times, so some changes were observed late.\n", r.Cuts)
	}
	fmt.Fprintf(out, "\n%s\n", introduction)
	r.Table(out)
	if missed := r.Missed(); len(missed) > 0 {
		fmt.Fprintf(out, "\nNot reached: %s.\n", strings.Join(missed, "; "))
	} else {
		fmt.Fprintf(out, "\nAll goals were reached.\n")
	}
	fmt.Fprintf(out, "\nDuration of each figure: %s.\n", r.Times())
	for _, result := range r.Results {
		fmt.Fprintf(out, "\n## %s: %s\n\n", result.ID, result.Title)
		for _, note := range result.Notes {
			fmt.Fprintf(out, "- %s\n", note)
		}
	}
}

// Write writes RESULTS.md and results.json to a directory.
func (r *Report) Write(dir string) error {
	var page bytes.Buffer
	r.page(&page)
	content, err := json.MarshalIndent(r, "", "  ")
	err = errors.Join(err,
		os.WriteFile(filepath.Join(dir, "RESULTS.md"), page.Bytes(), 0o644),
		os.WriteFile(filepath.Join(dir, "results.json"), append(content, '\n'), 0o644))
	if err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	return nil
}
