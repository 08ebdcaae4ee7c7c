// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// Replicas that are replaced, however quickly, release the Lease and do not lose it. The alert fires
// for replicas that take turns, also if one of them restarts meanwhile, and for one replica that
// loses the Lease again and again.
func TestLeaderChanges(t *testing.T) {
	const losses, leads = `nodegate_lease_losses_total{cluster="%s",pod="%s"} %s`, `leader_election_master_status{cluster="a",name="nodegate",pod="%s"} %s`
	var rollingUpdate []string // of nodes: each minute, the leader's pod is replaced
	for i := range 20 {
		pod := fmt.Sprint(i)
		rollingUpdate = append(rollingUpdate,
			fmt.Sprintf(losses, "a", pod, fmt.Sprintf("_x%d 0 0 stale", i+1)), fmt.Sprintf(leads, pod, fmt.Sprintf("_x%d 0 1 stale", i+1)))
	}
	rule := alertNamed(t, "NodegateLeaderChanges")
	for name, s := range map[string]struct {
		series []string
		want   []string // clusters
	}{
		"two replicas take turns":      {[]string{fmt.Sprintf(losses, "a", "x", "0+1x20"), fmt.Sprintf(losses, "a", "y", "0+1x20"), fmt.Sprintf(losses, "b", "x", "0x20")}, []string{"a"}},
		"one replica":                  {[]string{fmt.Sprintf(losses, "a", "x", "0+2x20")}, []string{"a"}},
		"a replica restarts":           {[]string{fmt.Sprintf(losses, "a", "x", "0x8 1 2 3 stale 0 1 2 3x20")}, []string{"a"}},
		"a rolling update":             {rollingUpdate, nil},
		"a restart of each API server": {[]string{fmt.Sprintf(losses, "a", "x", "0x8 1x3 1x20"), fmt.Sprintf(losses, "a", "y", "0x10 1x3 2x20")}, nil},
		"few losses in each cluster":   {[]string{fmt.Sprintf(losses, "a", "x", "0x8 3x20"), fmt.Sprintf(losses, "b", "x", "0x8 3x20")}, nil},
	} {
		got := firingFor(t, rule, s.series, 18*time.Minute, "cluster")
		if !slices.Equal(got, s.want) {
			t.Errorf("%s: it fires for the clusters %q, want %q", name, got, s.want)
		}
	}
}
