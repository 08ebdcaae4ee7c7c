// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Result is the result of one figure.
type Result struct {
	// ID is the figure's ID, such as P1, and Title its subject.
	ID    string `json:"id"`
	Title string `json:"title"`
	Rows  []Row  `json:"rows"`
	// Took is the duration of the measurement, including profiles. A figure that uses
	// the turns of another one takes no time itself.
	Took string `json:"took,omitempty"`
	// Notes are sentences that explain the rows.
	Notes []string `json:"notes,omitempty"`
}

// Reached reports whether the figure has reached all of its goals.
func (r *Result) Reached() bool {
	return !slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Verdict == NotReached })
}

// A Report is a whole run.
type Report struct {
	// Command is the command that repeats the run, and Quick is true for a short
	// run.
	Command string `json:"command"`
	Quick   bool   `json:"quick"`
	Date    string `json:"date"`
	// Machine, LoadBefore and LoadAfter describe where it ran: its load averages.
	Machine    string `json:"machine"`
	LoadBefore string `json:"loadBefore"`
	LoadAfter  string `json:"loadAfter"`
	// Versions are the versions of the components.
	Versions string `json:"versions"`
	// Cuts is how often the API server ended a watch of the observer.
	Cuts int `json:"cuts"`
	// Took is the duration of the whole run.
	Took    string   `json:"took"`
	Results []Result `json:"results"`
}

// Table writes the figures as Markdown.
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

// Times returns the duration of each figure, in the form "P1 2m3s, P3 15s".
func (r *Report) Times() string {
	var all []string
	for _, result := range r.Results {
		all = append(all, result.ID+" "+result.Took)
	}
	return strings.Join(all, ", ")
}

// Missed returns the rows that have not reached their goals, in the form "P1
// p99".
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

const introduction = `Medians of the rounds, with the least and the greatest. A ratio is of one round, of nodegate's value and the
limit's: a bare loop that watches pods and sends one precomputed PATCH for each node, with the same rights, client
settings and concurrency, in turns with nodegate (A B B A). A process of its own observes; counts come from the API
server's audit log, other figures from the operating system, from the API server and from etcd.
`

// page writes everything as Markdown.
func (r *Report) page(out io.Writer) {
	fmt.Fprintf(out, "# Results\n\nMeasured by `%s` on %s, in %s: %s.\n", r.Command, r.Date, r.Took, r.Machine)
	fmt.Fprintf(out, "%s. Load average before %s, after %s.\n", r.Versions, r.LoadBefore, r.LoadAfter)
	if r.Quick {
		fmt.Fprint(out, "\nThis was a quick run, of few rounds and small fleets: it shows that the figures can be measured, not what they are.\n")
	}
	if r.Cuts > 0 {
		fmt.Fprintf(out, "\nThe machine was too busy: %d times, the API server cut off one of the observer's watches, so that some things were seen late.\n", r.Cuts)
	}
	fmt.Fprintf(out, "\n%s\n", introduction)
	r.Table(out)
	if missed := r.Missed(); len(missed) > 0 {
		fmt.Fprintf(out, "\nNot reached: %s.\n", strings.Join(missed, "; "))
	} else {
		fmt.Fprintf(out, "\nEvery goal was reached.\n")
	}
	fmt.Fprintf(out, "\nHow long each figure took: %s.\n", r.Times())
	for _, result := range r.Results {
		fmt.Fprintf(out, "\n## %s: %s\n\n", result.ID, result.Title)
		for _, note := range result.Notes {
			fmt.Fprintf(out, "- %s\n", note)
		}
	}
}

// Write writes RESULTS.md and results.json into a directory.
func (r *Report) Write(dir string) error {
	var page bytes.Buffer
	r.page(&page)
	if err := os.WriteFile(filepath.Join(dir, "RESULTS.md"), page.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("marshalling results: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "results.json"), append(content, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	return nil
}
