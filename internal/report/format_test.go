// SPDX-License-Identifier: Apache-2.0

package report

import (
	"maps"
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
