// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// results contains what one run of go test has reported so far.
type results struct {
	packages []*pkg // in the order in which they started
	byPath   map[string]*pkg
	builds   map[string]*text // output of the compiler and go vet, by ID of the build
	other    text             // lines that are not events, and output of the go command
}

// pkg is a package under test.
type pkg struct {
	path   string
	action string // that ended it, or ""
	// verdict is go test's own line about the package.
	verdict      string
	tests        map[string]*test // the latest run of each test
	roots        []*test          // top-level tests that have not passed
	output       text             // of no test
	unattributed text             // important output of tests that have passed
	skips        []skip
	build        string    // the build that failed
	last         time.Time // time of the latest event
	silence      *silence
	// detectorFailed is true if the race detector itself failed, and raced if it reported a
	// race.
	detectorFailed, raced bool
}

// test is one run of one test.
type test struct {
	name     string
	depth    int
	children []*test
	verdict  string
	output   text
	began    time.Time
	paused   bool
	action   string // that ended it, or ""
}

// skip is a test that was skipped.
type skip struct {
	name, output string
}

// silence is the state of ending a package without events.
type silence struct {
	limit   time.Duration
	running []string
}

func newResults() *results {
	return &results{byPath: make(map[string]*pkg), builds: make(map[string]*text)}
}

// add processes an event, and returns its package.
func (r *results) add(e event) *pkg {
	if e.ImportPath != "" {
		if e.Action == actionBuildOutput {
			r.build(e.ImportPath).add(e.Output)
		}
		return nil
	}
	p := r.byPath[e.Package]
	if p == nil {
		p = &pkg{path: e.Package, tests: make(map[string]*test)}
		r.byPath[e.Package] = p
		r.packages = append(r.packages, p)
	}
	if !e.Time.IsZero() { // as those of cached results
		p.last = e.Time
	}
	p.detectorFailed = p.detectorFailed || strings.Contains(e.Output, detectorFailure)
	p.raced = p.raced || strings.Contains(e.Output, raceReport)
	if e.Test == "" {
		p.add(e)
	} else {
		p.addTest(e)
	}
	return p
}

func (r *results) build(id string) *text {
	if r.builds[id] == nil {
		r.builds[id] = &text{}
	}
	return r.builds[id]
}

func (r *results) failed() bool {
	return slices.ContainsFunc(r.packages, (*pkg).failed)
}

// add processes an event of the package itself.
func (p *pkg) add(e event) {
	switch e.Action {
	case actionOutput:
		p.output.add(e.Output)
		for _, prefix := range []string{"ok  \t", "FAIL\t", "?   \t"} {
			if strings.HasPrefix(e.Output, prefix+p.path) {
				p.verdict = e.Output
			}
		}
	case actionPass, actionFail, actionSkip:
		p.action, p.build = e.Action, e.FailedBuild
		if p.action != actionFail {
			p.output, p.unattributed, p.roots = text{}, text{}, nil
		}
		clear(p.tests)
	}
}

// addTest processes an event of a test.
func (p *pkg) addTest(e event) {
	if e.Action == actionRun || p.tests[e.Test] == nil {
		p.run(e)
	}
	t := p.tests[e.Test]
	switch e.Action {
	case actionPause:
		t.paused = true
	case actionContinue:
		t.paused, t.began = false, e.Time
	case actionOutput:
		p.print(t, e.Output)
	case actionPass, actionBench:
		t.action = e.Action
		p.forget(t)
	case actionSkip:
		t.action = e.Action
		p.skips = append(p.skips, skip{name: t.name, output: lastMessage(t.output.String())})
		p.forget(t)
	case actionFail:
		t.action = e.Action
	}
}

// print adds a line of a test's output, or a part of one.
func (p *pkg) print(t *test, line string) {
	switch {
	case isVerdict(line, t.name):
		t.verdict = strings.TrimLeft(line, " ")
	case framing.MatchString(line):
	case strings.HasPrefix(t.verdict, "--- PASS"), strings.HasPrefix(t.verdict, "--- SKIP"):
		// go test attributes later output to the test, too, such as the panic of a
		// goroutine that it started.
		p.unattributed.add(line)
	default:
		t.output.add(line)
	}
}

// run begins a run of a test; there are several with -count.
func (p *pkg) run(e event) {
	t := &test{name: e.Test, began: e.Time}
	p.tests[e.Test] = t
	parent := p.parentOf(e.Test)
	if parent == nil {
		p.roots = append(p.roots, t)
		return
	}
	t.depth = parent.depth + 1
	parent.children = append(parent.children, t)
}

// parentOf returns the parent of a subtest. Names of subtests may contain slashes.
func (p *pkg) parentOf(name string) *test {
	for {
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			return nil
		}
		name = name[:i]
		if parent := p.tests[name]; parent != nil {
			return parent
		}
	}
}

// forget drops a test that has not failed, with its output.
func (p *pkg) forget(t *test) {
	if s := t.output.String(); important.MatchString(s) {
		p.unattributed.add(s)
	}
	t.output, t.children = text{}, nil
	drop := func(list []*test) []*test {
		return slices.DeleteFunc(list, func(other *test) bool { return other == t })
	}
	if parent := p.parentOf(t.name); parent != nil {
		parent.children = drop(parent.children)
	} else {
		p.roots = drop(p.roots)
	}
}

// lastMessage returns the last message that a test logged, which is the reason
// why it was skipped.
func lastMessage(output string) string {
	lines := slices.Collect(strings.Lines(output))
	for i, line := range slices.Backward(lines) {
		if strings.HasPrefix(line, "    ") && strings.Contains(line, ".go:") {
			return strings.TrimSpace(strings.Join(lines[i:], ""))
		}
	}
	return strings.TrimSpace(output)
}

func (p *pkg) failed() bool { return p.action == actionFail }

// ended reports whether the package's tests have ended.
func (p *pkg) ended() bool { return p.action != "" }

// running returns the tests that have begun and not ended, the longest first. Of
// tests with subtests that run, only those count.
func (p *pkg) running() []*test {
	var list []*test
	for _, t := range p.tests {
		busy := slices.ContainsFunc(t.children, func(c *test) bool { return c.action == "" })
		if t.action == "" && !t.paused && !busy {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b *test) int {
		return cmp.Or(a.began.Compare(b.began), cmp.Compare(a.name, b.name))
	})
	return list
}
