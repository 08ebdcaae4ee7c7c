// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nodegate/nodegate/bench/report"
)

// part matches a generated part of the page: from a comment that names its contents to a
// comment that ends it.
var part = regexp.MustCompile(`(?s)<!-- from the last run: ([^>]*?) -->\n.*?<!-- end -->`)

var figureID = regexp.MustCompile(`^P\d+(-[a-z]+)?$`)

// fill replaces all generated parts of a page.
func fill(page string, r *report.Report) (string, error) {
	var failed error
	filled := part.ReplaceAllStringFunc(page, func(old string) string {
		what := part.FindStringSubmatch(old)[1]
		text, err := textOf(what, r)
		if err != nil {
			failed = err
		}
		return "<!-- from the last run: " + what + " -->\n" + text + "<!-- end -->"
	})
	if begun := strings.Count(page, "<!-- from the last run:"); begun != len(part.FindAllString(page, -1)) {
		return "", fmt.Errorf("of %d generated parts, some have no end", begun)
	}
	return filled, failed
}

// textOf returns the contents of a generated part: the rows of figures, by their IDs, or a
// named text.
func textOf(what string, r *report.Report) (string, error) {
	switch what {
	case "where":
		return whereText(r), nil
	case "expected":
		return expectedText(r), nil
	}
	selected := *r
	selected.Results = nil
	for _, id := range strings.Fields(what) {
		if !figureID.MatchString(id) {
			return "", fmt.Errorf("%q is neither a figure nor a named text", id)
		}
		i := slices.IndexFunc(r.Results, func(result report.Result) bool { return result.ID == id })
		if i >= 0 {
			selected.Results = append(selected.Results, r.Results[i])
		}
	}
	if len(selected.Results) == 0 {
		return "Not measured in the last run.\n", nil
	}
	var table strings.Builder
	selected.Table(&table)
	return table.String(), nil
}

// whereText describes when and where the run took part.
func whereText(r *report.Report) string {
	if len(r.Results) == 0 {
		return "There are no results yet.\n"
	}
	text := fmt.Sprintf("Measured by `%s` on %s: %s; %s.\nLoad average before %s, after %s.\n",
		r.Command, r.Date, r.Machine, r.Versions, r.LoadBefore, r.LoadAfter)
	if r.Quick {
		text += "This was a quick run, whose values are not meaningful.\n"
	}
	return text
}
