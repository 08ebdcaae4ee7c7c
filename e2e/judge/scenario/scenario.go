// SPDX-License-Identifier: Apache-2.0

// Package scenario runs nodegate on a real control plane so that every rule of the
// judge has something to check, in less than a minute. Nodes are created, daemons fail in
// every way and become ready, nodes reboot, become unreachable and are re-created,
// signals regress under a budget, and other writers change a Node just before
// nodegate's patch of it arrives.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/e2e/judge"
	"github.com/nodegate/nodegate/e2e/judge/recording"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
)

// ClusterOptions returns the options of the cluster that the scenario needs. Its only
// component is the API server, because the scenario acts for all others.
func ClusterOptions(progress io.Writer) testcluster.Options {
	return recording.ClusterOptions(progress, testcluster.APIServer)
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
	e, err := newEnvironment(o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.etcd.Close()) }()
	if err := e.clear(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.clear(context.WithoutCancel(ctx))) }()
	controller, err := e.setUp(ctx)
	if err != nil {
		return nil, err
	}
	defer e.proxy.Close()
	since, err := recording.Now(ctx, e.etcd, o.Cluster.AuditLog())
	if err == nil {
		result, err = e.perform(ctx, since)
	}
	if err := errors.Join(err, controller.Stop()); err != nil {
		return nil, err
	}
	return result, nil
}

// environment is the control plane on which the plays are performed.
type environment struct {
	Options
	admin   client.Client
	applier *testbed.Applier
	etcd    *clientv3.Client
	proxy   *proxy
	user    string // name of nodegate's user
}

func newEnvironment(o Options) (*environment, error) {
	e := &environment{Options: o}
	var err error
	if e.applier, err = testbed.NewApplier(o.Cluster.Admin()); err != nil {
		return nil, err
	}
	if e.admin, err = testbed.NewClient(o.Cluster.Admin()); err != nil {
		return nil, err
	}
	e.etcd, err = recording.Connect(o.Cluster)
	return e, err
}

// setUp installs nodegate and starts it behind the proxy.
func (e *environment) setUp(ctx context.Context) (*testbed.Controller, error) {
	const stamps = "--allowed-stamp-annotations=" + openedAt
	installation, err := testbed.Install(ctx, e.applier, e.Program, allowedTaints(), "--node-conditions", stamps)
	if err != nil {
		return nil, err
	}
	e.user = installation.Username()
	config, err := e.Cluster.ServiceAccount(ctx, installation.ServiceAccount.Namespace, installation.ServiceAccount.Name)
	if err != nil {
		return nil, fmt.Errorf("starting the controller: %w", err)
	}
	if e.proxy, err = newProxy(config); err != nil {
		return nil, err
	}
	controller, err := testbed.StartControllerAs(e.Cluster, installation, e.proxy.config, stamps)
	if err != nil {
		return nil, err
	}
	if err := controller.AwaitReady(ctx); err != nil {
		return nil, errors.Join(err, controller.Stop())
	}
	return controller, nil
}

// perform performs all plays at the same time, and judges the run.
func (e *environment) perform(ctx context.Context, since recording.Position) (*Result, error) {
	if err := e.declare(ctx); err != nil {
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
		if len(e.Only) > 0 && !slices.Contains(e.Only, name) {
			continue
		}
		group.Go(func() {
			if err := e.run(ctx, perform); err != nil {
				mu.Lock()
				defer mu.Unlock()
				result.Stuck = append(result.Stuck, fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	group.Wait()
	patience := e.Patience
	if patience > 0 {
		patience += quiet
	}
	if _, err := recording.AwaitQuiet(ctx, e.etcd, quiet+time.Second/2, patience); err != nil {
		return nil, err
	}
	history, err := recording.Read(ctx, e.etcd, e.Cluster.AuditLog(), since)
	if err != nil {
		return nil, err
	}
	result.Verdict = judge.Judge(history, judge.Config{Controller: e.user, Lag: lag, Quiet: quiet, Operators: []string{operator}})
	return result, nil
}
