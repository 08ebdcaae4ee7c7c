// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/e2e/torture/faultproxy"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/simnode"
)

// Storms.
const (
	regressed faultproxy.Fault = "node that lost its network together with 90 % of the fleet"
	flapped   faultproxy.Fault = "flap"
	unseen    faultproxy.Fault = "reboot while nodegate was down"
)

// flapsEvery is how long a node stays in one state while it flaps.
const flapsEvery = 100 * time.Millisecond

// storms repeats three storms: most of the fleet loses a signal at once, all nodes flap,
// and all nodes reboot while nodegate is down. The judge compares the number of closed
// nodes with the budget at every revision.
func storms(ctx context.Context, s *site, d time.Duration) error {
	r, err := s.startWithFleet(ctx)
	if err != nil {
		return err
	}
	for end := time.Now().Add(d); ; {
		if err := s.massRegression(ctx); err != nil {
			return err
		}
		if err := s.flapping(ctx, d/8); err != nil {
			return err
		}
		if r, err = s.rebootWhileStopped(ctx, r); err != nil {
			return err
		}
		if time.Now().After(end) {
			return nil
		}
	}
}

func (s *site) massRegression(ctx context.Context) error {
	lost := s.fleet.nodes[:len(s.fleet.nodes)*9/10]
	for _, n := range lost {
		s.report.inject(regressed)
		if err := s.fleet.retry(ctx, "node "+n.Name, func(ctx context.Context) error { return n.Report(ctx, simnode.Conditions{net: no}) }); err != nil {
			return err
		}
	}
	// Time in which nodegate might close more than the budget.
	if err := await.Pause(ctx, 2*time.Second); err != nil {
		return err
	}
	return s.fleet.convergeFacts(ctx)
}

// flapping changes the network condition and the daemon of every node ten times a second.
func (s *site) flapping(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var group sync.WaitGroup
	for _, n := range s.fleet.nodes {
		group.Go(func() {
			for up := false; await.Pause(ctx, flapsEvery) == nil; up = !up {
				status := map[bool]corev1.ConditionStatus{false: no, true: yes}[up]
				s.fleet.done(n.Report(ctx, simnode.Conditions{net: status}))
				s.fleet.done(n.reportPod(ctx, up))
				s.report.inject(flapped)
			}
		})
	}
	group.Wait()
	return nil
}

// rebootWhileStopped reboots the whole fleet while nodegate is stopped, with daemons ready on
// every other node, and starts nodegate again.
func (s *site) rebootWhileStopped(ctx context.Context, r *replica) (*replica, error) {
	if err := s.fleet.convergeFacts(ctx); err != nil {
		return nil, err
	}
	if err := r.stop(); err != nil {
		return nil, fmt.Errorf("stopping nodegate: %w", err)
	}
	for i, n := range s.fleet.nodes {
		s.report.inject(unseen)
		if err := n.reboot(ctx); err != nil {
			return nil, err
		}
		n.off = time.Time{} // the boot is not observed
		err := s.fleet.retry(ctx, "node "+n.Name, func(ctx context.Context) error {
			if err := n.heartbeat(ctx); err != nil {
				return err
			}
			return n.reportPod(ctx, i%2 == 0)
		})
		if err != nil {
			return nil, err
		}
	}
	r, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	if err := await.Pause(ctx, 2*time.Second); err != nil {
		return nil, err
	}
	return r, s.fleet.convergeFacts(ctx)
}
