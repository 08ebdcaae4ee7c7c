// SPDX-License-Identifier: Apache-2.0

// Package scenario runs nodegate on a real control plane so that every rule of the
// judge has something to check, in half a minute. Nodes are created, daemons fail in
// every way and become ready, nodes reboot, become unreachable and are re-created,
// signals regress under a budget, and other writers change a Node just before
// nodegate's patch of it arrives.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
)

// ClusterOptions returns the options of the cluster that the scenario needs. Its only
// component is the API server, because the scenario acts for all others.
func ClusterOptions(progress io.Writer) testcluster.Options {
	return testcluster.Options{
		Components: []testcluster.Component{testcluster.APIServer},
		ExtraArgs:  map[testcluster.Component][]string{testcluster.APIServer: judge.Keep},
		Audit:      true, AuditPolicy: judge.AuditPolicy, Progress: progress,
	}
}

// Options are the options of a run.
type Options struct {
	// Cluster is a cluster that was started with ClusterOptions. It can be used again:
	// the run removes everything that it creates, except nodegate's installation.
	Cluster *testcluster.Cluster
	// Program is the path of the nodegate program.
	Program string
	// Patience is how long a play waits for an expected change; 0 means as long as
	// anything changes.
	Patience time.Duration
	// Linger is how long a play waits to verify that nodegate does nothing.
	Linger time.Duration
	// Only are the names of the plays that are performed; nil means all.
	Only []string
}

// lag is long, so that a slow machine does not cause violations. Any fact of the
// scenario that forbids something holds for longer than that.
const lag = 30 * time.Second

// quiet is the time without changes at the end.
const quiet = 2 * time.Second

// Result is the result of a run.
type Result struct {
	*judge.Verdict
	// Stuck contains an error for each play that timed out or failed.
	Stuck []error
}

// Run performs the scenario and judges it.
func Run(ctx context.Context, o Options) (result *Result, err error) {
	s, err := newStage(o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.etcd.Close()) }()
	if err := s.clear(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.clear(context.WithoutCancel(ctx))) }()
	controller, err := s.setUp(ctx)
	if err != nil {
		return nil, err
	}
	from, err := s.revision(ctx)
	if err == nil {
		result, err = s.perform(ctx, from)
	}
	if stopErr := controller.Stop(); err == nil {
		err = stopErr
	}
	s.proxy.Close()
	if err != nil {
		return nil, err
	}
	return result, nil
}

// stage is the control plane on which the plays are performed.
type stage struct {
	Options
	admin   client.Client
	scheme  *runtime.Scheme
	applier *testbed.Applier
	etcd    *clientv3.Client
	proxy   *proxy
	user    string // name of nodegate's user
}

func newStage(o Options) (*stage, error) {
	s := &stage{Options: o, scheme: runtime.NewScheme()}
	if err := errors.Join(clientgoscheme.AddToScheme(s.scheme), v1alpha1.AddToScheme(s.scheme)); err != nil {
		return nil, fmt.Errorf("creating a scheme: %w", err)
	}
	var err error
	if s.applier, err = testbed.NewApplier(o.Cluster.Admin()); err != nil {
		return nil, err
	}
	if s.admin, err = client.New(o.Cluster.Admin(), client.Options{Scheme: s.scheme}); err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	if s.etcd, err = judge.Connect(o.Cluster); err != nil {
		return nil, err
	}
	return s, nil
}

// setUp installs nodegate and starts it behind the proxy.
func (s *stage) setUp(ctx context.Context) (*testbed.Controller, error) {
	installation, err := testbed.Install(ctx, s.applier, s.Program, taintKeys())
	if err != nil {
		return nil, err
	}
	s.user = installation.Username()
	config, err := s.Cluster.ServiceAccount(ctx, installation.ServiceAccount.Namespace, installation.ServiceAccount.Name)
	if err != nil {
		return nil, fmt.Errorf("starting the controller: %w", err)
	}
	if s.proxy, err = newProxy(config); err != nil {
		return nil, err
	}
	controller, err := testbed.StartControllerAs(s.Cluster, installation, s.proxy.config)
	if err != nil {
		return nil, err
	}
	if err := controller.AwaitReady(ctx); err != nil {
		return nil, errors.Join(err, controller.Stop())
	}
	return controller, nil
}

// revision returns etcd's current revision.
func (s *stage) revision(ctx context.Context) (int64, error) {
	response, err := s.etcd.Get(ctx, "/")
	if err != nil {
		return 0, fmt.Errorf("reading etcd's revision: %w", err)
	}
	return response.Header.Revision, nil
}

// perform performs all plays at the same time, and judges the run.
func (s *stage) perform(ctx context.Context, from int64) (*Result, error) {
	if err := s.declare(ctx); err != nil {
		return nil, err
	}
	// The API server applies a policy some time after storing it.
	if err := await.Pause(ctx, 2100*time.Millisecond); err != nil {
		return nil, err
	}
	result := &Result{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for name, perform := range plays {
		if len(s.Only) > 0 && !slices.Contains(s.Only, name) {
			continue
		}
		group.Go(func() {
			if err := perform(&play{stage: s, Context: ctx}); err != nil {
				mu.Lock()
				defer mu.Unlock()
				result.Stuck = append(result.Stuck, fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	group.Wait()
	patience := s.Patience
	if patience > 0 {
		patience += quiet
	}
	if _, err := judge.AwaitQuiet(ctx, s.etcd, quiet+time.Second/2, patience); err != nil {
		return nil, err
	}
	log, err := os.Open(s.Cluster.AuditLog())
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	defer log.Close()
	history, err := judge.Read(ctx, s.etcd, log, from)
	if err != nil {
		return nil, err
	}
	result.Verdict = judge.Judge(history, judge.Config{Controller: s.user, Lag: lag, Quiet: quiet, Operators: []string{operator}})
	return result, nil
}
