// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/e2e/judge"
	"github.com/nodegate/nodegate/e2e/judge/recording"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
)

// site is a control plane with nodegate and a fleet.
type site struct {
	Options
	phase        phase
	cluster      *testcluster.Cluster
	admin        client.Client
	applier      *testbed.Applier
	kube         kubernetes.Interface
	etcd         *clientv3.Client
	installation *testbed.Installation
	// identity is nodegate's client configuration, without a proxy.
	identity *rest.Config
	fleet    *fleet
	report   *Report
	// since is the position from which the run is judged.
	since recording.Position
	// arrivals counts the calls of keepBusy.
	arrivals int

	mu       sync.Mutex
	replicas []*replica
}

func newSite(ctx context.Context, o Options, p phase) (s *site, err error) {
	s = &site{Options: o, phase: p, report: newReport(o.Seed, p)}
	components := append([]testcluster.Component{testcluster.APIServer}, p.components...)
	s.cluster, err = testcluster.Start(ctx, recording.ClusterOptions(o.Progress, components...))
	if err != nil {
		return nil, err
	}
	if err := s.connect(); err != nil {
		return nil, errors.Join(err, s.cluster.Stop())
	}
	return s, nil
}

func (s *site) connect() error {
	var err error
	if s.admin, err = testbed.NewClient(s.cluster.Admin()); err != nil {
		return err
	}
	if s.applier, err = testbed.NewApplier(s.cluster.Admin()); err != nil {
		return err
	}
	if s.kube, err = kubernetes.NewForConfig(s.cluster.Admin()); err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	s.etcd, err = recording.Connect(s.cluster)
	return err
}

// open installs nodegate and creates the gates and the fleet.
func (s *site) open(ctx context.Context) (err error) {
	if s.installation, err = testbed.Install(ctx, s.applier, s.Program, taintKeys()); err != nil {
		return err
	}
	account := s.installation.ServiceAccount
	if s.identity, err = s.cluster.ServiceAccount(ctx, account.Namespace, account.Name); err != nil {
		return err
	}
	if s.fleet, err = newFleet(s); err != nil {
		return err
	}
	return s.fleet.declare(ctx)
}

// begin sets the beginning of the part of the run that is judged to the current state.
func (s *site) begin(ctx context.Context) (err error) {
	s.since, err = recording.Now(ctx, s.etcd, s.cluster.AuditLog())
	return err
}

// start starts a replica of nodegate behind its own proxy.
func (s *site) start(ctx context.Context, arguments ...string) (*replica, error) {
	return s.startProgram(ctx, "", arguments...)
}

// startWithFleet is like start, and then creates the nodes.
func (s *site) startWithFleet(ctx context.Context, arguments ...string) (*replica, error) {
	r, err := s.start(ctx, arguments...)
	if err != nil {
		return nil, err
	}
	return r, s.fleet.arrive(ctx)
}

// startProgram is like start, but runs another program than the installed one.
func (s *site) startProgram(ctx context.Context, program string, arguments ...string) (*replica, error) {
	r, err := newReplica(s, program, arguments)
	if err != nil {
		return nil, err
	}
	return r, s.run(ctx, r)
}

// startPair starts two replicas with leader election, and then creates the nodes.
func (s *site) startPair(ctx context.Context) error {
	for range 2 {
		if err := s.startCandidate(ctx, ""); err != nil {
			return err
		}
	}
	return s.fleet.arrive(ctx)
}

// startCandidate starts a replica with leader election.
func (s *site) startCandidate(ctx context.Context, program string) error {
	identity := fmt.Sprint("replica-", len(s.replicas))
	r, err := newReplica(s, program, []string{"--leader-elect-identity=" + identity})
	if err != nil {
		return err
	}
	r.identity = identity
	return s.run(ctx, r)
}

func (s *site) run(ctx context.Context, r *replica) error {
	s.mu.Lock()
	s.replicas = append(s.replicas, r)
	s.mu.Unlock()
	return r.run(ctx)
}

// quiet is the time without changes at the end.
const quiet = 2 * time.Second

// lag is the maximum age of nodegate's facts if no fault hides changes.
const lag = 30 * time.Second

// conclude ends all faults, waits for the fleet to recover, and judges the run.
func (s *site) conclude(ctx context.Context) error {
	for _, r := range s.replicas {
		r.proxy.Heal()
	}
	if s.phase.brief {
		s.report.failed(s.fleet.convergeFacts(ctx, "agent"))
	} else {
		s.report.failed(s.fleet.converge(ctx))
	}
	s.report.failed(s.fleet.awaitLeft(ctx))
	if err := s.rest(ctx); err != nil {
		return err
	}
	for _, r := range s.replicas {
		s.report.addReplica(r)
	}
	if err := s.report.count(s); err != nil {
		return err
	}
	return s.judge(ctx)
}

func (s *site) judge(ctx context.Context) error {
	history, err := recording.Read(ctx, s.etcd, s.cluster.AuditLog(), s.since)
	if err != nil {
		return err
	}
	s.report.Verdict = judge.Judge(history, judge.Config{
		Controller: s.installation.Username(), Lag: lag + s.phase.hides, Quiet: quiet, Rewinds: s.phase.rewinds,
	})
	return nil
}

// rest waits until no Node has been written for a while.
func (s *site) rest(ctx context.Context) error {
	rests, err := recording.AwaitQuiet(ctx, s.etcd, quiet+time.Second/2, time.Minute)
	if err == nil && !rests {
		s.report.failed(errors.New("writes of Nodes continue a minute after the recovery"))
	}
	return err
}

func (s *site) close() error {
	var errs []error
	for _, r := range slices.Backward(s.replicas) {
		errs = append(errs, r.stop())
		r.proxy.Close()
	}
	if !s.report.Pass() {
		s.cluster.Keep()
		fmt.Fprintf(s.Progress, "logs are kept in %s\n", s.cluster.Dir())
	}
	return errors.Join(append(errs, s.etcd.Close(), s.cluster.Stop())...)
}
