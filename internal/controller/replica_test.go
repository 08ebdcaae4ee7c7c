// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/readinessrules"
	"github.com/nodegate/nodegate/internal/telemetry"
)

// Probes and the webhook may be called at any time, also when a term ends. A Controller
// therefore knows the gates and the needs before it becomes the current one, and the keys that
// rules manage.
func TestNextControllerStartsWithTheGates(t *testing.T) {
	r := &replica{
		process: &Process{Options: Options{Namespace: "nodegate-system", Log: logr.Discard()}},
		api:     controllertest.Client(t, interceptor.Funcs{}), metrics: telemetry.NewMetrics(prometheus.NewRegistry()),
	}
	first := r.newTerm()
	defer first.queue.ShutDown()
	first.needs.Store(&gate.Needs{})
	first.set.Store(&gateset.Set{Seq: 7})
	first.rules.Take(map[string]string{controllertest.TaintKey: "rule"})
	next := r.successor(first)
	defer next.queue.ShutDown()
	if next.set.Load().Seq != 7 || next.needs.Load() == nil {
		t.Errorf("the next Controller has set %d and needs %v, want set 7 and the needs", next.set.Load().Seq, next.needs.Load())
	}
	if managed, known := next.rules.Managed(); !known || managed[controllertest.TaintKey] != "rule" {
		t.Errorf("the next Controller has the keys %v of rules, want those of the first", managed)
	}
	if r.current.Load() != first {
		t.Error("the next Controller is the current one before it has the gates")
	}
}

// A leader that took over grants no budget while its predecessor may still do so. Another leader
// need not wait.
func TestNoBudgetDirectlyAfterATakeover(t *testing.T) {
	for _, tookOver := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newClosedWorld(t, 3)
			w.tookOver = tookOver
			stop := w.start(logr.Discard(), interceptor.Funcs{})
			defer stop()
			controllertest.Pass(fleet.PausedAfter)
			if got := w.c.ledger.IsCountedFor(w.c.set.Load().Seq); got == tookOver {
				t.Errorf("took over: %t; budget is granted after %s: %t", tookOver, fleet.PausedAfter, got)
			}
			controllertest.Pass(3 * fleet.CountInterval)
			if !w.c.ledger.IsCountedFor(w.c.set.Load().Seq) {
				t.Errorf("took over: %t; no budget is granted after %s", tookOver, fleet.PausedAfter+3*fleet.CountInterval)
			}
		})
	}
}

// A leader closes a node and releases the Lease. The next leader observes the closing only after it
// has begun to lead. Nevertheless, it does not close another node under the same budget. It opens
// nodes at once.
func TestBudgetAfterAHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", budget("1")))
		w.add(3, func(i int, n *gate.Node) {
			isOpen(n, "gate")
			if i < 2 {
				delete(n.Labels, "fit")
			}
		})
		before := maps.Clone(w.nodes)
		stop := w.start(logr.Discard(), interceptor.Funcs{})
		controllertest.Pass(3 * fleet.CountInterval)
		stop()
		if n := w.closed(); n != 1 {
			t.Fatalf("the first leader has closed %d nodes, want one", n)
		}
		waiting := w.node("n0002")
		isClosed(&waiting, "gate", v1alpha1.ReasonBirth)
		w.mu.Lock()
		w.nodes["n0002"], w.stale, w.tookOver = waiting, before, true
		delete(w.stale, "n0002")
		w.mu.Unlock()
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(300 * time.Millisecond)
		if n := w.closed(); n != 1 {
			t.Errorf("%d nodes are closed, want one: n0002 opens immediately", n)
		}
		w.listed(nil, 0)
		controllertest.Pass(time.Minute)
		if n := w.closed(); n != 1 {
			t.Errorf("%d nodes are closed under a budget of one", n)
		}
	})
}

