// SPDX-License-Identifier: Apache-2.0

package nodegate_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const attacksPage = "docs/security/attacks.md"

// shownBy is a test of the table, as TestName or TestName/case.
var shownBy = regexp.MustCompile("`((?:Test|Fuzz)\\w+)(?:/([^`]+))?`")

// attack is a row of the table.
type attack struct{ what, tests, refusedBy string }

// attacksOn parses the tables of the page, which all have the same columns.
func attacksOn(page string) (rows []attack, err error) {
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| ---") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 3 {
			return nil, fmt.Errorf("%d columns, want the attack, the test, and what rejects the attack: %s", len(cells), line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[0] != "attack" {
			rows = append(rows, attack{cells[0], cells[1], cells[2]})
		}
	}
	return rows, nil
}

// sourcesOfTests returns the text of each test's file.
func sourcesOfTests(t *testing.T) map[string]string {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(`)
	sources := make(map[string]string)
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range function.FindAllSubmatch(text, -1) {
			sources[string(match[1])] += string(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// unshown returns an error if a row has no test, names a test or case that does
// not exist, or does not say what rejects the attack.
func (a attack) unshown(sources map[string]string) error {
	tests := shownBy.FindAllStringSubmatch(a.tests, -1)
	if len(tests) == 0 || a.what == "" || a.refusedBy == "" {
		return fmt.Errorf("the row %+v has an empty cell", a)
	}
	for _, match := range tests {
		source, exists := sources[match[1]]
		if !exists || match[2] != "" && !strings.Contains(source, strconv.Quote(match[2])) {
			return fmt.Errorf("%q: there is no test %s", a.what, match[0])
		}
	}
	return nil
}

func TestAttacksAreShown(t *testing.T) {
	rows, err := attacksOn(read(t, attacksPage))
	if err != nil || len(rows) < 40 {
		t.Fatalf("%d attacks, %v", len(rows), err)
	}
	sources := sourcesOfTests(t)
	for _, row := range rows {
		if err := row.unshown(sources); err != nil {
			t.Errorf("%s: %v", attacksPage, err)
		}
	}
}

func TestAttacksThatAreNotShown(t *testing.T) {
	sources := map[string]string{"TestA": `t.Run("steals", f)`}
	for row, shown := range map[string]bool{
		"| x | `TestA` | y |":          true,
		"| x | `TestA/steals` | y |":   true,
		"| x | `TestA`, `TestB` | y |": false,
		"| x | `TestA/robs` | y |":     false,
		"| x | later | y |":            false,
		"| x | `TestA` | |":            false,
	} {
		rows, err := attacksOn("| attack | test | what refuses it |\n| --- | --- | --- |\n" + row + "\n")
		if err != nil || len(rows) != 1 {
			t.Fatalf("%+v, %v", rows, err)
		}
		if err := rows[0].unshown(sources); (err == nil) != shown {
			t.Errorf("%s: %v", row, err)
		}
	}
	if _, err := attacksOn("| x | `TestA` | y | z |\n"); err == nil {
		t.Error("a row of four columns is read")
	}
}
