// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nodegate/nodegate/bench/driver"
	"github.com/nodegate/nodegate/bench/limit"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/bench/scene"
	"github.com/nodegate/nodegate/testcluster"
)

const (
	// boundRate is how many nodes become fit each second: the scheduler looks at
	// every pod that waits again whenever a node loses a taint.
	boundRate = 4
	// backoff is how long the scheduler leaves a pod alone after it has tried once.
	backoff = time.Second
)

var binding = Figure{
	ID: "P11", Title: "Daemon ready → first workload pod bound by the real scheduler",
	Measure:  measureBinding,
	Profiled: profiledOpening,
}

func measureBinding(ctx context.Context, e *Env) (report.Result, error) {
	var r report.Result
	if err := e.prepare(ctx, e.Bound, nil); err != nil {
		return r, err
	}
	if err := e.Cluster.StartComponent(ctx, testcluster.Scheduler); err != nil {
		return r, err
	}
	defer e.Cluster.StopComponent(testcluster.Scheduler)
	rounds, err := e.Interleave(ctx, Plan{Rounds: e.Rounds, Nodes: e.Bound, Direction: limit.Opens, Short: true}, e.bindings)
	if err != nil {
		return r, err
	}
	r.Rows = []report.Row{
		report.Compare("p50", "ms", rounds, latency, report.Percentile(50), report.TimesLimit(1.2)),
		report.Compare("p99", "ms", rounds, latency, report.Percentile(99), nil),
	}
	r.Notes = []string{
		fmt.Sprintf("%d nodes a turn, %d a second, each with one pod whose node selector names it. From when the observer sees the daemon ready to when it sees that pod bound.", e.Bound, boundRate),
		fmt.Sprintf("kube-scheduler is as it comes. The pods are created %s before the first node becomes fit: each has been tried, and its backoff is over.", 2*backoff),
	}
	return r, nil
}

// bindings makes nodes fit, each with a waiting pod, and returns the times from
// the daemon's readiness until the pod was bound.
func (e *Env) bindings(ctx context.Context, _ *Subject) (_ report.Sample, err error) {
	nodes := e.Fleet.Nodes()[:e.Bound]
	defer func() { err = errors.Join(err, e.removeWorkloads(ctx)) }()
	for _, node := range nodes {
		if err := e.Driver.AddWorkload(ctx, node); err != nil {
			return nil, err
		}
	}
	if err := wait(ctx, 2*backoff); err != nil {
		return nil, err
	}
	if err := e.Fleet.Pace(ctx, nodes, boundRate, true); err != nil {
		return nil, err
	}
	if err := e.Observer.AwaitSeen(ctx, observer.Bound, len(nodes)); err != nil {
		return nil, err
	}
	ready, bound := e.Observer.Seen(observer.Ready), e.Observer.Seen(observer.Bound)
	sample := report.Sample{}
	for _, node := range nodes {
		from, to := ready[scene.PodName(node)], bound[driver.WorkloadName(node)]
		if from.IsZero() || to.IsZero() {
			return nil, fmt.Errorf("measuring bindings: the daemon of %s was not seen ready, or its pod not bound", node)
		}
		sample.Add(latency, milliseconds(to.Sub(from)))
	}
	return sample, nil
}

// removeWorkloads removes the pods that waited, and returns when they are gone.
func (e *Env) removeWorkloads(ctx context.Context) error {
	if err := e.Driver.RemoveWorkloads(ctx); err != nil {
		return err
	}
	return e.Observer.Await(ctx, observer.Bound, len(e.Fleet.Nodes()))
}
