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

// Pages say by which test each of their claims is shown, and what each word
// means that nodegate uses. Both rot silently.

var (
	testFunction = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
	namedTest    = regexp.MustCompile("`(Test[A-Z]\\w*)`")
	// testColumn heads a table's last column whose names begin with its own.
	testColumn = regexp.MustCompile("`(Test\\w+)…` \\|$")
	codeWord   = regexp.MustCompile("`([A-Z]\\w*)`")
)

// testNames are the names of all tests of this module.
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

// testsNamedBy returns the tests that a page names, in full or in a column of
// tests.
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
				t.Errorf("%s names the test %s, and there is none", path, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// seedPages are the pages for users of the systems whose features are shown by
// tests with their names. What is converted has a page of its own.
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

// reasons are the values of all constants of the API that say why.
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

// Whoever meets an Event finds on its page what it means. Its reason, or action, is
// what the constant is called.
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

// Whoever meets a reason finds it in the runbooks.
func TestEveryReasonIsInTheRunbooks(t *testing.T) {
	page := read(t, "docs/runbooks/README.md")
	for name, value := range reasons(t) {
		if !strings.Contains(page, "`"+value+"`") {
			t.Errorf("docs/runbooks does not explain %s (%s)", value, name)
		}
	}
}
