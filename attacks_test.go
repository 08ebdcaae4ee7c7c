// SPDX-License-Identifier: Apache-2.0

package nodegate_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const attacksPage = "docs/security/attacks.md"

// shownBy matches a test in the table, as TestName or TestName/case.
var shownBy = regexp.MustCompile("`((?:Test|Fuzz)\\w+)(?:/([^`]+))?`")

// Each row of the page's tables has an attack, at least one test or case that exists, and
// the countermeasure.
func TestAttacksAreShown(t *testing.T) {
	functions, rows := testFunctions(t), 0
	for line := range strings.Lines(read(t, attacksPage)) {
		row := cells(line)
		if row == nil || row[0] == "attack" {
			continue
		}
		rows++
		if len(row) != 3 || slices.Contains(row, "") || !shownBy.MatchString(row[1]) {
			t.Errorf("%s: want an attack, its tests, and the countermeasure: %s", attacksPage, line)
			continue
		}
		for _, match := range shownBy.FindAllStringSubmatch(row[1], -1) {
			if !slices.ContainsFunc(functions[match[1]], func(file string) bool {
				return match[2] == "" || strings.Contains(read(t, file), strconv.Quote(match[2]))
			}) {
				t.Errorf("%s: %q: there is no test %s", attacksPage, row[0], match[0])
			}
		}
	}
	if rows < 40 {
		t.Errorf("%s has only %d attacks", attacksPage, rows)
	}
}
