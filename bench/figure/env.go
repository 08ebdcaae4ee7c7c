// SPDX-License-Identifier: Apache-2.0

// Package figure has one file for each figure that the benchmark measures, and
// what all of them stand on.
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
	"github.com/nodegate/nodegate/cluster"
	"github.com/nodegate/nodegate/internal/testbed"
)

// A Figure is something that is measured.
type Figure struct {
	// ID is of the form P1.
	ID    string
	Title string
	// Measure adds nothing to the result but rows and notes.
	Measure func(context.Context, *Env) (report.Result, error)
	// Profiled is what to look into where a goal is not reached; nil for nothing.
	Profiled func(*Env) Profiled
}

// Sizes say how much is measured.
type Sizes struct {
	// Rounds is how often nodegate, limit, limit, nodegate take turns.
	Rounds int
	// Paced is how many nodes change one after the other in a turn.
	Paced int
	// Flaps is how often a daemon changes that flaps.
	Flaps int
	// Fleets are the sizes of those that change at once, from the smallest.
	Fleets []int
	// Newborn is how many nodes are born while kubelets report.
	Newborn int
	// Bound is how many pods are bound in a turn.
	Bound int
	// Large is the size of a fleet that has long been open, in which Newcomers are
	// opened in a turn.
	Large, Newcomers int
	// Idle is for how long it is measured what next to nothing costs.
	Idle time.Duration
	// Creations is how many Nodes are created in a turn, and ConfigMaps how many
	// there are.
	Creations, ConfigMaps int
	// Gated is how many nodes there are under a hundred gates.
	Gated int
	// Stored is the fleet at rest that is put into etcd, and Replayed the one that a
	// stand-in replays. Starts is how often nodegate is started with each.
	Stored, Replayed Herd
	Starts           int
}

// Full and Quick are the sizes of the two ways to run.
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

// An Env is what figures are measured in: a control plane with nodegate installed
// and not running, a driver, a fleet and an observer.
type Env struct {
	Sizes
	Cluster      *cluster.Cluster
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

// Options say where a benchmark runs.
type Options struct {
	Sizes
	// Progress is told what is being built and started.
	Progress io.Writer
}

// quota is how much etcd may hold, in bytes, before it refuses to write. A fleet
// that is reset again and again writes more than the default of 2 GiB holds.
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

// username is what the API server calls nodegate, and so the limit.
const username = "system:serviceaccount:nodegate-system:nodegate"

func (e *Env) startCluster(ctx context.Context, progress io.Writer) (err error) {
	e.Cluster, err = cluster.Start(ctx, cluster.Options{
		Components:  []cluster.Component{cluster.APIServer, cluster.Scheduler},
		ExtraArgs:   map[cluster.Component][]string{cluster.Etcd: {fmt.Sprintf("--quota-backend-bytes=%d", quota)}},
		Audit:       true,
		AuditPolicy: meter.AuditPolicy(username),
		Progress:    progress,
	})
	if err != nil {
		return err
	}
	e.onClose(e.Cluster.Stop)
	e.Cluster.StopComponent(cluster.Scheduler) // it runs where it is measured only
	e.Audit = meter.Audit{Path: e.Cluster.AuditLog()}
	return nil
}

// install installs nodegate and lets it run until nodes are closed at birth,
// which they are from then on without it.
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

// writeLimitConfig gives the limit the same rights as nodegate has, so that the
// same admission policies look at what it writes.
func (e *Env) writeLimitConfig(ctx context.Context) error {
	account := e.Installation.ServiceAccount
	config, err := e.Cluster.ServiceAccount(ctx, account.Namespace, account.Name)
	if err != nil {
		return err
	}
	e.limit = filepath.Join(e.Cluster.Dir(), "limit.kubeconfig")
	return cluster.WriteKubeconfig(e.limit, config)
}

// StartNodegate starts nodegate and returns when it leads and has looked at the
// gate. Whoever calls it stops it.
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

// SetGate applies the gate with these fields added to its spec, and without those
// that were added before. nodegate should not be running.
func (e *Env) SetGate(ctx context.Context, spec map[string]any) error {
	gate, err := scene.Gate(spec)
	if err != nil {
		return err
	}
	return e.Applier.Apply(ctx, gate)
}

// Say tells whoever waits what is going on, and for how long it has been.
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
