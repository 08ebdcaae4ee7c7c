// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"slices"
	"testing"
	"time"

	"github.com/nodegate/nodegate/internal/gate"
)

// of is a signal that depends on these pods.
type of struct {
	gate.Signal
	pods []gate.Pod
}

func (s of) Evidence(*gate.Facts) ([]gate.Pod, bool) { return s.pods, true }

func TestPodOfASignal(t *testing.T) {
	pod := func(name string, readySince int64) gate.Pod {
		return gate.Pod{Name: name, Ready: readySince > 0, ReadySince: time.Unix(readySince, 0)}
	}
	finished, mirror := pod("a", 1), pod("b", 1)
	finished.Finished, mirror.Mirror = true, true
	for name, c := range map[string]struct {
		pods    []gate.Pod
		subject string // of the reading
		want    string
	}{
		"no pod":                         {nil, "", ""},
		"the one that the reading names": {[]gate.Pod{pod("a", 10), pod("b", 0)}, "b", "b"},
		"the one that is ready":          {[]gate.Pod{pod("a", 0), pod("b", 10)}, "", "b"},
		"the one that is ready longest":  {[]gate.Pod{pod("a", 20), pod("b", 10), pod("c", 30)}, "", "b"},
		"not a finished or static one":   {[]gate.Pod{finished, mirror, pod("c", 0)}, "", "c"},
		"only finished and static ones":  {[]gate.Pod{finished, mirror}, "a", ""},
	} {
		for range 2 { // in either order
			got := ""
			if p := (&tracer{}).pod(of{pods: c.pods}, &gate.Reading{Subject: c.subject}); p != nil {
				got = p.Name
			}
			if got != c.want {
				t.Errorf("%s: pod %q, want %q", name, got, c.want)
			}
			slices.Reverse(c.pods)
		}
	}
}
