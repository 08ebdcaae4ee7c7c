// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/telemetry"
)

// Probes and the webhook may come at any time, also when a term ends: a Controller knows
// the gates, and what was asked for, before it is used.
func TestNextControllerStartsWithTheGates(t *testing.T) {
	r := &replica{
		process: &Process{Options: Options{Namespace: "nodegate-system", Log: logr.Discard()}},
		api:     controllertest.Client(t, interceptor.Funcs{}), metrics: telemetry.NewMetrics(prometheus.NewRegistry()),
	}
	first := r.newTerm()
	defer first.queue.ShutDown()
	first.asked.Store(&gate.Needs{})
	first.set.Store(&gateset.Set{Seq: 7})
	next := r.successor(first)
	defer next.queue.ShutDown()
	if next.set.Load().Seq != 7 || next.asked.Load() == nil {
		t.Errorf("the next Controller knows the gates of set %d, and what was asked for: %v; want set 7", next.set.Load().Seq, next.asked.Load())
	}
	if r.current.Load() != first {
		t.Error("the next Controller is in use before it knows the gates")
	}
}

// A leader that took over gives no budget while the one before may still do so.
func TestNoBudgetDirectlyAfterATakeover(t *testing.T) {
	for _, tookOver := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newClosedWorld(t, 3)
			w.tookOver = tookOver
			stop := w.start(logr.Discard(), interceptor.Funcs{})
			defer stop()
			controllertest.Pass(fleet.PausedAfter)
			if got := w.c.ledger.IsSettledFor(w.c.set.Load().Seq); got == tookOver {
				t.Errorf("took over: %v; budgets are given after %s: %v", tookOver, fleet.PausedAfter, got)
			}
			controllertest.Pass(3 * fleet.SettleInterval)
			if !w.c.ledger.IsSettledFor(w.c.set.Load().Seq) {
				t.Errorf("took over: %v; no budgets are given after %s", tookOver, fleet.PausedAfter+3*fleet.SettleInterval)
			}
		})
	}
}
