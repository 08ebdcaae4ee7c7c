// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"strings"
	"testing"
)

// parse reads costs.
func parse(t *testing.T, text string) costs {
	t.Helper()
	all := costs{}
	if err := all.add(strings.NewReader(text), "test"); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return all
}

// Of several runs of a benchmark, the minimum of each quantity counts.
func TestAdd(t *testing.T) {
	got := parse(t, `goos: linux
pkg: example.com/internal/gate
cpu: some
BenchmarkDecide/steady/gates=2         	    1000	      6081 ns/op	    2112 B/op	      15 allocs/op
BenchmarkDecide/opening_one 	    1000	      6081 ns/op	    7 B/op	      1 allocs/op
PASS
ok  	example.com/internal/gate	1.2s
pkg: example.com/internal/write
BenchmarkPatch 1000	      1 ns/op	    8 B/op	      3 allocs/op
BenchmarkPatch 1000	      1 ns/op	    9 B/op	      2 allocs/op
`)
	want := costs{
		"example.com/internal/gate Decide/steady/gates=2": {15, 2112},
		"example.com/internal/gate Decide/opening_one":    {1, 7},
		"example.com/internal/write Patch":                {2, 8},
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if again := parse(t, string(want.text())); !maps.Equal(again, want) {
		t.Errorf("read again, it is %v from:\n%s", again, want.text())
	}
}

func TestAddRejects(t *testing.T) {
	for name, text := range map[string]string{
		"a benchmark without allocations": "BenchmarkPatch 1000 12 ns/op\n",
		"a truncated line":                "BenchmarkPatch 1000 12\n",
	} {
		if err := (costs{}).add(strings.NewReader(text), "test"); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestCompare(t *testing.T) {
	for name, c := range map[string]struct {
		before, now cost
		want        string
	}{
		"the same":                                     {cost{15, 2000}, cost{15, 2000}, same},
		"one allocation more than few":                 {cost{10, 2000}, cost{11, 2000}, worse},
		"one allocation fewer than few":                {cost{10, 2000}, cost{9, 2000}, better},
		"one allocation more than eleven":              {cost{11, 2000}, cost{12, 2000}, same},
		"two allocations more than eleven":             {cost{11, 2000}, cost{13, 2000}, worse},
		"two allocations fewer than eleven":            {cost{11, 2000}, cost{9, 2000}, better},
		"the first allocation":                         {cost{0, 0}, cost{1, 8}, worse},
		"three of 100":                                 {cost{100, 2000}, cost{103, 2000}, same},
		"four of 100":                                  {cost{100, 2000}, cost{104, 2000}, worse},
		"a tenth more bytes":                           {cost{15, 2000}, cost{15, 2200}, same},
		"more than a tenth more bytes":                 {cost{15, 2000}, cost{15, 2201}, worse},
		"more than a tenth fewer bytes":                {cost{15, 2000}, cost{15, 1799}, better},
		"the next size, of few bytes":                  {cost{1, 64}, cost{1, 96}, same},
		"more than the next size":                      {cost{1, 64}, cost{1, 97}, worse},
		"fewer allocations do not make up for bytes":   {cost{15, 2000}, cost{2, 4000}, worse},
		"fewer bytes do not make up for an allocation": {cost{15, 2000}, cost{17, 200}, worse},
	} {
		if got := compare(c.before, c.now); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestReport(t *testing.T) {
	before := costs{"example.com/gate A": {1, 8}, "example.com/gate B": {2, 16}}
	for name, c := range map[string]struct {
		now         costs
		failed      int
		want, never []string
	}{
		"unchanged": {
			before, 0, []string{"2 benchmarks: 2 as in the baseline"}, []string{"gate A", "make bench-baseline"},
		},
		"one better": {
			costs{"example.com/gate A": {0, 0}, "example.com/gate B": {2, 16}}, 0,
			[]string{"better", "gate A", "1 → 0", "make bench-baseline"}, []string{"gate B", "memprofile"},
		},
		"one worse, one missing": {
			costs{"example.com/gate A": {1, 80}}, 2,
			[]string{"WORSE", "8 → 80", "MISSING", "2 → ?", "1 worse, 1 missing", "make bench-baseline", "memprofile"}, nil,
		},
		"one without a baseline": {
			costs{"example.com/gate A": {1, 8}, "example.com/gate B": {2, 16}, "example.com/gate C": {3, 24}}, 1,
			[]string{"NEW", "gate C", "? → 3", "make bench-baseline"}, []string{"gate A"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if failed := report(&out, before, c.now); failed != c.failed {
				t.Errorf("%d fail, want %d", failed, c.failed)
			}
			for _, text := range c.want {
				if !strings.Contains(out.String(), text) {
					t.Errorf("no %q in:\n%s", text, out.String())
				}
			}
			for _, text := range c.never {
				if strings.Contains(out.String(), text) {
					t.Errorf("%q in:\n%s", text, out.String())
				}
			}
		})
	}
}
