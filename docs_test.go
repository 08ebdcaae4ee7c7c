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
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Pages name the test that proves each claim, and explain nodegate's reasons and
// Events. These tests detect outdated pages.

var (
	declaration = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
	namedTest   = regexp.MustCompile("`(Test[A-Z]\\w*)`")
	// testColumn matches the header of a last column whose entries omit a common
	// prefix, which the header contains.
	testColumn = regexp.MustCompile("`(Test\\w+)…` \\|$")
	codeWord   = regexp.MustCompile("`([A-Z]\\w*)`")
)

// filesNamed returns the paths of the files whose names end with a suffix, except build
// results.
func filesNamed(t *testing.T, suffix string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && (path == "bin" || path == "dist" || path == ".git") {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, suffix) {
			all = append(all, path)
		}
		return err
	})
	if err != nil || len(all) < 40 {
		t.Fatalf("%d files end with %s (%v)", len(all), suffix, err)
	}
	return all
}

// pages returns the paths of all pages.
func pages(t *testing.T) []string {
	t.Helper()
	return filesNamed(t, ".md")
}

// testFunctions returns the tests, fuzz targets and benchmarks of all modules: by name,
// their files.
func testFunctions(t *testing.T) map[string][]string {
	t.Helper()
	functions := make(map[string][]string)
	for _, file := range filesNamed(t, "_test.go") {
		for _, match := range declaration.FindAllStringSubmatch(read(t, file), -1) {
			functions[match[1]] = append(functions[match[1]], file)
		}
	}
	return functions
}

// cells returns the cells of a table's row, or nil for other lines.
func cells(line string) []string {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| ---") {
		return nil
	}
	row := strings.Split(strings.Trim(line, "|"), "|")
	for i := range row {
		row[i] = strings.TrimSpace(row[i])
	}
	return row
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
		head, row := testColumn.FindStringSubmatch(line), cells(line)
		switch {
		case head != nil:
			prefix = head[1]
		case !strings.HasPrefix(line, "|"):
			prefix = ""
		case prefix != "" && row != nil:
			for _, match := range codeWord.FindAllStringSubmatch(row[len(row)-1], -1) {
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
	functions := testFunctions(t)
	for _, page := range pages(t) {
		for _, name := range testsNamedBy(read(t, page)) {
			if functions[name] == nil {
				t.Errorf("%s names the test %s, which does not exist", page, name)
			}
		}
	}
}

// source matches the path of a source file or package of nodegate.
var source = regexp.MustCompile("`(internal/[\\w./-]+)`")

// A record of a decision must be correct when a file is moved, too.
func TestPagesNameSourcesThatExist(t *testing.T) {
	found := 0
	for _, page := range pages(t) {
		for _, match := range source.FindAllStringSubmatch(read(t, page), -1) {
			found++
			if _, err := os.Stat(match[1]); err != nil {
				t.Errorf("%s names %s, which does not exist", page, match[1])
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d paths were found", found)
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
	functions := testFunctions(t)
	for prefix, path := range seedPages {
		named := testsNamedBy(read(t, path))
		for name := range functions {
			feature, ours := strings.CutPrefix(name, prefix)
			if ours && !strings.HasPrefix(feature, "Convert") && !slices.Contains(named, name) {
				t.Errorf("%s does not name %s", path, name)
			}
		}
	}
}

// constants returns the API's constants with a prefix. The value is empty if it is not a
// literal.
func constants(t *testing.T, prefix string) map[string]string {
	t.Helper()
	values := make(map[string]string)
	for _, file := range []string{"api/v1alpha1/reasons.go", "api/v1alpha1/reading.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, prefix) {
				values[spec.Names[0].Name] = ""
				if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
					values[spec.Names[0].Name], err = strconv.Unquote(literal.Value)
				}
			}
			return err == nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return values
}

// docs/events.md must explain every Event. An Event's reason or action equals the
// name of its constant.
func TestEveryEventIsOnItsPage(t *testing.T) {
	page, events := read(t, "docs/events.md"), constants(t, "Event")
	delete(events, "EventReporter")
	for name, literal := range events {
		value := strings.TrimPrefix(strings.TrimPrefix(name, "Event"), "Action")
		if literal != "" && literal != value {
			t.Errorf("%s is %q", name, literal)
		}
		if !strings.Contains(page, "`"+value+"`") {
			t.Errorf("docs/events.md does not explain %s", value)
		}
	}
	if len(events) < 20 {
		t.Errorf("only %d Events and actions were found", len(events))
	}
}

// The runbooks must explain every reason.
func TestEveryReasonIsInTheRunbooks(t *testing.T) {
	page, reasons := read(t, "docs/runbooks/README.md"), constants(t, "Rea") // Reason..., Reading...
	for name, value := range reasons {
		if value != "" && !strings.Contains(page, "`"+value+"`") {
			t.Errorf("docs/runbooks does not explain %s (%s)", value, name)
		}
	}
	if len(reasons) < 50 {
		t.Errorf("only %d reasons were found", len(reasons))
	}
}

var decisionTitle = regexp.MustCompile(`\A# (\d+)\. (.+)\n\n\*\*Status\.\*\* (.+), (\d{4}-\d\d-\d\d)\.\n\n`)

// TestDecisions compares the decision records with their index: number, title, status
// and date.
func TestDecisions(t *testing.T) {
	index, rows := read(t, "docs/decisions/README.md"), -1 // without the header
	for line := range strings.Lines(index) {
		if cells(line) != nil {
			rows++
		}
	}
	files, err := filepath.Glob("docs/decisions/0*.md")
	if err != nil || len(files) != rows {
		t.Errorf("%d records, and %d rows in the index (%v)", len(files), rows, err)
	}
	for _, file := range files {
		head := decisionTitle.FindStringSubmatch(read(t, file))
		if head == nil {
			t.Errorf("%s does not begin with a title and a status", file)
			continue
		}
		status := strings.ToLower(head[3][:1]) + head[3][1:]
		row := "| " + head[1] + " | [" + head[2] + "](" + filepath.Base(file) + ") | " + status + " | " + head[4] + " |\n"
		if !strings.HasPrefix(strings.TrimLeft(filepath.Base(file), "0"), head[1]+"-") || !strings.Contains(index, row) {
			t.Errorf("the index has no row for %s, want\n%s", file, row)
		}
	}
}
