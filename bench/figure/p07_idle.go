// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
)

const (
	// A kubelet reports a node of which nothing is new so often, by default
	// (nodeStatusReportFrequency); eager ones do so every ten seconds
	// (nodeStatusUpdateFrequency, if each update were a report).
	kubeletReports = 5 * time.Minute
	eagerReports   = 10 * time.Second
)

var idle = Figure{
	ID: "P7-idle", Title: "nodegate's CPU while nothing happens but heartbeats",
	Measure:  measureIdle,
	Profiled: profiledIdle,
}

// profiledIdle is the turn in which nodes report most. It begins with the one node
// that is still closed, so that the fleet is as it was before.
func profiledIdle(e *Env) Profiled {
	return Profiled{Name: "idle", For: e.eager(), Nodes: 1, Turn: func(ctx context.Context, e *Env, s *Subject) error {
		if err := e.Fleet.ReportOne(ctx, e.Fleet.Nodes()[0], true); err != nil {
			return err
		}
		if err := e.Observer.AwaitSeen(ctx, observer.Open, 1); err != nil {
			return err
		}
		_, _, err := e.idle(ctx, s.PID, eagerReports, e.eager())
		return err
	}}
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
		what string
		each time.Duration
		long time.Duration
		goal *report.Goal
	}{
		{"idle, each node reporting every 5 minutes", kubeletReports, e.Idle, report.AtMost(0.5)},
		{"idle, each node reporting every 10 seconds", eagerReports, e.eager(), nil},
	} {
		share, note, err := e.idle(ctx, nodegate.PID(), c.each, c.long)
		if err != nil {
			return r, err
		}
		r.Rows = append(r.Rows, report.Alone(c.what, "% of a core", []float64{share}, c.goal))
		r.Notes = append(r.Notes, note)
	}
	r.Notes = append(r.Notes, "The CPU time is the operating system's (user and system), and includes whatever else nodegate does by itself: its lease, its probes of births.")
	return r, nil
}

// eager is for how long eager kubelets report: there is much to be measured.
func (e *Env) eager() time.Duration { return e.Idle / 4 }

// idle returns which share of a core, in percent, a process uses in some time in which
// each node of the fleet is reported once in an interval, and a sentence about that.
func (e *Env) idle(ctx context.Context, pid int, each, long time.Duration) (share float64, note string, err error) {
	heart, err := e.heartOfOthers(ctx, 0)
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
	beating, stop := context.WithTimeout(ctx, long)
	defer stop()
	nodes := len(e.Fleet.Nodes())
	reports, err := heart.Beat(beating, float64(nodes)/each.Seconds())
	if err != nil {
		return 0, "", err
	}
	after, err := meter.CPU(pid)
	if err != nil {
		return 0, "", err
	}
	asked, err := e.Audit.Since(mark)
	if err != nil {
		return 0, "", err
	}
	note = fmt.Sprintf("%d nodes, each reported every %s: %s; nodegate used %s, and asked for %s.", nodes, each, reports, after-before, tellRequests(asked))
	return 100 * (after - before).Seconds() / reports.Took.Seconds(), note, nil
}
