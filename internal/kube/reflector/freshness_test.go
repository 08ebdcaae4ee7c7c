// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"k8s.io/utils/clock"
)

// Delayed events may arrive in a burst. Until the burst has ended, it is unknown how many
// of them are missing.
func TestKnownAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := freshness{clock: clock.RealClock{}}
		begin := time.Now()
		at := func(want time.Duration) {
			t.Helper()
			if got := h.KnownAt().Sub(begin); got != want {
				t.Errorf("%s: known at %s, want %s", time.Since(begin), got, want)
			}
		}
		if !h.KnownAt().IsZero() {
			t.Errorf("known at %s before anything was read", h.KnownAt())
		}
		h.begin(begin)
		at(0)
		kubetest.Pass(time.Minute)
		at(0)
		h.received()
		at(0)
		kubetest.Pass(BurstWindow / 2)
		h.received()
		at(0)
		kubetest.Pass(BurstWindow / 2)
		at(time.Minute)
		kubetest.Pass(time.Minute)
		h.received()
		at(time.Minute)
		kubetest.Pass(BurstWindow)
		at(2*time.Minute + BurstWindow)
	})
}

// If the wall clock is set back, a watch that delivers nothing is noticed as soon as before, and is
// not considered to be current.
func TestKnownAtIsMonotonic(t *testing.T) {
	h := freshness{clock: clock.RealClock{}}
	h.begin(time.Now())
	for name, at := range map[string]time.Time{"known": h.KnownAt(), "received": h.lastReceived()} {
		if !strings.Contains(at.String(), " m=") {
			t.Errorf("%s at %s, without a reading of the monotonic clock", name, at)
		}
	}
}