// A leader takes over, or continues after a pause, while its watch of Nodes is late. However late that is,
// it grants no budget that its predecessor has used.
func TestNoBudgetWhileTheWatchIsLate(t *testing.T) {
	for name, begin := range map[string]func(*world, *jumpingClock) func(){
		"takeover": func(w *world, _ *jumpingClock) func() {
			w.tookOver = true
			return w.start(logr.Discard(), interceptor.Funcs{})
		},
		"pause": func(w *world, c *jumpingClock) func() {
			stop := w.start(logr.Discard(), interceptor.Funcs{})
			controllertest.Pass(5 * time.Second)
			c.ahead.Store(int64(time.Minute))
			return stop
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c := newWorld(t, controllertest.Gate("gate", budget("1"))), &jumpingClock{}
				w.add(2, func(_ int, n *gate.Node) { isOpen(n, "gate") })
				const late, slow = 14 * time.Second, 5 * time.Second
				w.clock = c
				var known atomic.Bool
				w.catchUpNodes = func(context.Context) error {
					<-time.After(late)
					known.Store(true)
					w.listed(nil, 0)
					return nil
				}
				w.reading = func(node string) { // what is known is not yet evaluated
					if node == "n0001" && known.Load() {
						<-time.After(slow)
					}
				}
				defer begin(w, c)()
				w.closedElsewhere("n0001")
				w.change("n0000", func(n *gate.Node) { delete(n.Labels, "fit") })
				controllertest.Pass(late + 2*slow)
				if len(w.node("n0000").Taints) > 0 {
					t.Error("the node closed under budget that another leader had used")
				}
				known.Store(false)
				w.change("n0001", func(n *gate.Node) { n.Labels["fit"] = "" })
				controllertest.Pass(5 * time.Second)
				if len(w.node("n0001").Taints) > 0 || len(w.node("n0000").Taints) == 0 {
					t.Error("the node did not close when the budget became available")
				}
			})
		})
	}
}

// closedElsewhere makes another leader close a node, which the feed does not return until listed.
func (w *world) closedElsewhere(name string) {
	before := w.node(name)
	w.mu.Lock()
	w.stale = map[string]gate.Node{name: before}
	w.mu.Unlock()
	w.closedByAnother(name)
}

// If it is unknown whether the watch of Nodes is late, budget is granted nevertheless.
func TestBudgetIfTheWatchStaysLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", budget("1")))
		w.add(2, func(_ int, n *gate.Node) { isOpen(n, "gate") })
		w.tookOver, w.catchUpNodes = true, func(context.Context) error { return errors.New("not observed") }
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		w.change("n0000", func(n *gate.Node) { delete(n.Labels, "fit") })
		controllertest.Pass(fleet.PausedAfter + 4*fleet.CountInterval)
		if n := w.closed(); n != 1 {
			t.Errorf("%d nodes are closed, want the one that has regressed", n)
		}
	})
}

// A list of Nodes that is older than the last closing makes the closed node look open. No other
// node closes in its place, neither at once nor while the watch is late.
func TestBudgetAfterARewind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", budget("1")))
		w.add(3, func(i int, n *gate.Node) {
			isOpen(n, "gate")
			if i < 2 {
				delete(n.Labels, "fit")
			}
		})
		before := maps.Clone(w.nodes)
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(3 * fleet.CountInterval)
		if n := w.closed(); n != 1 {
			t.Fatalf("%d nodes are closed, want one", n)
		}
		w.listed(before, 1)
		controllertest.Pass(caughtUpAfter - time.Second)
		if n := w.closed(); n != 1 {
			t.Errorf("%d nodes are closed under a budget of one, before the watch has caught up", n)
		}
		w.listed(nil, 0)
		controllertest.Pass(time.Minute)
		if n := w.closed(); n != 1 {
			t.Errorf("%d nodes are closed under a budget of one", n)
		}
		for _, name := range w.NodeNames() {
			w.change(name, func(n *gate.Node) { n.Labels["fit"] = "" })
		}
		w.change("n0002", func(n *gate.Node) { delete(n.Labels, "fit") })
		controllertest.Pass(time.Minute)
		if n := w.closed(); n != 1 || len(w.node("n0002").Taints) == 0 {
			t.Errorf("%d nodes are closed, want only n0002", n)
		}
	})
}

