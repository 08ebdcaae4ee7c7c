// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"slices"
	"testing"
	"time"
)

// In a Prometheus of several clusters, the alert fires for the cluster that has no metrics, for
// a day after the last ones.
func TestDownPerCluster(t *testing.T) {
	const up, down = `nodegate_build_info{cluster="a",pod="a"} 1x1600`, `nodegate_build_info{cluster="b",pod="a"} 1x5 stale`
	rule := alertNamed(t, "NodegateDown")
	for name, s := range map[string]struct {
		series []string
		after  time.Duration
		want   []string // clusters
	}{
		"one cluster":                 {[]string{up, down}, 11 * time.Minute, []string{"b"}},
		"an hour later":               {[]string{up, down}, 2 * time.Hour, []string{"b"}},
		"less than five minutes":      {[]string{up, down}, 9 * time.Minute, nil},
		"a day later":                 {[]string{up, down}, 25 * time.Hour, nil},
		"another replica":             {[]string{up, down, `nodegate_build_info{cluster="b",pod="b"} 1x60`}, 20 * time.Minute, nil},
		"all clusters":                {[]string{down}, 11 * time.Minute, []string{"b"}},
		"all clusters, a day later":   {[]string{down}, 25 * time.Hour, []string{""}},
		"a Prometheus of one cluster": {[]string{`nodegate_build_info{pod="a"} 1x5 stale`}, 11 * time.Minute, []string{""}},
	} {
		got := firingFor(t, rule, s.series, s.after, "cluster")
		if !slices.Equal(got, s.want) {
			t.Errorf("%s: it fires for the clusters %q, want %q", name, got, s.want)
		}
	}
}
