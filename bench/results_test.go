// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

func TestQuantilesAreNearestRanks(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i) // in no order
	}
	for name, test := range map[string]struct {
		samples  []time.Duration
		p50, p99 time.Duration
	}{
		"one":       {[]time.Duration{7}, 7, 7},
		"two":       {[]time.Duration{9, 3}, 3, 9},
		"three":     {[]time.Duration{9, 1, 3}, 3, 9},
		"a hundred": {hundred, 50, 99},
	} {
		t.Run(name, func(t *testing.T) {
			q := quantilesOf(test.samples)
			if q[50] != test.p50 || q[99] != test.p99 {
				t.Errorf("p50 %d, p99 %d; want %d, %d", q[50], q[99], test.p50, test.p99)
			}
		})
	}
}

func TestSpread(t *testing.T) {
	if got := spreadOf([]float64{3, 1, 2}).text("%.0f"); got != "2 (1–3)" {
		t.Errorf("odd: %s", got)
	}
	if got := spreadOf([]float64{4, 1, 2, 3}).text("%.1f"); got != "2.5 (1.0–4.0)" {
		t.Errorf("even: %s", got)
	}
}

// TestRatiosAreWithinRounds: a machine that is slower in one round is so for
// both, and the ratio must not show it.
func TestRatiosAreWithinRounds(t *testing.T) {
	r := newResults(&options{})
	for _, slowness := range []time.Duration{1, 10, 3} {
		for _, f := range figures {
			r.add(f.id, ofNodegate, []time.Duration{3 * slowness * time.Millisecond})
			r.add(f.id, ofLimit, []time.Duration{2 * slowness * time.Millisecond})
		}
		r.endRound()
	}
	for _, row := range r.rows() {
		if want := (spread{1.5, 1.5, 1.5}); row.Ratio != want {
			t.Errorf("%s p%d: ratio %v, want %v", row.Figure, row.Percentile, row.Ratio, want)
		}
		if want := (spread{9, 3, 30}); row.Nodegate != want {
			t.Errorf("%s p%d: nodegate %v, want %v", row.Figure, row.Percentile, row.Nodegate, want)
		}
	}
	var table bytes.Buffer
	r.damped = quantiles{50: 2010 * time.Millisecond, 99: 2040 * time.Millisecond}
	r.table(&table)
	for _, want := range []string{"9.0 (3.0–30.0)", "1.50 (1.50–1.50)", "| 2040.0 |", "p99 ≤ 2050 ms"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in:\n%s", want, table.String())
		}
	}
}

func TestCommandLine(t *testing.T) {
	for _, args := range [][]string{{"-nodes=0"}, {"-rate=-1"}, {"-rounds=0"}, {"x"}, {"-nodes=many"}, {"-no-such-flag"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
	o, err := parse(nil, io.Discard)
	if err != nil || o.nodes != 200 {
		t.Errorf("without arguments: %+v, %v", o, err)
	}
}
