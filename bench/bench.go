// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nodegate/nodegate/cluster"
	"github.com/nodegate/nodegate/internal/testbed"
)

//go:embed objects.yaml
var objectsYAML []byte

const (
	namespace = "bench"
	daemon    = "agent"

	// damping is the gate's closeAfterSeconds in the last turn.
	damping = 2 * time.Second

	// settling is how long a controller that has just begun to lead may take to
	// have seen the whole fleet, before which it closes nothing under a budget. A
	// small fleet would be through by then, and the start be measured.
	settling = 3 * time.Second

	// patience is how long a whole fleet may take to follow.
	patience = time.Minute
)

// taint is the gate's.
var taint = corev1.Taint{Key: "bench.nodegate.dev/agent-not-ready", Effect: corev1.TaintEffectNoSchedule}

// A bench is one run.
type bench struct {
	*options
	cluster  *cluster.Cluster
	applier  *testbed.Applier
	nodegate *testbed.Installation
	limit    string // the kubeconfig of the limit: nodegate's own rights
	fleet    *fleet
	observer *observer
}

// measure runs the benchmark and ends all that it started.
func measure(ctx context.Context, o *options) (err error) {
	b := &bench{options: o}
	clusterOptions := cluster.Options{Components: []cluster.Component{cluster.APIServer}, Progress: os.Stderr}
	if b.cluster, err = cluster.Start(ctx, clusterOptions); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	if err := b.setUp(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.observer.stop()) }()
	r := newResults(o)
	for round := range o.rounds {
		fmt.Printf("round %d of %d\n", round+1, o.rounds)
		if err := b.round(ctx, r); err != nil {
			return err
		}
	}
	if err := b.damped(ctx, r); err != nil {
		return err
	}
	r.finish()
	r.table(os.Stdout)
	if o.out == "" {
		return nil
	}
	return r.write(o.out)
}

// setUp installs nodegate and has it take all nodes over once, so that each has
// its record.
func (b *bench) setUp(ctx context.Context) (err error) {
	program, err := testbed.BuildProgram(ctx, b.cluster.Dir())
	if err != nil {
		return err
	}
	if b.applier, err = testbed.NewApplier(b.cluster.Admin()); err != nil {
		return err
	}
	if b.nodegate, err = testbed.Install(ctx, b.applier, program, []string{taint.Key}); err != nil {
		return err
	}
	objects, err := testbed.ParseObjects(objectsYAML)
	if err != nil {
		return fmt.Errorf("reading the benchmark's objects: %w", err)
	}
	if err := b.applier.Apply(ctx, objects...); err != nil {
		return err
	}
	if b.limit, err = b.limitConfig(ctx); err != nil {
		return err
	}
	if b.observer, err = startObserver(ctx, b.cluster); err != nil {
		return err
	}
	controller, err := b.startNodegate(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, controller.Stop()) }()
	if err := testbed.AwaitBirthClosed(ctx, b.cluster, taint); err != nil {
		return err
	}
	client, err := clientOf(b.cluster.Admin())
	if err != nil {
		return err
	}
	b.fleet, err = newFleet(ctx, client, b.nodes)
	return err
}

// limitConfig gives the limit the same rights as nodegate has, so that the same
// admission policies look at what it writes.
func (b *bench) limitConfig(ctx context.Context) (string, error) {
	config, err := b.cluster.ServiceAccount(ctx, b.nodegate.ServiceAccount.Namespace, b.nodegate.ServiceAccount.Name)
	if err != nil {
		return "", err
	}
	path := b.cluster.Dir() + "/limit.kubeconfig"
	return path, cluster.WriteKubeconfig(path, config)
}

func (b *bench) startNodegate(ctx context.Context) (*testbed.Controller, error) {
	controller, err := testbed.StartController(ctx, b.cluster, b.nodegate)
	if err != nil {
		return nil, err
	}
	err = errors.Join(controller.AwaitReady(ctx), testbed.AwaitGate(ctx, b.applier, daemon))
	if err != nil {
		return nil, errors.Join(err, controller.Stop())
	}
	select {
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), controller.Stop())
	case <-time.After(settling):
		return controller, nil
	}
}

// round measures nodegate and the limit in turns, so that what changes on the
// machine meanwhile concerns both.
func (b *bench) round(ctx context.Context, r *results) error {
	for _, turn := range []func(context.Context, *results) error{b.nodegateTurn, b.limitTurn, b.limitTurn, b.nodegateTurn} {
		if err := turn(ctx, r); err != nil {
			return err
		}
	}
	r.endRound()
	return nil
}

func (b *bench) nodegateTurn(ctx context.Context, r *results) (err error) {
	controller, err := b.startNodegate(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, controller.Stop()) }()
	return b.flips(ctx, func(figure string, latencies []time.Duration) { r.add(figure, ofNodegate, latencies) })
}

func (b *bench) limitTurn(ctx context.Context, r *results) (err error) {
	limit, err := startChild(ctx, b.cluster, limitProgram, b.limit)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, limit.stop(limit.drain)) }()
	return b.flips(ctx, func(figure string, latencies []time.Duration) { r.add(figure, ofLimit, latencies) })
}

// damped measures closing again where the gate waits first, which the limit does
// not do.
func (b *bench) damped(ctx context.Context, r *results) error {
	objects, err := testbed.ParseObjects(objectsYAML)
	if err != nil {
		return fmt.Errorf("reading the benchmark's objects: %w", err)
	}
	gate := objects[len(objects)-1]
	if err := unstructured.SetNestedField(gate.Object, int64(damping/time.Second), "spec", "timing", "closeAfterSeconds"); err != nil {
		return fmt.Errorf("changing the gate: %w", err)
	}
	if err := b.applier.Apply(ctx, gate); err != nil {
		return err
	}
	controller, err := b.startNodegate(ctx)
	if err != nil {
		return err
	}
	err = b.flips(ctx, func(figure string, latencies []time.Duration) {
		if figure == reclose {
			r.damped = quantilesOf(latencies)
		}
	})
	return errors.Join(err, controller.Stop())
}

// flips has the daemons become ready on all nodes, and stop being so, and tells
// how long each node took to follow. All nodes are closed before and after.
func (b *bench) flips(ctx context.Context, tell func(string, []time.Duration)) error {
	for _, f := range figures {
		b.observer.reset()
		sent, err := b.fleet.flip(ctx, b.rate, f.ready)
		if err != nil {
			return err
		}
		seen, err := b.observer.await(ctx, len(sent), !f.ready)
		if err != nil {
			return err
		}
		latencies := make([]time.Duration, 0, len(sent))
		for node, at := range sent {
			latencies = append(latencies, seen[node].Sub(at))
		}
		tell(f.id, latencies)
	}
	return nil
}
