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
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
)

const (
	// seldom is the default interval at which kubelets report an unchanged status
	// (nodeStatusReportFrequency).
	seldom = 5 * time.Minute
	// often is the interval at which they would report if each update of the status
	// (nodeStatusUpdateFrequency) changed it.
	often = 10 * time.Second
)

var idle = Figure{
	ID: "P7-idle", Title: "nodegate's CPU while nodes only send heartbeats",
	Measure: measureIdle,
}

func measureIdle(ctx context.Context, e *Env) (r report.Result, err error) {
	if err := e.openFleet(ctx, e.Large); err != nil {
		return r, err
	}
	nodegate, err := e.StartNodegate(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, nodegate.Stop()) }()
	for _, c := range []struct {
		what           string
		interval, long time.Duration
		goal           *report.Goal
	}{
		{"idle, each node reporting every 5 minutes", seldom, e.Idle, report.AtMost(0.5)},
		{"idle, each node reporting every 10 seconds", often, e.Idle / 4, nil},
	} {
		share, note, err := e.idle(ctx, nodegate.PID(), c.interval, c.long)
		if err != nil {
			return r, err
		}
		r.Rows = append(r.Rows, report.Alone(c.what, "% of a core", c.goal, share))
		r.Notes = append(r.Notes, note)
	}
	r.Notes = append(r.Notes, "CPU time (user and system) includes periodic work of nodegate, such as the renewal of its Lease and the probes of the birth policy.")
	return r, nil
}

// idle lets each node of the fleet report once in every interval. It returns the share of
// a core, in percent, that a process uses in the meantime, and a note.
func (e *Env) idle(ctx context.Context, pid int, interval, long time.Duration) (share float64, note string, err error) {
	heartbeats, err := e.heartbeatsFrom(ctx, 0)
	if err != nil {
		return 0, "", err
	}
	if err := meter.AwaitQuiet(ctx, pid); err != nil {
		return 0, "", err
	}
	mark, err := e.Audit.Mark()
	if err != nil {
		return 0, "", err
	}
	before, err := meter.CPU(pid)
	if err != nil {
		return 0, "", err
	}
	reporting, stop := context.WithTimeout(ctx, long)
	defer stop()
	nodes := len(e.Fleet.Nodes())
	reports, err := heartbeats.Send(reporting, float64(nodes)/interval.Seconds())
	if err != nil {
		return 0, "", err
	}
	after, err := meter.CPU(pid)
	if err != nil {
		return 0, "", err
	}
	sent, err := e.Audit.Since(mark)
	note = fmt.Sprintf("%d nodes, each reporting every %s (%s). nodegate used %s, and sent %s.", nodes, interval, reports, after-before, listRequests(sent))
	return 100 * (after - before).Seconds() / reports.Took.Seconds(), note, err
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
