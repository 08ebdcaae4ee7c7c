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
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
)

const (
	// boundRate is the number of daemons that become ready per second. It is low because
	// the scheduler retries all pending pods whenever a node loses a taint.
	boundRate = 4
	// backoff is the time for which the scheduler does not retry a pod after the first
	// attempt.
	backoff = time.Second
)

var binding = Figure{
	ID: "P11", Title: "Daemon ready → first workload pod bound by the real scheduler",
	Measure: measureBinding,
}

func measureBinding(ctx context.Context, e *Env) (report.Result, error) {
	var r report.Result
	if err := e.Prepare(ctx, e.Bound, nil); err != nil {
		return r, err
	}
	if err := e.Cluster.StartComponent(ctx, testcluster.Scheduler); err != nil {
		return r, err
	}
	defer e.Cluster.StopComponent(testcluster.Scheduler)
	pairs, err := e.Interleave(ctx, Plan{Rounds: e.Rounds, Nodes: e.Bound, Direction: limit.Opens, Short: true}, e.bind)
	r.Rows = []report.Row{
		report.Compare("p50", "ms", pairs, latency, report.Percentile(50), report.TimesLimit(1.2)),
		report.Compare("slowest of a turn", "ms", pairs, latency, report.Slowest, nil),
	}
	r.Notes = []string{
		fmt.Sprintf("%d nodes per turn, %d per second, each with one pod whose node selector selects only it. From the time at which the observer sees the daemon ready to the time at which it sees the pod bound.", e.Bound, boundRate),
		fmt.Sprintf("kube-scheduler has its default configuration. The pods are created %s before the first daemon becomes ready, so the scheduler has tried each of them, and its backoff is over.", 2*backoff),
		limitNote, observerNote,
	}
	return r, err
}

// bind makes daemons ready on nodes, each with a pending pod, and returns the times until
// the pods are bound.
func (e *Env) bind(ctx context.Context, _ *Subject) (_ report.Sample, err error) {
	nodes := e.Fleet.Nodes()[:e.Bound]
	defer func() { err = errors.Join(err, e.Driver.RemoveWorkloads(ctx)) }()
	for _, node := range nodes {
		if err := e.Driver.AddWorkload(ctx, node); err != nil {
			return nil, err
		}
	}
	if err := await.Pause(ctx, 2*backoff); err != nil {
		return nil, err
	}
	if err := e.Fleet.Pace(ctx, nodes, boundRate, true); err != nil {
		return nil, err
	}
	bound, err := e.latencies(ctx, nodes, observer.Ready, observer.Event{State: observer.Bound, Object: driver.WorkloadName})
	return report.Sample{latency: bound}, err
}
