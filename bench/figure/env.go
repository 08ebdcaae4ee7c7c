// SPDX-License-Identifier: Apache-2.0

// Package figure measures the benchmark's figures, in one file for each figure or group
// of figures with the same turns, and sets up their environment.
package figure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/nodegate/nodegate/bench/driver"
	"github.com/nodegate/nodegate/bench/fixture"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
)

// A Figure is a measurement of the benchmark.
type Figure struct {
	// ID is an identifier such as P1.
	ID    string
	Title string
	// Measure returns the rows and the notes of the result.
	Measure func(context.Context, *Env) (report.Result, error)
}

// All contains the figures in the order of measurement. The fleet hardly ever shrinks in
// this order.
var All = []Figure{
	opening, regression, requests, binding, signals, failover, bursting, servers, ownWork, coldStart, idle, busy, memory, birth, flipping, patching,
}

// Sizes specifies how much is measured.
type Sizes struct {
	// Rounds is the number of rounds of turns. Spare is the time that rounds may take that
	// replace rejected ones, in the whole run.
	Rounds int
	Spare  time.Duration
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
	// Large is the size of a fleet of open nodes. Newcomers is the number of them that
	// are closed and open again in a turn.
	Large, Newcomers int
	// Idle is the duration of one measurement of an idle fleet.
	Idle time.Duration
	// Creations is the number of Nodes that are created in a turn, and ConfigMaps the
	// number of ConfigMaps.
	Creations, ConfigMaps int
	// Patches is the number of PATCHes that are sent in a turn.
	Patches int
	// Gated is the number of nodes with many gates.
	Gated int
	// Reported is the fleet in etcd of which reports are created.
	Reported FleetSize
	// Growth contains the sizes of the fleets that a fake API server simulates and nodes
	// join, in ascending order. Joining is the number of nodes that join.
	Growth  []int
	Joining int
	// Stored is a steady fleet in etcd, and Replayed one that a fake API server
	// simulates. nodegate is started Starts times with each.
	Stored, Replayed FleetSize
	Starts           int
}

// Full and Quick are the sizes of a full and of a quick run.
var (
	Full = Sizes{
		Rounds: 5, Spare: 2 * time.Minute, Paced: 25, Flaps: 60, Fleets: []int{200, 5000},
		Newborn: 200, Bound: 12, Large: 5000, Newcomers: 25, Idle: 12 * time.Second,
		Stored: FleetSize{Nodes: 5_000, Others: 150_000, AtMost: 60}, Replayed: FleetSize{Nodes: 50_000, AtMost: 150}, Starts: 5,
		Creations: 100, ConfigMaps: 50_000, Patches: 100, Gated: 2000,
		Reported: FleetSize{Nodes: 5_000, Others: 85_000}, Growth: []int{200, 5_000, 100_000}, Joining: 330,
	}
	Quick = Sizes{
		Rounds: 1, Spare: 10 * time.Second, Paced: 20, Flaps: 30, Fleets: []int{50, 200},
		Newborn: 50, Bound: 5, Large: 300, Newcomers: 10, Idle: 3 * time.Second,
		Stored: FleetSize{Nodes: 500, Others: 15_000}, Replayed: FleetSize{Nodes: 5_000}, Starts: 1,
		Creations: 20, ConfigMaps: 5_000, Patches: 20, Gated: 400,
		Reported: FleetSize{Nodes: 500, Others: 3_500}, Growth: []int{50, 500}, Joining: 33,
	}
)

// An Env is the environment of the measurements: a control plane with nodegate installed
// but not running, a fleet and an observer.
type Env struct {
	Sizes
	*driver.ControlPlane
	Installation *testbed.Installation
	Fleet        *driver.Fleet
	Observer     *observer.Observer
	Audit        meter.Audit

	progress io.Writer
	began    time.Time

	limitConfig string // path of a kubeconfig
	// Results that several figures have in common.
	bursts []*burst
	paced  []report.Pair
	// referee rejects disturbed rounds.
	referee referee
	// limitCuts is how often the API server has ended a watch of the limit.
	limitCuts atomic.Int64
}

// interrupted counts an interruption of the limit.
func (e *Env) interrupted() { e.limitCuts.Add(1) }

// Cuts returns how often the API server has ended a watch of the limit or the observer.
func (e *Env) Cuts() int { return int(e.limitCuts.Load()) + e.Observer.Interruptions() }

