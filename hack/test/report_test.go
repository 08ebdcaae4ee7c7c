// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// replay returns the results of a recorded stream of events.
func replay(t *testing.T, name string) *results {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	r := newResults()
	for line := range bytes.Lines(text) {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		r.add(e)
	}
	return r
}

// The streams are recordings of go test -json, of packages that pass, fail, panic,
// exit, race, are not compiled, are cached, or are repeated.
func TestReport(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		short  bool
		strict bool
		older  string
		ok     bool
	}{
		"mixed":         {stream: "mixed"},
		"count":         {stream: "count"},
		"bench":         {stream: "bench", ok: true},
		"cached":        {stream: "cached", ok: true},
		"cached short":  {stream: "cached", short: true, ok: true},
		"cached strict": {stream: "cached", strict: true},
		"older":         {stream: "older", strict: true, older: "1.34", ok: true},
		// Tests that need 1.36 should have run, those that need 1.37 cannot run.
		"older by one": {stream: "older", strict: true, older: "1.36"},
		// No older version was requested: these tests should have run.
		"older strict": {stream: "older", strict: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &report{
				runs:   []*finished{{command: "go test", events: "events.json", short: c.short, results: replay(t, c.stream)}},
				strict: c.strict, older: c.older,
			}
			var b strings.Builder
			if ok := r.write(&b); ok != c.ok {
				t.Errorf("got %t, want %t", ok, c.ok)
			}
			golden(t, strings.ReplaceAll(name, " ", "-"), b.String())
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant (%s; update it with -update):\n%s", got, path, want)
	}
}

// If the go command fails before it runs a test, its error is at the end.
func TestReportOfCommandThatFails(t *testing.T) {
	f := &finished{command: "go test", events: "events.json", results: newResults(), exit: os.ErrPermission}
	f.results.other.add("go: updates to go.mod needed")
	var b strings.Builder
	if (&report{runs: []*finished{f}}).write(&b) {
		t.Error("the report is successful")
	}
	if want := "go: updates to go.mod needed\ngo test: permission denied\nFAIL\n"; !strings.HasSuffix(b.String(), want) {
		t.Errorf("got %q at the end, want %q", b.String(), want)
	}
}

// The output of passing tests is discarded when they end.
func TestPassingTestsKeepNothing(t *testing.T) {
	r := newResults()
	for range 3 {
		r.add(event{Action: actionRun, Package: "p", Test: "TestA"})
		for range 100 {
			r.add(event{Action: actionOutput, Package: "p", Test: "TestA", Output: strings.Repeat("x", 1000) + "\n"})
		}
		r.add(event{Action: actionPass, Package: "p", Test: "TestA"})
	}
	p := r.byPath["p"]
	if len(p.roots) != 0 || p.unattributed.String()+p.output.String()+p.tests["TestA"].output.String() != "" {
		t.Errorf("kept %+v", p)
	}
}

func TestTextKeepsBothEnds(t *testing.T) {
	b := &text{}
	for range 10 * limit / 10 {
		b.add("123456789\n")
	}
	b.add("the end")
	s := b.String()
	if !strings.HasPrefix(s, "123456789\n") || !strings.HasSuffix(s, "\nthe end\n") || !strings.Contains(s, "bytes are left out here") {
		t.Errorf("got %q ... %q", s[:20], s[len(s)-20:])
	}
	if len(s) > 4*limit {
		t.Errorf("%d bytes are kept", len(s))
	}
}
