// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodegate/nodegate/bench/meter"
)

func TestOrderOfTurns(t *testing.T) {
	for want, plan := range map[string]Plan{
		"ABBA ABBA ABBA": {Rounds: 3},
		"AB BA AB":       {Rounds: 3, Short: true},
	} {
		var rounds []string
		for n := range plan.Rounds {
			round := ""
			for _, name := range plan.order(n) {
				round += map[string]string{nodegateName: "A", limitName: "B"}[name]
			}
			rounds = append(rounds, round)
		}
		if got := strings.Join(rounds, " "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestWritesWithinAWindow(t *testing.T) {
	at := func(seconds ...float64) []meter.Request {
		var requests []meter.Request
		for _, s := range seconds {
			requests = append(requests, meter.Request{
				Verb: "patch", Resource: "nodes", Name: "n", Received: time.Unix(0, int64(s*1e9)),
			})
		}
		return requests
	}
	other := append(at(1, 1.5), meter.Request{Verb: "patch", Resource: "nodes", Name: "other"}, meter.Request{Verb: "get", Resource: "nodes", Name: "n"})
	for name, test := range map[string]struct {
		requests  []meter.Request
		all, most int
	}{
		"none":                        {nil, 0, 0},
		"one per window":              {at(0, 2, 4), 3, 1},
		"two close to each other":     {at(0, 2, 3.9), 3, 2},
		"windows begin anywhere":      {at(0, 1.9, 2.1, 3.8), 4, 3},
		"other requests":              {other, 2, 2},
		"all at once, then one later": {at(0, 0, 0, 10), 4, 3},
	} {
		t.Run(name, func(t *testing.T) {
			if all, most := writesWithin(test.requests, "n", 2*time.Second); all != test.all || most != test.most {
				t.Errorf("%d, at most %d; want %d, %d", all, most, test.all, test.most)
			}
		})
	}
}

func TestFigureIDsAreUnique(t *testing.T) {
	var ids []string
	for _, f := range All {
		if f.Title == "" || f.Measure == nil || slices.Contains(ids, f.ID) {
			t.Errorf("%q: %q", f.ID, f.Title)
		}
		ids = append(ids, f.ID)
	}
}
