// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		before, now cost
		want        verdict
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
		if got := judge(c.before, c.now); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestCompare(t *testing.T) {
	of := func(name string) benchmark { return benchmark{"example.com/internal/gate", name} }
	before := costs{of("Kept"): {1, 8}, of("Gone"): {2, 16}, of("Slower"): {3, 100}, of("Faster"): {3, 100}}
	now := costs{of("Kept"): {1, 8}, of("Slower"): {4, 100}, of("Faster"): {2, 100}, of("Added"): {9, 9}}
	var got []string
	for _, r := range compare(before, now) {
		got = append(got, r.name+" "+string(r.verdict))
	}
	if want := []string{"Added NEW", "Faster better", "Gone MISSING", "Kept same", "Slower WORSE"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTell(t *testing.T) {
	of := func(name string) benchmark { return benchmark{"example.com/internal/gate", name} }
	base := costs{of("A"): {1, 8}, of("B"): {2, 16}}
	for name, c := range map[string]struct {
		now          costs
		failed       int
		tells, omits []string
	}{
		"nothing has changed": {
			costs{of("A"): {1, 8}, of("B"): {2, 16}}, 0,
			[]string{"2 benchmarks: 2 as in the baseline"}, []string{"gate A", "make bench-baseline"},
		},
		"one is better": {
			costs{of("A"): {0, 0}, of("B"): {2, 16}}, 0,
			[]string{"better", "gate A", "1 → 0", "make bench-baseline"}, []string{"gate B", "memprofile"},
		},
		"one is worse, and one is missing": {
			costs{of("A"): {1, 80}}, 2,
			[]string{"WORSE", "8 → 80", "MISSING", "2 → ?", "1 worse, 1 missing", "make bench-baseline", "memprofile"}, nil,
		},
		"one has no baseline": {
			costs{of("A"): {1, 8}, of("B"): {2, 16}, of("C"): {3, 24}}, 1,
			[]string{"NEW", "gate C", "? → 3", "make bench-baseline"}, []string{"gate A"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if failed := tell(&out, compare(base, c.now)); failed != c.failed {
				t.Errorf("%d fail, want %d", failed, c.failed)
			}
			for _, text := range c.tells {
				if !strings.Contains(out.String(), text) {
					t.Errorf("%q is not told:\n%s", text, out.String())
				}
			}
			for _, text := range c.omits {
				if strings.Contains(out.String(), text) {
					t.Errorf("%q is told:\n%s", text, out.String())
				}
			}
		})
	}
}
