// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nodegate/nodegate/e2e/torture/faultproxy"
	"github.com/nodegate/nodegate/testcluster/await"
)

// longestFreeze is the maximum time for which a watch is frozen, or by which a list or a
// server lags.
const longestFreeze = 20 * time.Second

// stale serves nodegate old states, with one fault after the other.
func stale(ctx context.Context, s *site, d time.Duration) error {
	r, err := s.startWithFleet(ctx)
	if err != nil {
		return err
	}
	rng := s.rng("stale")
	return s.during(ctx, d, func(ctx context.Context) error {
		for ctx.Err() == nil {
			behind := time.Second + time.Duration(rng.Int64N(int64(longestFreeze-time.Second)))
			behind = min(behind, d/4)
			if err := s.serveOldState(ctx, r.proxy, rng, behind); err != nil {
				return err
			}
			r.proxy.Heal()
			if err := await.Pause(ctx, 2*time.Second); err != nil {
				return err
			}
		}
		return nil
	})
}

// serveOldState makes a proxy serve an old state for a time.
func (s *site) serveOldState(ctx context.Context, proxy *faultproxy.Proxy, rng *rand.Rand, behind time.Duration) error {
	// Pods are frozen only together with everything else, because the campaign assumes that
	// they do not lag behind nodes (docs/known-limits.md).
	some := pick(rng, "nodes", "nodegates", "")
	chosen := func(r faultproxy.Request) bool { return r.Verb == "watch" && strings.HasPrefix(r.Resource, some) }
	served := func(r faultproxy.Request) bool { return strings.HasPrefix(r.Resource, some) && r.Resource != "pods" }
	switch kind := rng.IntN(3); kind {
	case 0:
		fmt.Fprintf(s.Progress, "  watches of %q are frozen for %s\n", some, behind.Round(time.Second))
		proxy.Freeze(chosen)
	case 1:
		fmt.Fprintf(s.Progress, "  lists of %q are %s old\n", some, behind.Round(time.Second))
		proxy.Follow(faultproxy.Plan{Request: func(r faultproxy.Request) faultproxy.RequestFault {
			if !served(r) {
				return faultproxy.RequestFault{}
			}
			return faultproxy.RequestFault{Fault: faultproxy.Rewind, Wait: behind}
		}})
		proxy.EndWatches(chosen)
	case 2:
		fmt.Fprintf(s.Progress, "  the API server that answers for %q lags by %s\n", some, behind.Round(time.Second))
		proxy.Follow(faultproxy.Plan{Lag: func(r faultproxy.Request) time.Duration {
			if !served(r) {
				return 0
			}
			return behind
		}})
		proxy.EndWatches(chosen)
	}
	return await.Pause(ctx, behind)
}
