// SPDX-License-Identifier: Apache-2.0

package explain

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
	"github.com/nodegate/nodegate/internal/gate"
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

// runbook returns the rows of the runbook's tables as plain text: for the content of
// each cell, the cells to the right of it.
func runbook(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/runbooks/README.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string][]string)
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(markdown.ReplaceAllString(line, "$1")), "|"), "|")
		for i := 0; i+1 < len(cells); i++ {
			for text := range strings.SplitSeq(cells[i], ",") {
				rows[strings.TrimSpace(text)] = append(rows[strings.TrimSpace(text)], strings.TrimSpace(cells[i+1]))
			}
		}
	}
	return rows
}

// contains reports whether one of the cells is the text, or begins with it.
func contains(cells []string, text string) bool {
	for _, cell := range cells {
		if cell == text || strings.HasPrefix(cell, text+" (") {
			return true
		}
	}
	return false
}

// There is a next step for every reading, with the text of the runbook.
func TestEveryReadingHasANextStep(t *testing.T) {
	rows := runbook(t)
	for _, value := range constants(t, "reading.go", "ReadingReason") {
		text, known := nextSteps[v1alpha1.ReadingReason(value)]
		switch {
		case !known:
			t.Errorf("%s has no next step", value)
		case value == "NoDaemonSetSelected", value == "DaemonNotProbed": // not in the runbook
		case !contains(rows[value], text):
			t.Errorf("%s: the runbook has %q, want %q", value, rows[value], text)
		}
	}
	untolerated := strings.Replace(untoleratedStep, "%s%s", "<taint> of gate <gate>", 1)
	for reading, text := range map[string]string{
		"PodMissing on a node with a taint that the DaemonSet does not tolerate": untolerated,
		"Differs of an expression": falseStep, "Differs of a closeWhen gate": unknownStep, "NoneHolds of a closeWhen gate": anyOfUnknownStep,
		"Missing of a closeWhen gate (whenMissing: Holds)": holdsStep,
	} {
		if row := rows[reading]; !contains(row, text) {
			t.Errorf("%s: the runbook has %q, want %q", reading, row, text)
		}
	}
}

// The commands in next steps can be run as they are printed.
func TestNextStepsHaveNoPlaceholders(t *testing.T) {
	f := Facts{Node: gate.Facts{Node: gate.Node{Name: "n1"}}}
	for reading, text := range nextSteps {
		if text = f.expand(text, &Gate{Gate: "cni"}); strings.Contains(text, "<") {
			t.Errorf("%s: %s", reading, text)
		}
	}
}

// A wait for a time of the node's clock can last for hours if that was ahead. The next step must not only
// promise that the wait ends soon.
func TestNextStepsNameTheClock(t *testing.T) {
	for _, r := range []v1alpha1.ReadingReason{
		v1alpha1.ReadingTooBriefly, v1alpha1.ReadingPodReadyTooBriefly, v1alpha1.ReadingStaleEvidence, v1alpha1.ReadingStaleHeartbeat,
	} {
		if step := nextSteps[r]; !strings.Contains(step, "node's clock") {
			t.Errorf("%s: %q does not name the node's clock", r, step)
		}
	}
}

// There is a text for every reason of a record, which is that of the runbook.
func TestEveryReasonHasAText(t *testing.T) {
	rows := runbook(t)
	for _, value := range constants(t, "reasons.go", "Reason") {
		closed, opened := closedBecause[v1alpha1.Reason(value)], openedBecause[v1alpha1.Reason(value)]
		if closed == "" && opened == "" {
			t.Errorf("%s has no text", value)
		}
		for _, text := range []string{closed, opened} {
			alone := value == "ExistingIdle" || value == "Adopted" && text == opened // not in the runbook, or not with this text
			if text != "" && !alone && !contains(rows[value], text) {
				t.Errorf("%s: the runbook has %q, want %q", value, rows[value], text)
			}
		}
	}
}
