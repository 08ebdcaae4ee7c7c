// SPDX-License-Identifier: Apache-2.0

package nodegate_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// testCommand matches a go test command in a page, without "go test".
	testCommand = regexp.MustCompile("`(?:[A-Z_]+=\\S+ )*go test ([^`]*)`")
	// testLine matches the same in a block of commands.
	testLine = regexp.MustCompile(`(?m)^(?:[A-Z_]+=\S+ )*go test ([^#` + "`" + `\n]*)`)
	// minutes matches flags of e2e/node. Its tests may then exceed go test's default timeout.
	minutes = regexp.MustCompile(`-(long|reboots)\b`)
	// selection matches a flag that selects tests or benchmarks, with its pattern.
	selection    = regexp.MustCompile(`-(run|bench) (?:'([^']*)'|(\S+))`)
	directory    = regexp.MustCompile(`(?:^|\s)(\.\S*)`)
	selectsNone  = []string{"^$", "-"}
	functionKind = map[string]string{"run": "Test", "bench": "Benchmark"}
)

// A go test command in a page selects at least one test or benchmark with each
// alternative of its pattern: go test itself succeeds if it selects none. It sets a timeout if it
// may take longer than the default of ten minutes.
func TestCommandsSelectTests(t *testing.T) {
	functions := testFunctions(t)
	found := 0
	for _, page := range pages(t) {
		text := read(t, page)
		for _, match := range append(testCommand.FindAllStringSubmatch(text, -1), testLine.FindAllStringSubmatch(text, -1)...) {
			found++
			command := strings.Join(strings.Fields(match[1]), " ")
			if minutes.MatchString(command) && !strings.Contains(command, "-timeout ") {
				t.Errorf("%s: 'go test %s' may be aborted after ten minutes: add -timeout 0", page, command)
			}
			directories := directory.FindAllStringSubmatch(command, -1)
			for _, flag := range selection.FindAllStringSubmatch(command, -1) {
				pattern, _, _ := strings.Cut(flag[2]+flag[3], "/") // without subtests
				if slices.Contains(selectsNone, pattern) {
					continue
				}
				for alternative := range strings.SplitSeq(pattern, "|") {
					expression, err := regexp.Compile(strings.Trim(alternative, "()"))
					if err != nil || !selects(functions, functionKind[flag[1]], expression, directories) {
						t.Errorf("%s: 'go test %s': -%s %s selects nothing: %v", page, command, flag[1], alternative, err)
					}
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d commands were found", found)
	}
}

// The tests that CI runs on an older Kubernetes exist: each alternative selects one.
func TestMainPathsExist(t *testing.T) {
	match := regexp.MustCompile(`(?m)^main_paths='\^Test\((.*)\)'$`).FindStringSubmatch(read(t, ".ci/run"))
	if match == nil {
		t.Fatal("main_paths is not found")
	}
	functions := testFunctions(t)
	for alternative := range strings.SplitSeq(match[1], "|") {
		if !selects(functions, "Test", regexp.MustCompile("^Test"+alternative), [][]string{{"", "./e2e"}}) {
			t.Errorf("%s selects nothing", alternative)
		}
	}
}

// selects reports whether an expression matches a function of the kind in the
// directories, or anywhere if there are none.
func selects(functions map[string][]string, kind string, expression *regexp.Regexp, directories [][]string) bool {
	for name, files := range functions {
		if !strings.HasPrefix(name, kind) || !expression.MatchString(name) {
			continue
		}
		if len(directories) == 0 || slices.ContainsFunc(files, func(file string) bool {
			return slices.ContainsFunc(directories, func(d []string) bool {
				root, all := strings.CutSuffix(filepath.ToSlash(filepath.Clean(d[1])), "...")
				return filepath.Dir(file) == filepath.Clean(root) || all && strings.HasPrefix(file, root)
			})
		}) {
			return true
		}
	}
	return false
}
