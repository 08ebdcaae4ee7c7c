// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// constants returns the values of all constants of a type in a file of the API.
func constants(t *testing.T, file, kind string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), "../../api/v1alpha1/"+file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		of, _ := spec.Type.(*ast.Ident)
		if of == nil || of.Name != kind {
			return true
		}
		switch value := spec.Values[0].(type) {
		case *ast.BasicLit:
			text, err := strconv.Unquote(value.Value)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, text)
		case *ast.Ident: // ReasonInvalidSpec
			values = append(values, strings.TrimPrefix(value.Name, "Reason"))
		}
		return true
	})
	if len(values) < 20 {
		t.Fatalf("%s has %d constants of type %s", file, len(values), kind)
	}
	return values
}

var markdown = regexp.MustCompile("`|\\[([^]]*)\\]\\([^)]*\\)")

// runbook returns the rows of the runbook's tables, as plain text: what it says of
// each word in the first column, and in the third of those of four.
func runbook(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/runbooks/README.md")
	if err != nil {
		t.Fatal(err)
	}
	said := make(map[string][]string)
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(markdown.ReplaceAllString(line, "$1")), "|"), "|")
		for i := 0; i+1 < len(cells); i++ {
			for word := range strings.SplitSeq(cells[i], ",") {
				said[strings.TrimSpace(word)] = append(said[strings.TrimSpace(word)], strings.TrimSpace(cells[i+1]))
			}
		}
	}
	return said
}

// says tells whether one of the things said is, or begins with, this.
func says(said []string, words string) bool {
	for _, s := range said {
		if s == words || strings.HasPrefix(s, words+" (") {
			return true
		}
	}
	return false
}

// Whatever a gate waits for, there is something to do about it, and it is what the
// runbook says.
func TestEveryReadingHasSomethingToDo(t *testing.T) {
	said := runbook(t)
	for _, value := range constants(t, "reading.go", "ReadingReason") {
		words, known := todo[v1alpha1.ReadingReason(value)]
		switch {
		case !known:
			t.Errorf("nothing is to be done about %s", value)
		case value == "NoDaemonSetSelected", value == "DaemonNotProbed": // remarks, which have no row
		case !says(said[value], words):
			t.Errorf("%s: the runbook says %q, and not %q", value, said[value], words)
		}
	}
}

// So is every reason of a record.
func TestEveryReasonIsInWords(t *testing.T) {
	said := runbook(t)
	for _, value := range constants(t, "contract.go", "Reason") {
		closed, opened := closedBecause[v1alpha1.Reason(value)], openedBecause[v1alpha1.Reason(value)]
		if closed == "" && opened == "" {
			t.Errorf("%s is not in words", value)
		}
		for _, words := range []string{closed, opened} {
			alone := value == "ExistingIdle" || value == "Adopted" && words == opened // the page says these by their neighbours
			if words != "" && !alone && !says(said[value], words) {
				t.Errorf("%s: the runbook says %q, and not %q", value, said[value], words)
			}
		}
	}
}