// If a list from an earlier state changes no Node, the feed reports none. They are evaluated again
// nevertheless, so that budget is granted when the watch has had time to catch up.
func TestBudgetAfterARewindWithoutChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", budget("1")))
		w.add(3, func(_ int, n *gate.Node) { isOpen(n, "gate") })
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(3 * fleet.CountInterval)
		w.rewinds.Add(1)
		controllertest.Pass(fleet.CountInterval)
		w.change("n0001", func(n *gate.Node) { delete(n.Labels, "fit") })
		controllertest.Pass(caughtUpAfter - 2*fleet.CountInterval)
		if n := w.closed(); n != 0 {
			t.Errorf("%d nodes are closed before the watch has caught up", n)
		}
		controllertest.Pass(time.Minute)
		if n := w.closed(); n != 1 {
			t.Errorf("%d nodes are closed, want the one that has regressed", n)
		}
	})
}

// listed makes the feed return these states of nodes, or the current ones, and reports them all.
func (w *world) listed(stale map[string]gate.Node, rewinds int64) {
	w.mu.Lock()
	w.rewinds.Add(rewinds)
	w.stale = stale
	w.mu.Unlock()
	for _, name := range w.NodeNames() {
		w.c.NodeChanged(name, gate.Everything())
	}
}

// A replica that takes over waits until it has observed each gate in its present state or a later one.
func TestTakeoverComparesGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ng := controllertest.Gate("gate")
		ng.UID, ng.Generation = "a", 2
		w := newWorld(t, ng)
		w.tookOver = true
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(time.Minute)
		for name, c := range map[string]struct {
			change func(*v1alpha1.NodeGate)
			want   bool
		}{
			"as it was observed": {func(*v1alpha1.NodeGate) {}, true},
			"edited since":       {func(ng *v1alpha1.NodeGate) { ng.Generation = 3 }, false},
			"an earlier state":   {func(ng *v1alpha1.NodeGate) { ng.Generation = 1 }, true},
			"created again":      {func(ng *v1alpha1.NodeGate) { ng.UID = "b" }, false},
			"unknown":            {func(ng *v1alpha1.NodeGate) { ng.Name = "other" }, false},
		} {
			now := ng.DeepCopy()
			if c.change(now); w.hasGate(now) != c.want {
				t.Errorf("%s: got %t, want %t", name, !c.want, c.want)
			}
		}
	})
}

// A replica that is elected again does not act on the gates of its previous term. A gate that was
// created in the meantime has not been deleted.
func TestNextTermWaitsForItsOwnGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ng := controllertest.Gate("gate")
		entry, err := admission.NewEntry(ng)
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, ng)
		w.add(1, func(_ int, n *gate.Node) {
			delete(n.Labels, "fit")
			isClosed(n, "gate", v1alpha1.ReasonBirth)
		})
		w.tookOver, w.before = true, New(Options{Namespace: "nodegate-system", Log: logr.Discard()}, controllertest.Client(t, interceptor.Funcs{}), newTestMetrics())
		defer w.before.queue.ShutDown()
		set := gateset.New(&gateset.Set{Seq: 6}, gateset.Snapshot{Source: v1alpha1.SourceCRD, Complete: true}, gate.KeyPolicy{})
		w.before.set.Store(set)
		w.before.needs.Store(new(set.Needs(w.DaemonSets())))
		defer w.start(logr.Discard(), listingRules(func() ([]unstructured.Unstructured, error) {
			<-time.After(30 * time.Millisecond)
			return nil, errors.New("no response")
		}))()
		if err := w.c.client.Create(t.Context(), admission.Parameter("nodegate-system", v1alpha1.SourceCRD, []admission.Entry{entry})); err != nil {
			t.Fatal(err)
		}
		for _, waited := range []time.Duration{5 * time.Second, readinessrules.MaxWait} {
			controllertest.Pass(waited)
			if n := w.closed(); n != 1 || w.node("n0000").Records["gate"] == "" {
				t.Errorf("after %s: %d nodes are closed, records %v, want the node to remain closed", waited, n, w.node("n0000").Records)
			}
			w.wantParameters("after "+waited.String(), "map[gate:"+controllertest.TaintKey+"]")
		}
		if !w.c.leading.Load() {
			t.Error("the controller does not lead")
		}
	})
}
