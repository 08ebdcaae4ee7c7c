// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nodegate/nodegate/bench/report"
)

// A run is a command whose results the page contains.
type run struct {
	// begin is the beginning of the comment that precedes a generated part of the page and
	// names its contents. Another comment ends the part.
	begin string
	// results is the file with the results.
	results string
}

var runs = []run{
	{"<!-- from the last run: ", "bench/results.json"},
	{"<!-- from the last run of bench-scale: ", "bench/scale/results.json"},
}

// place matches a generated part of the page.
func (from run) place() *regexp.Regexp {
	return regexp.MustCompile(`(?s)` + regexp.QuoteMeta(from.begin) + `([^>]*?) -->\n.*?<!-- end -->`)
}

var figureID = regexp.MustCompile(`^P\d+(-[a-z]+)?$`)

// fill replaces the contents of all places of a page that are from this run.
func (from run) fill(page string, r *report.Report) (string, error) {
	var failed error
	place := from.place()
	filled := place.ReplaceAllStringFunc(page, func(old string) string {
		what := place.FindStringSubmatch(old)[1]
		text, err := textOf(what, r)
		if err != nil {
			failed = err
		}
		return from.begin + what + " -->\n" + text + "<!-- end -->"
	})
	if begun := strings.Count(page, from.begin); begun != len(place.FindAllString(page, -1)) {
		return "", fmt.Errorf("some of the %d places have no end", begun)
	}
	return filled, failed
}

// notMeasured replaces what the last run has not measured.
const notMeasured = "Not measured in the last run.\n"

// named are the contents of places that have a name.
var named = map[string]func(*report.Report) string{
	"where": whereText, "goals": goalsText, "expected": expectedText, "rate": rateText, "slopes": slopesText,
}

// textOf returns the contents of a place: something named, selected rows, or all rows of
// figures, by their IDs.
func textOf(what string, r *report.Report) (string, error) {
	if text, ok := named[what]; ok {
		return text(r), nil
	}
	part := *r
	if rows, ok := selections[what]; ok {
		part.Results = selected(r, rows)
		return tableText(&part), nil
	}
	part.Results = nil
	for _, id := range strings.Fields(what) {
		if !figureID.MatchString(id) {
			return "", fmt.Errorf("%q is neither a figure nor a table", id)
		}
		i := slices.IndexFunc(r.Results, func(result report.Result) bool { return result.ID == id })
		if i >= 0 {
			part.Results = append(part.Results, r.Results[i])
		}
	}
	return tableText(&part), nil
}

// tableText returns the rows of a report.
func tableText(r *report.Report) string {
	if len(r.Results) == 0 {
		return notMeasured
	}
	var table strings.Builder
	r.Table(&table)
	return table.String()
}

// whereText describes when and where the run took place.
func whereText(r *report.Report) string {
	if len(r.Results) == 0 {
		return "There are no results yet.\n"
	}
	text := fmt.Sprintf("Measured by `%s` on %s: %s; %s.\nLoad average before %s, after %s.\n",
		r.Command, r.Date, r.Machine, r.Versions, r.LoadBefore, r.LoadAfter)
	if !r.HasIntervals() {
		text += "Its results have no confidence intervals: minimum and maximum are in parentheses, and goals were compared with medians.\n"
	}
	if r.Cuts > 0 {
		text += r.CutsText() + "\n"
	}
	if r.Quick {
		text += "This was a quick run, whose figures are not meaningful.\n"
	}
	return text
}
