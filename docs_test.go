// SPDX-License-Identifier: Apache-2.0

package nodegate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Pages name the test that proves each claim, and explain nodegate's reasons and
// Events. These tests detect outdated pages.

var (
	testFunction = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
	namedTest    = regexp.MustCompile("`(Test[A-Z]\\w*)`")
	// testColumn matches the header of a last column whose entries omit a common
	// prefix, which the header contains.
	testColumn = regexp.MustCompile("`(Test\\w+)…` \\|$")
	codeWord   = regexp.MustCompile("`([A-Z]\\w*)`")
)

// testNames returns the names of all tests of this module.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range testFunction.FindAllSubmatch(text, -1) {
			names[string(match[1])] = true
		}
		return err
	})
	if err != nil || len(names) == 0 {
		t.Fatalf("%d tests, %v", len(names), err)
	}
	return names
}

// testsNamedBy returns the tests that a page names, by full name or in a column
// of tests.
func testsNamedBy(page string) []string {
	var names []string
	prefix := ""
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		for _, match := range namedTest.FindAllStringSubmatch(line, -1) {
			names = append(names, match[1])
		}
		head := testColumn.FindStringSubmatch(line)
		switch {
		case head != nil:
			prefix = head[1]
		case !strings.HasPrefix(line, "|"):
			prefix = ""
		case prefix != "":
			cells := strings.Split(strings.TrimSuffix(line, "|"), " | ")
			for _, match := range codeWord.FindAllStringSubmatch(cells[len(cells)-1], -1) {
				if !strings.HasPrefix(match[1], "Test") {
					names = append(names, prefix+match[1])
				}
			}
		}
	}
	return names
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPagesNameTestsThatExist(t *testing.T) {
	exists := testNames(t)
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		for _, name := range testsNamedBy(read(t, path)) {
			if !exists[name] {
				t.Errorf("%s names the test %s, which does not exist", path, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// seedPages maps prefixes of test names to the pages for users of other systems.
// The tests prove these systems' features. Conversion has a separate page.
var seedPages = map[string]string{
	"TestSeedCilium":            "docs/from-cilium.md",
	"TestSeedIstio":             "docs/from-istio.md",
	"TestSeedNodetaintshandler": "docs/from-nodetaintshandler.md",
	"TestSeedTainter":           "docs/from-tainter.md",
}

func TestEverySeedTestIsOnItsPage(t *testing.T) {
	for prefix, path := range seedPages {
		named := make(map[string]bool)
		for _, name := range testsNamedBy(read(t, path)) {
			named[name] = true
		}
		for name := range testNames(t) {
			feature, ours := strings.CutPrefix(name, prefix)
			if ours && !strings.HasPrefix(feature, "Convert") && !named[name] {
				t.Errorf("%s does not name %s", path, name)
			}
		}
	}
}

// reasons returns the values of the API's constants for reasons.
func reasons(t *testing.T) map[string]string {
	t.Helper()
	values := make(map[string]string)
	for _, file := range []string{"api/v1alpha1/contract.go", "api/v1alpha1/reading.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(spec.Names[0].Name, "Rea") { // Reason..., Reading...
				return true
			}
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
				value, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				values[spec.Names[0].Name] = value
			}
			return true
		})
	}
	if len(values) < 50 {
		t.Fatalf("only %d reasons were found", len(values))
	}
	return values
}

// docs/events.md must explain every Event. An Event's reason or action equals the
// name of its constant.
func TestEveryEventIsOnItsPage(t *testing.T) {
	parsed, err := parser.ParseFile(token.NewFileSet(), "api/v1alpha1/contract.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	page, found := read(t, "docs/events.md"), 0
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Event") || spec.Names[0].Name == "EventReporter" {
			return true
		}
		found++
		value := strings.TrimPrefix(strings.TrimPrefix(spec.Names[0].Name, "Event"), "Action")
		if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Value != strconv.Quote(value) {
			t.Errorf("%s is %s", spec.Names[0].Name, literal.Value)
		}
		if !strings.Contains(page, "`"+value+"`") {
			t.Errorf("docs/events.md does not explain %s", value)
		}
		return true
	})
	if found < 20 {
		t.Errorf("only %d Events and actions were found", found)
	}
}

// The runbooks must explain every reason.
func TestEveryReasonIsInTheRunbooks(t *testing.T) {
	page := read(t, "docs/runbooks/README.md")
	for name, value := range reasons(t) {
		if !strings.Contains(page, "`"+value+"`") {
			t.Errorf("docs/runbooks does not explain %s (%s)", value, name)
		}
	}
}

var decisionTitle = regexp.MustCompile(`\A# (\d+)\. (.+)\n\n\*\*Status\.\*\* (.+), (\d{4}-\d\d-\d\d)\.\n\n`)

// TestDecisions compares the decision records with their index: number, title, status
// and date.
func TestDecisions(t *testing.T) {
	index, err := os.ReadFile("docs/decisions/README.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(index)) {
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| number") && !strings.HasPrefix(line, "| ---") {
			rows++
		}
	}
	files, err := filepath.Glob("docs/decisions/0*.md")
	if err != nil || len(files) != rows {
		t.Errorf("%d records, and %d rows in the index (%v)", len(files), rows, err)
	}
	for _, file := range files {
		record, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		head := decisionTitle.FindStringSubmatch(string(record))
		if head == nil {
			t.Errorf("%s does not begin with a title and a status", file)
			continue
		}
		status := strings.ToLower(head[3][:1]) + head[3][1:]
		row := "| " + head[1] + " | [" + head[2] + "](" + filepath.Base(file) + ") | " + status + " | " + head[4] + " |\n"
		if !strings.HasPrefix(filepath.Base(file), strings.Repeat("0", 4-len(head[1]))+head[1]+"-") || !strings.Contains(string(index), row) {
			t.Errorf("the index has no row for %s, want\n%s", file, row)
		}
	}
}
