// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/nodegate/nodegate/e2e/torture/faultproxy"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
)

// Faults of the control plane itself.
const (
	apiServerKilled faultproxy.Fault = "API server killed"
	etcdKilled      faultproxy.Fault = "etcd killed"
	etcdRestored    faultproxy.Fault = "etcd restored to an older revision"
)

// requestFaults are the faults that 5 to 50 % of requests get.
var requestFaults = []faultproxy.Fault{
	faultproxy.Conflict, faultproxy.Gone, faultproxy.Invalid, faultproxy.TooManyRequests, faultproxy.InternalError,
	faultproxy.Unavailable, faultproxy.Reset, faultproxy.Timeout, faultproxy.Half, faultproxy.Late,
}

// errorsHide is the maximum time for which requests fail in a row.
const errorsHide = 15 * time.Second

// requestErrors makes requests fail at increasing rates, then kills the API server and
// etcd.
func requestErrors(ctx context.Context, s *site, d time.Duration) error {
	r, err := s.startWithFleet(ctx)
	if err != nil {
		return err
	}
	rates := []int{5, 10, 20, 50}
	for _, rate := range rates {
		if err := s.failing(ctx, r, rate, d/time.Duration(len(rates)+2)); err != nil {
			return err
		}
	}
	for _, outage := range []func(context.Context) error{s.killAPIServer, s.killEtcd} {
		err := s.during(ctx, d/time.Duration(len(rates)+2), func(ctx context.Context) error {
			if err := outage(context.WithoutCancel(ctx)); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		})
		if err != nil {
			return err
		}
		began := time.Now()
		if err := s.fleet.convergeFacts(ctx); err != nil {
			return fmt.Errorf("after an outage: %w", err)
		}
		s.report.note("%s after the end of an outage, all nodes were ready and gates open", time.Since(began).Round(10*time.Millisecond))
	}
	return nil
}

// failing makes rate percent of requests fail for the duration d.
func (s *site) failing(ctx context.Context, r *replica, rate int, d time.Duration) error {
	before := newReport(0, s.phase)
	if err := before.count(s); err != nil {
		return err
	}
	dice := newDice(s.Seed + uint64(rate))
	r.proxy.Follow(faultproxy.Plan{Request: func(q faultproxy.Request) faultproxy.RequestFault {
		rng := dice.request(q)
		if rng.IntN(100) >= rate {
			return faultproxy.RequestFault{}
		}
		return faultproxy.RequestFault{
			Fault: pick(rng, requestFaults...), After: rng.IntN(2) == 0, Wait: time.Duration(rng.Int64N(int64(500 * time.Millisecond))),
		}
	}})
	if err := s.churning(ctx, d); err != nil {
		return err
	}
	r.proxy.Heal()
	if err := s.fleet.convergeFacts(ctx); err != nil {
		return fmt.Errorf("after %d %% of requests failed: %w", rate, err)
	}
	after := newReport(0, s.phase)
	if err := after.count(s); err != nil {
		return err
	}
	asked, done := after.asked()-before.asked(), after.changed()-before.changed()
	s.report.note("%d %% errors: %d patches reached the API server, %d changed a Node", rate, asked, done)
	if asked > 2*done+len(s.fleet.nodes) {
		return fmt.Errorf("at %d %% errors, %d patches were sent for %d changes, want at most twice as many", rate, asked, done)
	}
	return nil
}

// asked returns the number of patches that reached the API server.
func (r *Report) asked() int {
	n := 0
	for _, count := range r.Patches {
		n += count
	}
	return n
}

// changed returns the number of patches that changed a Node.
func (r *Report) changed() int { return r.Patches[http.StatusOK] - r.Repeated }

// outage is how long a component of the control plane is down.
const outage = time.Second

func (s *site) killAPIServer(ctx context.Context) error {
	return s.interrupt(ctx, testcluster.APIServer, apiServerKilled)
}

func (s *site) killEtcd(ctx context.Context) error {
	return s.interrupt(ctx, testcluster.Etcd, etcdKilled)
}

func (s *site) interrupt(ctx context.Context, c testcluster.Component, f faultproxy.Fault) error {
	s.report.inject(f)
	s.cluster.KillComponent(c)
	if err := await.Pause(ctx, outage); err != nil {
		return err
	}
	return s.cluster.StartComponent(ctx, c)
}

// restores restores etcd to its state before a period of churn, while nodegate still
// caches the later state. The time before the restore cannot be judged, because its
// revisions exist twice.
func restores(ctx context.Context, s *site, d time.Duration) error {
	if _, err := s.startWithFleet(ctx); err != nil {
		return err
	}
	data, copied := filepath.Join(s.cluster.Dir(), "etcd"), filepath.Join(s.cluster.Dir(), "etcd-before")
	s.cluster.StopComponent(testcluster.Etcd)
	if err := os.CopyFS(copied, os.DirFS(data)); err != nil {
		return fmt.Errorf("copying etcd's data: %w", err)
	}
	if err := s.cluster.StartComponent(ctx, testcluster.Etcd); err != nil {
		return err
	}
	if err := s.churning(ctx, d/2); err != nil {
		return err
	}
	s.report.inject(etcdRestored)
	s.cluster.KillComponent(testcluster.APIServer)
	s.cluster.KillComponent(testcluster.Etcd)
	if err := os.RemoveAll(data); err != nil {
		return fmt.Errorf("removing etcd's data: %w", err)
	}
	if err := os.Rename(copied, data); err != nil {
		return fmt.Errorf("restoring etcd's data: %w", err)
	}
	if err := s.cluster.StartComponent(ctx, testcluster.Etcd); err != nil {
		return err
	}
	if err := s.begin(ctx); err != nil {
		return err
	}
	if err := s.cluster.StartComponent(ctx, testcluster.APIServer); err != nil {
		return err
	}
	return s.churning(ctx, d/2)
}
