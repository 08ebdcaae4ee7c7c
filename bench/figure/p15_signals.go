// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nodegate/nodegate/bench/driver"
	"github.com/nodegate/nodegate/bench/fixture"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/internal/testbed"
)

const (
	// signalNodes is the number of nodes that become ready at once.
	signalNodes = 200
	// signalGoal is the share by which the speed of signals may differ.
	signalGoal = 0.05
)

var signals = Figure{
	ID: "P15", Title: "Signals compared: a CSI driver registers on all nodes at once, or a DaemonSet's pods become ready",
	Measure: measureSignals,
}

// openedRate is the number of nodes that nodegate opens per second.
const openedRate = "opened per second"

func measureSignals(ctx context.Context, e *Env) (r report.Result, err error) {
	nodes := min(signalNodes, e.Fleets[len(e.Fleets)-1])
	b, err := newSignalBursts(ctx, e, nodes)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.close(ctx)) }()
	plan := Plan{Short: true}
	pairs, err := e.referee.pairs(e.Rounds, func(n int) (all []report.Pair, err error) {
		order := plan.order(n)
		samples := make([]report.Sample, len(order))
		for i, name := range order {
			if samples[i], err = b.measure(ctx, name == nodegateName); err != nil {
				return nil, err
			}
		}
		return pairUp(order, samples), nil
	})
	counts := func(what, unit, quantity string) report.Row {
		return report.Compare(what, unit, report.Counts(pairs), quantity, report.Mean, nil)
	}
	r.Rows = []report.Row{
		report.Compare(fmt.Sprintf("%d nodes: opened per second", nodes), "", pairs, openedRate, report.Mean, report.Within(signalGoal)),
		report.Compare("CPU per opened node", "ms", pairs, ownCPU, report.Mean, nil),
		counts("instructions per opened node", "million", ownInstructions),
		counts("objects allocated per opened node", "", ownObjects),
		counts("requests per opened node", "", ownRequests),
		counts("received per opened node", "KiB", ownReceived),
	}
	r.Notes = []string{
		"In this figure, both subjects are nodegate: the gate has the signal `csiDriver`, or, in the column of the limit, `daemonSet`. They take turns like nodegate and the limit elsewhere, without a restart.",
		"From the first write of the driver, which writes CSINodes or pods directly to etcd, to the last node observed without the taint. A pod is larger than a CSINode.",
		"Costs are nodegate's own; those of its metrics, which are read once per turn, are included.",
		observerNote,
	}
	return r, err
}

// signalBursts measures nodegate with two signals.
type signalBursts struct {
	*Env
	subject *Subject
	csi     *driver.CSINodes
	nodes   int
}

func newSignalBursts(ctx context.Context, e *Env, nodes int) (_ *signalBursts, err error) {
	if err := e.Prepare(ctx, nodes, nil); err != nil {
		return nil, err
	}
	b := &signalBursts{Env: e, nodes: nodes}
	if b.csi, err = e.Fleet.NewCSINodes(ctx, nodes, fixture.CSIDriver); err != nil {
		return nil, err
	}
	if err := e.Reset(ctx, nil, nodes); err != nil {
		return nil, err
	}
	controller, err := e.StartNodegate(ctx, openMetrics)
	if err != nil {
		return nil, err
	}
	b.subject = &Subject{nodegateName, controller.PID(), controller.Metrics, controller.Stop}
	return b, nil
}

// close stops nodegate, deletes the CSINodes, and restores the gate.
func (b *signalBursts) close(ctx context.Context) error {
	return errors.Join(b.subject.stop(), b.csi.Delete(ctx), b.SetGate(ctx, nil))
}

// measure is a turn with the signal of the CSI driver or of the DaemonSet.
func (b *signalBursts) measure(ctx context.Context, csi bool) (sample report.Sample, err error) {
	if err := b.use(ctx, csi); err != nil {
		return nil, err
	}
	b.Observer.Reset()
	err = b.referee.turn(func() error {
		sample, err = b.burst(ctx, csi)
		return err
	})
	return sample, err
}

// use closes all nodes and sets the signal, which does not hold on any of them.
func (b *signalBursts) use(ctx context.Context, csi bool) error {
	if _, err := b.csi.Register(ctx, false); err != nil {
		return err
	}
	if _, err := b.Fleet.Report(ctx, b.nodes, false); err != nil {
		return err
	}
	var spec map[string]any
	if csi {
		spec = fixture.OpensWithCSI(fixture.CSIDriver)
	}
	if err := errors.Join(b.AwaitQuiet(ctx, b.subject), b.SetGate(ctx, spec), testbed.AwaitGate(ctx, b.Applier, fixture.Daemon)); err != nil {
		return err
	}
	return b.Reset(ctx, b.subject, b.nodes)
}

func (b *signalBursts) burst(ctx context.Context, csi bool) (report.Sample, error) {
	var began time.Time
	used, err := b.count(ctx, b.subject, func() (err error) {
		began = time.Now()
		if csi {
			_, err = b.csi.Register(ctx, true)
		} else {
			_, err = b.Fleet.Report(ctx, b.nodes, true)
		}
		if err != nil {
			return err
		}
		return b.Observer.AwaitSeen(ctx, observer.Open, b.nodes)
	})
	if err != nil {
		return nil, err
	}
	open := slices.MaxFunc(slices.Collect(maps.Values(b.Observer.Seen(observer.Open))), time.Time.Compare)
	sample := report.Sample{openedRate: {float64(b.nodes) / open.Sub(began).Seconds()}}
	for quantity, total := range used {
		sample.Add(quantity, total/float64(b.nodes))
	}
	return sample, nil
}