// username is the user name of nodegate and of the limit.
const username = "system:serviceaccount:nodegate-system:nodegate"

// PeerUser is the user name of programs that are measured beside nodegate, which has all
// permissions.
const PeerUser = "bench-peer"

// New sets up an environment. Messages about the progress are written to progress.
func New(ctx context.Context, sizes Sizes, progress io.Writer) (_ *Env, err error) {
	e := &Env{Sizes: sizes, progress: progress, began: time.Now()}
	e.referee = referee{usage: meter.ReadUsage, say: e.Say, spare: sizes.Spare}
	e.ControlPlane, err = driver.StartControlPlane(ctx, testcluster.Options{
		Components:  []testcluster.Component{testcluster.APIServer, testcluster.Scheduler},
		Audit:       true,
		AuditPolicy: meter.AuditPolicy(username, PeerUser),
		Progress:    progress,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	e.Cluster.StopComponent(testcluster.Scheduler) // it runs only while it is measured
	e.Audit = meter.Audit(e.Cluster.AuditLog())
	if err := e.install(ctx); err != nil {
		return nil, err
	}
	if e.Observer, err = observer.Start(ctx, e.Cluster, fixture.Taint); err != nil {
		return nil, err
	}
	e.OnClose(e.Observer.Stop)
	e.referee.cuts = e.Cuts
	e.Fleet, err = e.Driver.NewFleet(ctx)
	return e, err
}

// install installs nodegate and runs it until the API server closes new nodes, which it
// then does without nodegate.
func (e *Env) install(ctx context.Context) error {
	program, err := testbed.BuildProgram(ctx, e.Cluster.Dir())
	if err != nil {
		return err
	}
	if e.Installation, err = testbed.Install(ctx, e.Applier, program, []string{fixture.Taint.Key}); err != nil {
		return err
	}
	if e.Installation.Username() != username {
		return fmt.Errorf("installing nodegate: its user is %s, but the audit log contains %s", e.Installation.Username(), username)
	}
	objects, err := fixture.Objects()
	if err != nil {
		return err
	}
	if err := e.Applier.Apply(ctx, objects...); err != nil {
		return err
	}
	// The limit has nodegate's credentials, so the same admission policies apply.
	account := e.Installation.ServiceAccount
	config, err := e.Cluster.ServiceAccount(ctx, account.Namespace, account.Name)
	if err != nil {
		return err
	}
	e.limitConfig = filepath.Join(e.Cluster.Dir(), "limit.kubeconfig")
	if err := testcluster.WriteKubeconfig(e.limitConfig, config); err != nil {
		return err
	}
	nodegate, err := e.StartNodegate(ctx)
	if err != nil {
		return err
	}
	return errors.Join(testbed.AwaitBirthClosed(ctx, e.Cluster, fixture.Taint), nodegate.Stop())
}

// TakeRounds returns the rounds since the last call, or nil if there were none.
func (e *Env) TakeRounds() *report.Rounds { return e.referee.take() }

// StartNodegate starts nodegate and returns when it is the leader and the gate is Ready.
// The caller must stop it.
func (e *Env) StartNodegate(ctx context.Context, arguments ...string) (*testbed.Controller, error) {
	controller, err := testbed.StartController(ctx, e.Cluster, e.Installation, arguments...)
	if err != nil {
		return nil, err
	}
	err = errors.Join(controller.AwaitReady(ctx), testbed.AwaitGate(ctx, e.Applier, fixture.Daemon))
	if err != nil {
		return nil, errors.Join(err, controller.Stop())
	}
	return controller, nil
}

// SetGate applies the gate with the given fields added to its spec, and removes fields
// that were added before.
func (e *Env) SetGate(ctx context.Context, spec map[string]any) error {
	gate, err := fixture.Gate(spec)
	if err != nil {
		return err
	}
	return e.Applier.Apply(ctx, gate)
}

// Say prints the elapsed time and a message.
func (e *Env) Say(format string, arguments ...any) {
	elapsed := time.Since(e.began).Truncate(time.Second)
	fmt.Fprintf(e.progress, "%3d:%02d  %s\n", int(elapsed.Minutes()), int(elapsed.Seconds())%60, fmt.Sprintf(format, arguments...))
}
