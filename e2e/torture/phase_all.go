// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nodegate/nodegate/e2e/torture/faultproxy"
	"github.com/nodegate/nodegate/testcluster/await"
)

// meets reports whether a request may fail. The requests with which nodegate starts may
// not: it exits if one of dozens fails, and the next process repeats them.
func meets(r faultproxy.Request) bool {
	switch r.Resource {
	case "nodes", "nodegates", "nodegates/status", "pods", "daemonsets", "events", "podtemplates":
		return true
	}
	return false
}

// everything injects a few faults of every kind at once, for the short campaign of the
// tests.
func everything(ctx context.Context, s *site, d time.Duration) error {
	r, err := s.startWithFleet(ctx, "--leader-elect=false")
	if err != nil {
		return err
	}
	dice := newDice(s.Seed)
	var kill atomic.Bool
	r.proxy.Follow(faultproxy.Plan{
		Event: func(e faultproxy.Event) faultproxy.EventFault {
			rng := dice.event(e)
			if n := rng.IntN(100); n < 10 {
				return faultproxy.EventFault{Fault: eventFaults[n%len(eventFaults)], Wait: time.Duration(rng.Int64N(int64(lateBy)))}
			}
			return faultproxy.EventFault{}
		},
		Request: func(q faultproxy.Request) faultproxy.RequestFault {
			rng := dice.request(q)
			switch {
			case q.IsWrite() && kill.CompareAndSwap(true, false):
				return faultproxy.RequestFault{Fault: faultproxy.Call, After: rng.IntN(2) == 0, Do: r.kill}
			case rng.IntN(100) < 10 && meets(q):
				return faultproxy.RequestFault{
					Fault: pick(rng, requestFaults...), After: rng.IntN(2) == 0, Wait: time.Duration(rng.Int64N(int64(200 * time.Millisecond))),
				}
			}
			return faultproxy.RequestFault{}
		},
	})
	return s.during(ctx, d, func(ctx context.Context) error {
		kill.Store(true)
		if err := await.Pause(ctx, d/4); err != nil {
			return err
		}
		r.proxy.Freeze(func(q faultproxy.Request) bool { return strings.HasPrefix(q.Resource, "node") })
		if err := await.Pause(ctx, d/8); err != nil {
			return err
		}
		r.proxy.Thaw()
		if err := s.killAPIServer(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		if err := await.Pause(ctx, d/4); err != nil {
			return err
		}
		kill.Store(true)
		<-ctx.Done()
		return nil
	})
}
