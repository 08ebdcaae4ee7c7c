// SPDX-License-Identifier: Apache-2.0

// Command fuzz runs fuzz targets one after another, each for a while:
//
//	fuzz [-fuzztime 60s] [-parallel 2] [-base REVISION] [PATTERN]
//
// It finds the targets itself. With -base it runs those whose package, or a package
// of this module that it depends on, differs from that revision. PATTERN is a
// regular expression for names such as ./internal/gate.FuzzParseRecord. The exit
// status is 1 if a target finds something; the input is then in the package's
// testdata/fuzz, where it stays as a test.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	fuzztime := flag.Duration("fuzztime", time.Minute, "how long each target runs")
	parallel := flag.Int("parallel", 2, "number of workers of a target")
	base := flag.String("base", "", "run only targets of what differs from this revision")
	flag.Parse()
	if err := run(*fuzztime, *parallel, *base, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

func run(fuzztime time.Duration, parallel int, base, pattern string) error {
	name, err := regexp.Compile(pattern)
	if err != nil {
		return fmt.Errorf("reading the pattern: %w", err)
	}
	packages, err := list()
	if err != nil {
		return err
	}
	if base != "" {
		files, err := changed(base)
		if err != nil {
			return err
		}
		packages = affected(packages, files)
	}
	targets, err := targetsOf(packages)
	if err != nil {
		return err
	}
	targets = slices.DeleteFunc(targets, func(t target) bool { return !name.MatchString(t.String()) })
	fmt.Printf("%d targets, %s each\n", len(targets), fuzztime)
	var found []string
	for _, t := range targets {
		if !t.run(fuzztime, parallel) {
			found = append(found, t.String())
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("failed: %s; the inputs are in testdata/fuzz of their packages: fix the cause and commit them as tests", strings.Join(found, ", "))
	}
	return nil
}

// pkg is a package in the output of go list.
type pkg struct {
	ImportPath, Dir           string
	Deps                      []string
	TestGoFiles, XTestGoFiles []string
	// TestImports and XTestImports are the imports of tests.
	TestImports, XTestImports []string
	Module                    struct{ Dir string }
}

func list() ([]pkg, error) {
	out, err := output("go", "list", "-json=ImportPath,Dir,Deps,TestGoFiles,XTestGoFiles,TestImports,XTestImports,Module", "./...")
	if err != nil {
		return nil, err
	}
	var all []pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("reading the output of go list: %w", err)
		}
		all = append(all, p)
	}
}

// changed returns the files that differ from the revision.
func changed(base string) ([]string, error) {
	out, err := output("git", "diff", "--name-only", "-z", "--merge-base", base)
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 }), nil
}

// affected returns the packages that depend on changed files, whose paths are
// relative to the module. Imports of their tests count, too, including indirect
// ones.
func affected(all []pkg, changed []string) []pkg {
	if slices.Contains(changed, "go.mod") || slices.Contains(changed, "go.sum") {
		return all
	}
	depends := make(map[string][]string, len(all))
	dirty := make(map[string]bool)
	for _, p := range all {
		depends[p.ImportPath] = p.Deps
		for _, file := range changed {
			// A file below a package that is in no package itself, such as testdata,
			// belongs to that package.
			if own := owner(all, filepath.Join(p.Module.Dir, file)); own == p.ImportPath {
				dirty[own] = true
			}
		}
	}
	isDirty := func(path string) bool { return dirty[path] }
	return slices.DeleteFunc(slices.Clone(all), func(p pkg) bool {
		if dirty[p.ImportPath] || slices.ContainsFunc(p.Deps, isDirty) {
			return false
		}
		return !slices.ContainsFunc(slices.Concat(p.TestImports, p.XTestImports), func(path string) bool {
			return dirty[path] || slices.ContainsFunc(depends[path], isDirty)
		})
	})
}

// owner returns the package in whose directory a file is, or the package in the
// nearest parent directory.
func owner(all []pkg, file string) string {
	var best pkg
	for _, p := range all {
		if strings.HasPrefix(file, p.Dir+string(filepath.Separator)) && len(p.Dir) > len(best.Dir) {
			best = p
		}
	}
	return best.ImportPath
}

// target is one fuzz target.
type target struct{ dir, name string }

func (t target) String() string { return t.dir + "." + t.name }

var declaration = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(\w+ \*testing\.F\)`)

func targetsOf(packages []pkg) ([]target, error) {
	var all []target
	for _, p := range packages {
		dir, err := filepath.Rel(p.Module.Dir, p.Dir)
		if err != nil {
			return nil, fmt.Errorf("naming package %s: %w", p.ImportPath, err)
		}
		for _, file := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				return nil, err
			}
			for _, match := range declaration.FindAllSubmatch(text, -1) {
				all = append(all, target{"./" + filepath.ToSlash(dir), string(match[1])})
			}
		}
	}
	slices.SortFunc(all, func(a, b target) int { return cmp.Compare(a.String(), b.String()) })
	return all, nil
}

var executions = regexp.MustCompile(`execs: (\d+)`)

// run reports whether the target found nothing. It prints the number of
// executions or, after a finding, the target's output.
func (t target) run(fuzztime time.Duration, parallel int) bool {
	command := exec.Command("go", "test", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", fuzztime.String(),
		// By default, minimizing a new input may take a minute, during which no other
		// inputs are tried.
		"-fuzzminimizetime", "1s", "-parallel", fmt.Sprint(parallel), t.dir)
	out, err := command.CombinedOutput()
	count := "0"
	if all := executions.FindAllSubmatch(out, -1); len(all) > 0 {
		count = string(all[len(all)-1][1])
	}
	if err != nil {
		fmt.Printf("FAIL %s after %s executions: %v\n%s\n", t, count, err, out)
		return false
	}
	fmt.Printf("ok   %s: %s executions\n", t, count)
	return true
}

func output(name string, args ...string) ([]byte, error) {
	out, err := exec.Command(name, args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("running %s %s: %w", name, args[0], err)
	}
	return out, nil
}
