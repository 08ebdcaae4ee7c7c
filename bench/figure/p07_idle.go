// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/bench/driver"
	"github.com/nodegate/nodegate/bench/fixture"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/internal/testbed"
)

const (
	// Seldom is the default interval at which kubelets report an unchanged status
	// (nodeStatusReportFrequency).
	Seldom = 5 * time.Minute
	// often is the interval at which they would report if each update of the status
	// (nodeStatusUpdateFrequency) changed it.
	often = 10 * time.Second
)

var idle = Figure{
	ID: "P7-idle", Title: "nodegate's CPU while nodes only send heartbeats",
	Measure: measureIdle,
}

// Quantities of an idle fleet.
const (
	idleShare     = "share"     // % of a core
	idleAllocated = "allocated" // KiB per second
)

// idleGoal is the goal for the CPU time of an idle fleet, in % of a core.
const idleGoal = 0.4

func measureIdle(ctx context.Context, e *Env) (r report.Result, err error) {
	if err := e.openFleet(ctx, e.Large); err != nil {
		return r, err
	}
	nodegate, err := e.StartNodegate(ctx, openMetrics)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, nodegate.Stop()) }()
	for _, c := range []struct {
		often          string
		interval, long time.Duration
		goal           *report.Goal
	}{
		{"each node reporting every 5 minutes", Seldom, e.Idle, report.AtMost(idleGoal)},
		{"each node reporting every 10 seconds", often, e.Idle / 4, nil},
	} {
		note := ""
		pairs, err := e.referee.alone(1, func(int) (sample report.Sample, err error) {
			sample, note, err = e.idle(ctx, nodegate, c.interval, c.long)
			return sample, err
		})
		if err != nil {
			return r, err
		}
		r.Rows = append(r.Rows,
			report.Once("idle, "+c.often, "% of a core", pairs, idleShare, c.goal),
			report.Once("allocated, "+c.often, "KiB per s", pairs, idleAllocated, nil))
		r.Notes = append(r.Notes, note)
	}
	r.Notes = append(r.Notes, "CPU time (user and system) includes periodic work of nodegate, such as the renewal of its Lease and the probes of the birth policy.")
	return r, nil
}

// idle lets each node of the fleet report once in every interval. It returns what nodegate
// uses in the meantime, and a note.
func (e *Env) idle(ctx context.Context, nodegate *testbed.Controller, interval, long time.Duration) (_ report.Sample, note string, err error) {
	heartbeats, err := e.heartbeatsFrom(ctx, 0)
	if err != nil {
		return nil, "", err
	}
	mark, err := e.Audit.Mark()
	if err != nil {
		return nil, "", err
	}
	var reports driver.Speed
	s := &Subject{Name: nodegateName, PID: nodegate.PID(), Metrics: nodegate.Metrics}
	used, err := e.count(ctx, s, func() error {
		reporting, stop := context.WithTimeout(ctx, long)
		defer stop()
		reports, err = heartbeats.Send(reporting, float64(len(e.Fleet.Nodes()))/interval.Seconds())
		return err
	})
	if err != nil {
		return nil, "", err
	}
	sent, err := e.Audit.Since(mark)
	note = fmt.Sprintf("%d nodes, each reporting every %s (%s). nodegate used %.0f ms, and sent %s.", len(e.Fleet.Nodes()), interval, reports, used[ownCPU], listRequests(sent))
	took := reports.Took.Seconds()
	return report.Sample{idleShare: {used[ownCPU] / 10 / took}, idleAllocated: {used[ownAllocated] / took}}, note, err
}

// openFleet grows the fleet to at least the given size, and makes nodegate open all nodes.
// nodegate is not running before and afterwards.
func (e *Env) openFleet(ctx context.Context, size int) (err error) {
	if err := e.prepare(ctx, size, nil); err != nil {
		return err
	}
	nodes, err := e.Driver.Nodes(ctx)
	if err != nil {
		return err
	}
	opened := 0
	for i := range nodes {
		// A node that the limit opened still has the record from its creation.
		record := nodes[i].Annotations[v1alpha1.RecordAnnotationPrefix+fixture.Daemon]
		if !fixture.Tainted(&nodes[i]) && strings.Contains(record, `"state":"`+v1alpha1.StateOpen+`"`) {
			opened++
		}
	}
	all := len(e.Fleet.Nodes())
	if opened == all {
		return nil
	}
	e.Say("  opening %d nodes", all)
	if err := e.Reset(ctx, nil, all); err != nil {
		return err
	}
	if _, err := e.Fleet.Report(ctx, all, true); err != nil {
		return err
	}
	nodegate, err := e.StartNodegate(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nodegate.Stop()) }()
	if err := e.Observer.Await(ctx, observer.Open, all); err != nil {
		return fmt.Errorf("opening the fleet: %w", err)
	}
	return nil
}

// heartbeatsFrom returns heartbeats of the fleet's nodes without the first ones.
func (e *Env) heartbeatsFrom(ctx context.Context, first int) (*driver.Heartbeats, error) {
	skipped := make(map[string]bool, first)
	for _, name := range e.Fleet.Nodes()[:first] {
		skipped[name] = true
	}
	return e.Driver.NewHeartbeats(ctx, func(n *corev1.Node) bool { return !skipped[n.Name] })
}
