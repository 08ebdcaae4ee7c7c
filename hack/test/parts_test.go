// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// needs has the Makefile's targets that build the components that a part's tests start.
var needs = map[string]string{
	"cluster": "components", "charts": "components", "e2e": "components", "node": "node-components", "neighbours": "neighbour-components",
}

// Each package of the main module is in one part: those whose tests use a control plane in
// parts that are given one.
func TestPackagesAreInTheRightPart(t *testing.T) {
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	uses := usesCluster(t, absolute)
	seen := make(map[string]string)
	for _, p := range parts {
		name := p.name
		if p.short || !slices.Contains(p.dirs, ".") {
			continue
		}
		packages, err := p.list(t.Context(), absolute)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range packages {
			if seen[q.path] != "" {
				t.Errorf("%s is in %s and in %s", q.path, seen[q.path], name)
			}
			if seen[q.path] = name; uses[q.path] != (needs[name] != "") {
				t.Errorf("%s is in the part %s, but its tests use a control plane: %t", q.path, name, uses[q.path])
			}
		}
	}
	if everything, err := list(t.Context(), absolute, []string{"./..."}); err != nil || len(everything) != len(seen) {
		t.Errorf("%d packages are in parts, of %d (%v)", len(seen), len(everything), err)
	}
}

// usesCluster returns the packages whose tests import clustertest.
func usesCluster(t *testing.T, dir string) map[string]bool {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}`, "./...")
	command.Dir = dir
	output, err := command.Output()
	if err != nil {
		t.Fatalf("listing imports: %v", err)
	}
	uses := make(map[string]bool)
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(line)
		uses[fields[0]] = slices.Contains(fields[1:], module+"/testcluster/clustertest")
	}
	return uses
}

// Each tool with tests is in the part tools, except ui, which needs a browser and has a
// separate target.
func TestToolsAreComplete(t *testing.T) {
	tools, _ := findPart("tools")
	found, err := filepath.Glob(filepath.Join(root, "hack/tools/*/*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range found {
		dir, _ := filepath.Rel(root, filepath.Dir(file))
		if dir = filepath.ToSlash(dir); dir != "hack/tools/ui" && !slices.Contains(tools.dirs, dir) {
			t.Errorf("the tests of %s are in no part", dir)
		}
	}
}

// The Makefile and CONTRIBUTING.md describe the parts as in the table.
func TestPartsAreDocumented(t *testing.T) {
	makefile, page := readFile(t, filepath.Join(root, "Makefile")), readFile(t, filepath.Join(root, "CONTRIBUTING.md"))
	for _, p := range parts {
		target := strings.TrimSpace("test-" + p.name + ": " + needs[p.name])
		capital := strings.ToUpper(p.what[:1]) + p.what[1:]
		if rule := fmt.Sprintf("\n%s ## Test %s (%s).\n", target, p.what, p.takes); !strings.Contains(makefile, rule) {
			t.Errorf("the Makefile has no %q", rule)
		}
		if row := fmt.Sprintf("\n| `make test-%s` | %s | %s |\n", p.name, capital, p.takes); !strings.Contains(page, row) {
			t.Errorf("CONTRIBUTING.md has no %q", row)
		}
	}
	if !strings.Contains(page, measuredOn) {
		t.Errorf("CONTRIBUTING.md does not contain the machine of the measurements: %s", measuredOn)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
