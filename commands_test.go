// SPDX-License-Identifier: Apache-2.0

package nodegate_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// testCommand matches a go test command in a page, without "go test".
	testCommand = regexp.MustCompile("`(?:[A-Z_]+=\\S+ )*go test ([^`]*)`")
	// selection matches a flag that selects tests or benchmarks, with its pattern.
	selection    = regexp.MustCompile(`-(run|bench) (?:'([^']*)'|(\S+))`)
	directory    = regexp.MustCompile(`(?:^|\s)(\.\S*)`)
	testOrBench  = regexp.MustCompile(`(?m)^func ((Test|Benchmark)\w+)\(`)
	selectsNone  = []string{"^$", "-"}
	functionKind = map[string]string{"run": "Test", "bench": "Benchmark"}
)

// A go test command in a page selects at least one test or benchmark with each
// alternative of its pattern. go test itself succeeds if it selects none.
func TestCommandsSelectTests(t *testing.T) {
	err := filepath.WalkDir(".", func(page string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(page) != ".md" {
			return err
		}
		for _, command := range testCommand.FindAllStringSubmatch(read(t, page), -1) {
			checkSelections(t, page, strings.Join(strings.Fields(command[1]), " "))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkSelections(t *testing.T, page, command string) {
	t.Helper()
	for _, flag := range selection.FindAllStringSubmatch(command, -1) {
		pattern, _, _ := strings.Cut(flag[2]+flag[3], "/") // without subtests
		if slices.Contains(selectsNone, pattern) {
			continue
		}
		names := functionsIn(t, functionKind[flag[1]], directory.FindAllStringSubmatch(command, -1))
		for alternative := range strings.SplitSeq(pattern, "|") {
			if expression, err := regexp.Compile(strings.Trim(alternative, "()")); err != nil || !slices.ContainsFunc(names, expression.MatchString) {
				t.Errorf("%s: 'go test %s': -%s %s selects nothing: %v", page, command, flag[1], alternative, err)
			}
		}
	}
}

// functionsIn returns the names of the tests or benchmarks in directories, or in all if
// there are none.
func functionsIn(t *testing.T, kind string, directories [][]string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(".", func(file string, _ fs.DirEntry, err error) error {
		within := len(directories) == 0 || slices.ContainsFunc(directories, func(d []string) bool {
			root, all := strings.CutSuffix(filepath.ToSlash(filepath.Clean(d[1])), "...")
			return filepath.Dir(file) == filepath.Clean(root) || all && strings.HasPrefix(file, strings.TrimPrefix(root, "./"))
		})
		if err != nil || !within || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		for _, match := range testOrBench.FindAllSubmatch(text, -1) {
			if string(match[2]) == kind {
				names = append(names, string(match[1]))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
