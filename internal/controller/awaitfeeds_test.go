// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/internal/controller/controllertest"
)

// The leader starts when its feeds are synced, or when it would have to wait too long: after
// feedTimeout without any receipt, and after feedTimeoutMax in any case.
func TestStartWaitsForFeeds(t *testing.T) {
	for name, c := range map[string]struct {
		// synced is when the feeds are synced, and received until when they receive something;
		// 0 for never.
		synced, received time.Duration
		starts           time.Duration
	}{
		"synced":                             {synced: 5 * time.Second, received: 5 * time.Second, starts: 5 * time.Second},
		"nothing is received":                {starts: feedTimeout},
		"received slowly":                    {synced: 2 * time.Minute, received: 2 * time.Minute, starts: 2 * time.Minute},
		"received for a while":               {received: time.Minute, starts: time.Minute + feedTimeout},
		"received for ever":                  {received: time.Hour, starts: feedTimeoutMax},
		"received nothing, and synced later": {synced: time.Minute, starts: feedTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newClosedWorld(t, 1)
				began := time.Now()
				w.unsyncedFeeds = func() []string {
					if c.synced != 0 && time.Since(began) >= c.synced {
						return nil
					}
					return []string{"nodes"}
				}
				w.received = func() time.Time {
					if c.received == 0 {
						return time.Time{}
					}
					return began.Add(min(time.Since(began), c.received))
				}
				stop := w.start(logr.Discard(), interceptor.Funcs{})
				defer stop()
				controllertest.Pass(c.starts - time.Second)
				if w.c.leading.Load() {
					t.Errorf("it started before %s", c.starts)
				}
				controllertest.Pass(2 * time.Second)
				if !w.c.leading.Load() {
					t.Errorf("it did not start within %s", c.starts+time.Second)
				}
			})
		})
	}
}
