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
	"github.com/nodegate/nodegate/bench/limit"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
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
	idleCPU       = "cpu"       // ms
	idleTime      = "time"      // seconds
	idleAllocated = "allocated" // KiB per second
	idlePerReport = "report"    // ms of CPU time
)

// ownGoal is the goal for nodegate's CPU time in relation to the limit's. A goal in seconds
// would say more about the machine: how long a system call takes, or waking an idle process.
const ownGoal = 1.5

// An idling is how often the nodes of an idle fleet report, and for how long that is measured
// in each round.
type idling struct {
	what           string
	interval, long time.Duration
	goal           *report.Goal
}

func measureIdle(ctx context.Context, e *Env) (r report.Result, err error) {
	if err := e.openFleet(ctx, e.Large); err != nil {
		return r, err
	}
	nodegate, err := e.StartNodegate(ctx, openMetrics)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, nodegate.Stop()) }()
	watching, err := limit.Start(ctx, e.Cluster, e.limitConfig, limit.Watches, e.interrupted)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, watching.Stop()) }()
	a := &Subject{Name: nodegateName, PID: nodegate.PID(), Metrics: nodegate.Metrics}
	b := &Subject{Name: limitName, PID: watching.PID(), Metrics: watching.Metrics}
	// The gate is Ready since before, but nodegate still evaluates all nodes once.
	if err := errors.Join(e.AwaitQuiet(ctx, a), e.AwaitQuiet(ctx, b)); err != nil {
		return r, err
	}
	for _, c := range []idling{
		{"each node reporting every 5 minutes", Seldom, e.Idle, report.TimesLimit(ownGoal)},
		{"each node reporting every 10 seconds", often, e.Idle / 3, nil},
	} {
		rows, note, err := e.idleRows(ctx, a, b, &c)
		if err != nil {
			return r, err
		}
		r.Rows, r.Notes = append(r.Rows, rows...), append(r.Notes, note)
	}
	r.Notes = append(r.Notes,
		"In this figure, the limit writes nothing: it decodes what it receives, and drops it. Both run at the same time.",
		"CPU time (user and system) includes periodic work of nodegate, such as the renewal of its Lease. The probes of policies, which are sent once a minute, are in few of the times. All times together include them if they are at least a minute.")
	return r, nil
}

func (e *Env) idleRows(ctx context.Context, nodegate, watching *Subject, c *idling) (rows []report.Row, note string, err error) {
	heartbeats, err := e.heartbeatsFrom(ctx, 0)
	if err != nil {
		return nil, "", err
	}
	mark, err := e.Audit.Mark()
	if err != nil {
		return nil, "", err
	}
	var slowest driver.Speed
	pairs, err := e.referee.pairs(e.Rounds, func(int) (pairs []report.Pair, err error) {
		err = e.referee.turn(func() error {
			pair, speed, err := e.idle(ctx, heartbeats, nodegate, watching, c)
			if slowest.Objects == 0 || speed.Objects < slowest.Objects {
				slowest = speed
			}
			pairs = []report.Pair{pair}
			return err
		})
		return pairs, err
	})
	if err != nil {
		return nil, "", err
	}
	sent, err := e.Audit.Since(mark)
	note = fmt.Sprintf("%d nodes, each reporting every %s; the slowest time was %s. In all times, nodegate and the limit sent %s.",
		len(e.Fleet.Nodes()), c.interval, slowest, listRequests(sent))
	row := func(what, unit, quantity string, goal *report.Goal) report.Row {
		return report.Compare(what+", "+c.what, unit, pairs, quantity, report.Mean, goal)
	}
	return []report.Row{
		row("idle", "% of a core", idleShare, c.goal),
		report.Compare("idle, in all times together, "+c.what, "% of a core", together(pairs), idleShare, report.Mean, nil),
		row("CPU per report", "ms", idlePerReport, nil),
		row("allocated", "KiB per s", idleAllocated, nil),
	}, note, err
}

// together returns the shares of a core in all undisturbed pairs together. If these take a
// minute, they include work that is done once a minute, which most pairs do not contain.
func together(pairs []report.Pair) []report.Pair {
	counting, disturbed := report.Undisturbed(pairs)
	share := func(of func(report.Pair) report.Sample) report.Sample {
		cpu, seconds := 0.0, 0.0
		for _, pair := range counting {
			cpu += of(pair)[idleCPU][0]
			seconds += of(pair)[idleTime][0]
		}
		return report.Sample{idleShare: {cpu / 10 / seconds}}
	}
	return []report.Pair{{
		Nodegate:  share(func(p report.Pair) report.Sample { return p.Nodegate }),
		Limit:     share(func(p report.Pair) report.Sample { return p.Limit }),
		Disturbed: disturbed,
	}}
}

// idle lets each node of the fleet report once in every interval. It returns what nodegate
// and the limit use in the meantime.
func (e *Env) idle(ctx context.Context, heartbeats *driver.Heartbeats, nodegate, watching *Subject, c *idling) (pair report.Pair, reports driver.Speed, err error) {
	used, err := e.countEach(ctx, []*Subject{nodegate, watching}, func() (err error) {
		reporting, stop := context.WithTimeout(ctx, c.long)
		defer stop()
		reports, err = heartbeats.Send(reporting, float64(len(e.Fleet.Nodes()))/c.interval.Seconds())
		return err
	})
	if err != nil {
		return pair, reports, err
	}
	perSecond := func(used counters) report.Sample {
		took := reports.Took.Seconds()
		return report.Sample{
			idleShare: {used[ownCPU] / 10 / took}, idleAllocated: {used[ownAllocated] / took},
			idlePerReport: {used[ownCPU] / float64(reports.Objects)},
			idleCPU:       {used[ownCPU]}, idleTime: {took},
		}
	}
	return report.Pair{Nodegate: perSecond(used[0]), Limit: perSecond(used[1])}, reports, nil
}

// openFleet grows the fleet to at least the given size, and makes nodegate open all nodes.
// nodegate is not running before and afterwards.
func (e *Env) openFleet(ctx context.Context, size int) (err error) {
	if err := e.Prepare(ctx, size, nil); err != nil {
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
