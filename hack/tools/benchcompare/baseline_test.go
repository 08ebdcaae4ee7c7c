// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	got, err := parse(strings.NewReader(`goos: linux
pkg: example.com/internal/gate
cpu: some
BenchmarkDecide/steady/gates=2-2         	    1000	      6081 ns/op	    2112 B/op	      15 allocs/op
BenchmarkDecide/opening_one 	    1000	      6081 ns/op	    7 B/op	      1 allocs/op
PASS
ok  	example.com/internal/gate	1.2s
pkg: example.com/internal/write
BenchmarkPatch-16 1000	      1 ns/op	    0 B/op	      0 allocs/op
`), "test")
	want := costs{
		{"example.com/internal/gate", "Decide/steady/gates=2"}: {15, 2112},
		{"example.com/internal/gate", "Decide/opening_one"}:    {1, 7},
		{"example.com/internal/write", "Patch"}:                {0, 0},
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"a benchmark without allocations": "BenchmarkPatch 1000 12 ns/op\n",
		"what is cut off":                 "BenchmarkPatch 1000 12\n",
	} {
		if got, err := parse(strings.NewReader(text), "test"); err == nil {
			t.Errorf("%s was read as %v", name, got)
		}
	}
}

// What is written is what is read.
func TestBaselineRoundTrip(t *testing.T) {
	all := costs{
		{"example.com/b", "Patch/open"}:      {31, 4096},
		{"example.com/a", "Decide"}:          {0, 0},
		{"example.com/b", "Patch/birth"}:     {1234567, 1234567890},
		{"example.com/b", "Observe/gates=2"}: {1, 8},
	}
	var out strings.Builder
	if err := all.write(&out); err != nil {
		t.Fatal(err)
	}
	got, err := parse(strings.NewReader(out.String()), "test")
	if err != nil || !maps.Equal(got, all) {
		t.Errorf("got %v, %v from:\n%s", got, err, out.String())
	}
}

func TestBaselineThatIsNotThere(t *testing.T) {
	if got, err := readBaseline(t.TempDir() + "/none"); err != nil || len(got) > 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

// Of several processes the least counts, of each quantity by itself.
func TestAtMost(t *testing.T) {
	a, b, c := benchmark{"p", "A"}, benchmark{"p", "B"}, benchmark{"p", "C"}
	least := costs{a: {5, 100}, b: {1, 1}}
	least.atMost(costs{a: {4, 200}, c: {7, 7}})
	if want := (costs{a: {4, 100}, b: {1, 1}, c: {7, 7}}); !maps.Equal(least, want) {
		t.Errorf("%v, want %v", least, want)
	}
}
