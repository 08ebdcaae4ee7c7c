// SPDX-License-Identifier: Apache-2.0

// Package figure has one file for each figure that the benchmark measures, and
// their common environment.
package figure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/nodegate/nodegate/bench/driver"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/bench/scene"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
)

// A Figure is a measurement of the benchmark.
type Figure struct {
	// ID is an identifier such as P1.
	ID    string
	Title string
	// Measure adds only rows and notes to the result.
	Measure func(context.Context, *Env) (report.Result, error)
	// Profiled is the operation to profile if a goal is not reached; nil for
	// none.
	Profiled func(*Env) Profiled
}

// Sizes specifies how much is measured.
type Sizes struct {
	// Rounds is how often nodegate, limit, limit, nodegate take turns.
	Rounds int
	// Paced is the number of nodes that change one after the other in a turn.
	Paced int
	// Flaps is the number of changes of a flapping daemon.
	Flaps int
	// Fleets are the sizes of the fleets that change at once, in ascending order.
	Fleets []int
	// Newborn is the number of nodes that are created while kubelets report.
	Newborn int
	// Bound is the number of pods that are bound in a turn.
	Bound int
	// Large is the size of a fleet that has long been open, in which Newcomers are
	// opened in a turn.
	Large, Newcomers int
	// Idle is the duration for which the cost of an almost idle fleet is
	// measured.
	Idle time.Duration
	// Creations is how many Nodes are created in a turn, and ConfigMaps how many
	// there are.
	Creations, ConfigMaps int
	// Gated is the number of nodes with a hundred gates.
	Gated int
	// Stored is the idle fleet that is stored in etcd, and Replayed the one that a
	// stand-in replays. Starts is how often nodegate is started with each.
	Stored, Replayed Herd
	Starts           int
}

// Full and Quick are the sizes of a full and of a quick run.
var (
	Full = Sizes{
		Rounds: 5, Paced: 40, Flaps: 60, Fleets: []int{200, 1000, 5000},
		Newborn: 200, Bound: 16, Large: 5000, Newcomers: 25, Idle: 32 * time.Second,
		Stored: Herd{Nodes: 5_000, Others: 150_000, AtMost: 60}, Replayed: Herd{Nodes: 50_000, AtMost: 150}, Starts: 2,
		Creations: 100, ConfigMaps: 50_000, Gated: 5000,
	}
	Quick = Sizes{
		Rounds: 1, Paced: 20, Flaps: 30, Fleets: []int{50, 200},
		Newborn: 50, Bound: 5, Large: 300, Newcomers: 10, Idle: 3 * time.Second,
		Stored: Herd{Nodes: 500, Others: 15_000}, Replayed: Herd{Nodes: 5_000}, Starts: 1,
		Creations: 20, ConfigMaps: 5_000, Gated: 200,
	}
)

// An Env is the environment of a measurement: a control plane with nodegate
// installed but not running, a driver, a fleet and an observer.
type Env struct {
	Sizes
	Cluster      *testcluster.Cluster
	Applier      *testbed.Applier
	Installation *testbed.Installation
	Driver       *driver.Driver
	Fleet        *driver.Fleet
	Observer     *observer.Observer
	Audit        meter.Audit

	progress io.Writer
	began    time.Time // when Say counts from

	limit  string   // the limit's kubeconfig
	bursts []*burst // once they have been measured
	paced  []report.Round
	closed []func() error

	profiles []string // the names of those that have been taken
}

// Options specifies where a benchmark runs.
type Options struct {
	Sizes
	// Progress receives messages about what is being built and started.
	Progress io.Writer
}

// quota is etcd's storage quota in bytes. The writes of a fleet that is reset
// repeatedly exceed the default of 2 GiB.
const quota = 8 << 30

// New sets an Env up, and leaves nothing behind if it fails.
func New(ctx context.Context, o Options) (_ *Env, err error) {
	e := &Env{Sizes: o.Sizes, progress: o.Progress, began: time.Now()}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	if err := e.startCluster(ctx, o.Progress); err != nil {
		return nil, err
	}
	if err := e.install(ctx); err != nil {
		return nil, err
	}
	if e.Observer, err = observer.Start(ctx, e.Cluster); err != nil {
		return nil, err
	}
	e.onClose(e.Observer.Stop)
	if e.Driver, err = driver.New(ctx, e.Cluster); err != nil {
		return nil, err
	}
	e.onClose(e.Driver.Close)
	e.Fleet, err = e.Driver.NewFleet(ctx)
	return e, err
}

