// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nodegate/nodegate/e2e/torture/faultproxy"
	"github.com/nodegate/nodegate/testcluster/await"
)

// Times of the watches of a standby: from when they are frozen until the leader ends, and from when
// the standby leads until they are resumed. The latter is shorter than the time for which a new leader
// waits for its watch of NodeGates.
const (
	frozenBefore = 3 * time.Second
	frozenAfter  = 8 * time.Second
)

// longestTakeover is the maximum time for which the watches are frozen.
const longestTakeover = frozenBefore + failover + frozenAfter

// lateTakeovers ends the leader of two replicas repeatedly while watches of the other one are frozen.
func lateTakeovers(ctx context.Context, s *site, d time.Duration) error {
	if err := s.startPair(ctx); err != nil {
		return err
	}
	rng := s.rng("takeovers")
	return s.during(ctx, d, func(ctx context.Context) error {
		for ctx.Err() == nil {
			if err := s.takeOverLate(ctx, rng); err != nil {
				return err
			}
			if err := await.Pause(ctx, 2*time.Second); err != nil { // until the killed one stands by
				return err
			}
		}
		return nil
	})
}

// takeOverLate freezes watches of the standby, kills the leader, and resumes the watches a while after
// the standby has become the leader.
func (s *site) takeOverLate(ctx context.Context, rng *rand.Rand) error {
	leader, err := s.awaitLeader(ctx, func(*replica) bool { return true })
	if err != nil {
		return err
	}
	standby := s.replicas[0]
	if standby == leader {
		standby = s.replicas[1]
	}
	some := pick(rng, "nodes", "nodegates", "") // pods: see serveOldState
	standby.proxy.Freeze(func(r faultproxy.Request) bool {
		return r.Verb == "watch" && isFact(r) && strings.HasPrefix(r.Resource, some)
	})
	defer standby.proxy.Thaw()
	if err := s.fleet.changeGate(ctx, rng); err != nil {
		return err
	}
	if err := await.Pause(ctx, time.Duration(rng.Int64N(int64(frozenBefore)))); err != nil {
		return err
	}
	leader.away.Lock()
	defer leader.away.Unlock()
	s.report.inject(faultproxy.Fault(lost))
	leader.kill()
	began := time.Now()
	if _, err := s.awaitLeader(ctx, func(r *replica) bool { return r == standby }); err != nil {
		return err
	}
	fmt.Fprintf(s.Progress, "  watches of %q are frozen while a standby leads after %s\n", some, time.Since(began).Round(time.Second/10))
	return await.Pause(ctx, time.Duration(rng.Int64N(int64(frozenAfter))))
}

// isFact reports whether a request is for something that decisions are based on. The Lease is not:
// a standby that does not see its release waits until it has expired.
func isFact(r faultproxy.Request) bool { return r.Resource != "leases" }

// awaitLeader waits until one of certain replicas holds the Lease.
func (s *site) awaitLeader(ctx context.Context, isWanted func(*replica) bool) (leader *replica, err error) {
	err = await.Until(ctx, "a leader", func(ctx context.Context) (err error) {
		if leader, err = s.leader(ctx); err == nil && !isWanted(leader) {
			err = errors.New("the leader is the former one")
		}
		return err
	})
	return leader, err
}
