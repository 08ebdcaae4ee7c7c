// SPDX-License-Identifier: Apache-2.0

package report

import (
	"maps"
	"slices"
	"testing"
)

func TestPlace(t *testing.T) {
	for _, c := range []struct {
		labels    map[string]string
		poolLabel string
		pool      string
	}{
		{map[string]string{"karpenter.sh/nodepool": "k", "eks.amazonaws.com/nodegroup": "e"}, "", "k"},
		{map[string]string{"cloud.google.com/gke-nodepool": "g"}, "", "g"},
		{map[string]string{"eks.amazonaws.com/nodegroup": "e"}, "", "e"},
		{map[string]string{"kubernetes.azure.com/agentpool": "a", "agentpool": "old"}, "", "a"},
		{map[string]string{"agentpool": "old"}, "", "old"},
		{map[string]string{"karpenter.sh/nodepool": "k", "team": "t"}, "team", "t"},
		{map[string]string{"karpenter.sh/nodepool": "k"}, "team", ""},
		{nil, "", ""},
	} {
		labels := map[string]string{"topology.kubernetes.io/zone": "z"}
		maps.Copy(labels, c.labels)
		if pool, zone := place(labels, c.poolLabel); pool != c.pool || zone != "z" {
			t.Errorf("%v, by %q: pool %q, zone %q; want pool %q", c.labels, c.poolLabel, pool, zone, c.pool)
		}
	}
}

func TestTook(t *testing.T) {
	for seconds, want := range map[float64]string{
		0: "0s", 0.4: "0.4s", 9.6: "9.6s", 10.4: "10s", 59.7: "1m 00s", 61: "1m 01s", 3599: "59m 59s", 3600: "1h 00m", 47 * 3600: "47h 00m",
		50 * 3600: "2d 2h", -5: "-5s",
	} {
		if got := formatSeconds(seconds); got != want {
			t.Errorf("%v seconds are %q, want %q", seconds, got, want)
		}
	}
}

// Bars are in thousandths: of a gate's phases, and of the slowest group.
func TestBars(t *testing.T) {
	phases := []Phase{{Kind: PhaseStartUp, Seconds: 10}, {Kind: PhaseSignal, Signal: "b", Seconds: 30}}
	for name, c := range map[string]struct{ got, want []portion }{
		"a gate":        {share(Gate{Phases: phases, Signals: []Signal{{Name: "a"}, {Name: "b"}}}), []portion{{phases[0], 0, 250, 0}, {phases[1], 250, 750, 1}}},
		"no phases":     {share(Gate{}), nil},
		"a group":       {groupsView{slowest: 100}.Range(Spread{P50: 10, P90: 50, P99: 100}), []portion{{Begin: 100, Width: 400}, {Begin: 500, Width: 500, Shade: 1}, {Begin: 96, Width: 8, Shade: 2}}},
		"nothing opens": {groupsView{}.Range(Spread{}), []portion{{}, {Shade: 1}, {Width: 8, Shade: 2}}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, c.got, c.want)
		}
	}
}