// username is the user name of nodegate, and of the limit, in the API server.
const username = "system:serviceaccount:nodegate-system:nodegate"

func (e *Env) startCluster(ctx context.Context, progress io.Writer) (err error) {
	e.Cluster, err = testcluster.Start(ctx, testcluster.Options{
		Components:  []testcluster.Component{testcluster.APIServer, testcluster.Scheduler},
		ExtraArgs:   map[testcluster.Component][]string{testcluster.Etcd: {fmt.Sprintf("--quota-backend-bytes=%d", quota)}},
		Audit:       true,
		AuditPolicy: meter.AuditPolicy(username),
		Progress:    progress,
	})
	if err != nil {
		return err
	}
	e.onClose(e.Cluster.Stop)
	e.Cluster.StopComponent(testcluster.Scheduler) // it runs where it is measured only
	e.Audit = meter.Audit{Path: e.Cluster.AuditLog()}
	return nil
}

// install installs nodegate and runs it until nodes are closed at birth. From
// then on, they are closed without it.
func (e *Env) install(ctx context.Context) (err error) {
	program, err := testbed.BuildProgram(ctx, e.Cluster.Dir())
	if err != nil {
		return err
	}
	if e.Applier, err = testbed.NewApplier(e.Cluster.Admin()); err != nil {
		return err
	}
	if e.Installation, err = testbed.Install(ctx, e.Applier, program, []string{scene.Taint.Key}); err != nil {
		return err
	}
	if e.Installation.Username() != username {
		return fmt.Errorf("installing nodegate: it runs as %s; the audit log is kept for %s", e.Installation.Username(), username)
	}
	objects, err := scene.Objects()
	if err != nil {
		return err
	}
	if err := e.Applier.Apply(ctx, objects...); err != nil {
		return err
	}
	if err := e.writeLimitConfig(ctx); err != nil {
		return err
	}
	nodegate, err := e.StartNodegate(ctx)
	if err != nil {
		return err
	}
	return errors.Join(testbed.AwaitBirthClosed(ctx, e.Cluster, scene.Taint), nodegate.Stop())
}

// writeLimitConfig gives the limit nodegate's credentials, so that the same
// admission policies apply to its writes.
func (e *Env) writeLimitConfig(ctx context.Context) error {
	account := e.Installation.ServiceAccount
	config, err := e.Cluster.ServiceAccount(ctx, account.Namespace, account.Name)
	if err != nil {
		return err
	}
	e.limit = filepath.Join(e.Cluster.Dir(), "limit.kubeconfig")
	return testcluster.WriteKubeconfig(e.limit, config)
}

// StartNodegate starts nodegate and returns when it leads and has observed the
// gate. The caller must stop it.
func (e *Env) StartNodegate(ctx context.Context, arguments ...string) (*testbed.Controller, error) {
	controller, err := testbed.StartController(ctx, e.Cluster, e.Installation, arguments...)
	if err != nil {
		return nil, err
	}
	err = errors.Join(controller.AwaitReady(ctx), testbed.AwaitGate(ctx, e.Applier, scene.Daemon))
	if err != nil {
		return nil, errors.Join(err, controller.Stop())
	}
	return controller, nil
}

// SetGate applies the gate with these fields added to its spec, and removes those
// that were added before. nodegate should not be running.
func (e *Env) SetGate(ctx context.Context, spec map[string]any) error {
	gate, err := scene.Gate(spec)
	if err != nil {
		return err
	}
	return e.Applier.Apply(ctx, gate)
}

// Say prints the current step and the elapsed time.
func (e *Env) Say(format string, arguments ...any) {
	since := time.Since(e.began).Truncate(time.Second)
	fmt.Fprintf(e.progress, "%3d:%02d  %s\n", int(since.Minutes()), int(since.Seconds())%60, fmt.Sprintf(format, arguments...))
}

func (e *Env) onClose(f func() error) { e.closed = append(e.closed, f) }

// Close ends everything, in the reverse order.
func (e *Env) Close() error {
	var errs []error
	for i := len(e.closed) - 1; i >= 0; i-- {
		errs = append(errs, e.closed[i]())
	}
	e.closed = nil
	return errors.Join(errs...)
}
