// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

func inMode(mode v1alpha1.Mode) func(*v1alpha1.NodeGateSpec) {
	return func(s *v1alpha1.NodeGateSpec) { s.Mode = mode }
}

// inMode changes the mode of the first gate, and waits.
func (w *world) inMode(mode v1alpha1.Mode) {
	w.mu.Lock()
	ng := w.gates[0].DeepCopy()
	w.mu.Unlock()
	ng.Generation++
	ng.Spec.Mode = mode
	w.setGates(true, ng)
	controllertest.Pass(10 * time.Second)
	w.c.resyncAll() // like a feed, which reports every write
	controllertest.Pass(30 * time.Second)
}

func (w *world) wantCondition(t *testing.T, kind, reason, message string) {
	t.Helper()
	c := meta.FindStatusCondition(w.stored("gate").Status.Conditions, kind)
	if c == nil || c.Status != "True" || c.Reason != reason || !strings.Contains(c.Message, message) {
		t.Errorf("condition %s is %+v, want True, %s, %q", kind, c, reason, message)
	}
}

// total returns the sum of a counter's series, which exist.
func total(t *testing.T, counter *prometheus.CounterVec) (sum float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(counter)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%d counters have series (%v), want one", len(families), err)
	}
	for _, series := range families[0].GetMetric() {
		sum += series.GetCounter().GetValue()
	}
	return sum
}

// A dry run counts its budget by the simulated states, reports what it would do, and
// writes nothing. When the mode is changed to Enforce, the gate does it.
func TestDryRunThenEnforce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", inMode(v1alpha1.ModeDryRun), func(s *v1alpha1.NodeGateSpec) { s.ExistingNodes = v1alpha1.ExistingClose }))
		w.add(10, unfit)
		var log controllertest.LogLines
		defer w.start(log.Logger(), interceptor.Funcs{})()
		controllertest.Pass(time.Minute)
		status := w.stored("gate").Status
		if n := status.Nodes; n.Selected != 10 || n.Closed != 2 || n.Open != 0 || len(status.Waiting) != 2 {
			t.Errorf("with 10 nodes and a budget of 20%%: %+v, waiting %v", n, status.Waiting)
		}
		w.wantCondition(t, v1alpha1.ConditionReady, "DryRun", "no node is changed")
		w.wantCondition(t, v1alpha1.ConditionAccepted, "DryRun", "in dry run")
		w.wantCondition(t, v1alpha1.ConditionThrottled, v1alpha1.ReasonThrottled, "dry run, no node is changed: closing waits for budget on")
		m := w.c.metrics
		if w.written() != 0 || len(w.parameters()) != 0 || total(t, m.Closes) != 0 || testutil.CollectAndCount(m.Proved) != 0 {
			t.Errorf("%d writes, %d parameters, %v closings counted", w.written(), len(w.parameters()), total(t, m.Closes))
		}
		if simulated, real := log.Count(`"gate would close"`), log.Count(`"gate closed"`); simulated != 2 || real != 0 {
			t.Errorf("%d simulated closings and %d real ones are logged, want 2 and none", simulated, real)
		}
		if v := testutil.ToFloat64(m.Modes.WithLabelValues("gate", "DryRun")); v != 1 || log.Count(`"gate mode"`) != 1 || log.Count(`"gate mode changed"`) != 0 {
			t.Errorf("mode: metric %v, log %q", v, log.All())
		}
		for _, waits := range status.Waiting { // both become fit
			w.change(waits.Node, func(n *gate.Node) { n.Labels["fit"] = "" })
		}
		controllertest.Pass(time.Minute)
		if n := w.stored("gate").Status.Nodes; n.Closed != 2 || n.Open != 2 || log.Count(`"gate would open"`) != 2 {
			t.Errorf("%+v, and %d simulated openings are logged, want 2", n, log.Count(`"gate would open"`))
		}
		if w.written() != 0 || total(t, m.Opens) != 0 || testutil.ToFloat64(m.Patches.WithLabelValues("ok")) != 0 {
			t.Errorf("%d writes or their metrics, want none", w.written())
		}
		w.inMode(v1alpha1.ModeEnforce)
		if n := w.stored("gate").Status.Nodes; n.Closed != 2 || n.Open != 2 || w.closed() != 2 {
			t.Errorf("enforced: %+v, %d nodes tainted", n, w.closed())
		}
		w.wantCondition(t, v1alpha1.ConditionReady, v1alpha1.ReasonReady, "")
		if n := testutil.CollectAndCount(m.Modes); n != 1 || len(w.parameters()) != 1 || log.Count(`"gate mode changed"`) != 1 {
			t.Errorf("%d modes, %d parameters, log %q", n, len(w.parameters()), log.All())
		}
	})
}

// When a gate enters the dry run, it opens its closed nodes, which is reported as done.
// The dry run continues from the previous state.
func TestEnforceThenDryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", withDeadline(3600, v1alpha1.DeadlineOpen)))
		w.add(5, func(i int, n *gate.Node) {
			unfit(i, n)
			isClosed(n, "gate", v1alpha1.ReasonBirth)
		})
		var log controllertest.LogLines
		defer w.start(log.Logger(), interceptor.Funcs{})()
		controllertest.Pass(time.Minute)
		w.inMode(v1alpha1.ModeDryRun)
		if n := w.stored("gate").Status.Nodes; w.closed() != 0 || n.Closed != 5 {
			t.Errorf("%d nodes are tainted, status %+v", w.closed(), n)
		}
		if n := testutil.ToFloat64(w.c.metrics.Opens.WithLabelValues("gate", "DryRun")); n != 5 || len(w.parameters()) != 0 {
			t.Errorf("%v openings, %d parameters", n, len(w.parameters()))
		}
		before := len(w.events())
		controllertest.Pass(time.Hour) // the deadline would pass
		if n := w.stored("gate").Status.Nodes; n.Open != 5 || log.Count(`"gate would open"`) != 5 || len(w.events()) != before || log.Count(`"deadline passed"`) != 0 {
			t.Errorf("%+v, %d Events, log %q", n, len(w.events())-before, log.All())
		}
		w.wantCondition(t, v1alpha1.ConditionOverdue, v1alpha1.ReasonOverdue, "dry run, no node is changed: ")
		if n := w.written(); n != 5 {
			t.Errorf("%d writes, want one for each node", n)
		}
	})
}

// A new leader restarts the dry run, and logs the mode again.
func TestDryRunRestartsWithANewLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", inMode(v1alpha1.ModeDryRun)))
		w.add(1, func(i int, n *gate.Node) { unfit(i, n); n.Created = time.Now() })
		var log controllertest.LogLines
		stop := w.start(log.Logger(), interceptor.Funcs{})
		controllertest.Pass(20 * time.Minute)
		if n := w.stored("gate").Status.Nodes; n.Closed != 1 {
			t.Errorf("%+v", n)
		}
		stop()
		defer w.start(log.Logger(), interceptor.Funcs{})()
		controllertest.Pass(time.Minute)
		if n := w.stored("gate").Status.Nodes; n.Closed != 0 || n.Selected != 1 {
			t.Errorf("%+v, want the node to count as existing", n)
		}
		if n, changes := log.Count(`"gate mode"`), log.Count(`"gate mode changed"`); n != 2 || changes != 0 {
			t.Errorf("the mode was logged %d times, want 2, and %d changes, want none", n, changes)
		}
	})
}

// In a dry run, adoption writes no records, and therefore is not paced.
func TestDryRunAdoptionIsNotPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", inMode(v1alpha1.ModeDryRun), func(s *v1alpha1.NodeGateSpec) { s.ExistingNodes = v1alpha1.ExistingAdopt }))
		w.add(500, func(int, *gate.Node) {})
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Second) // paced, 500 nodes would take 50 seconds
		if n := w.stored("gate").Status.Nodes; n.Open != 500 || w.written() != 0 {
			t.Errorf("%+v, %d writes", n, w.written())
		}
	})
}

// A paused gate neither opens nor closes, and does not close new nodes. When it is
// resumed, it does what is due.
func TestPauseAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(10, func(i int, n *gate.Node) {
			if isOpen(n, "gate"); i < 2 {
				unfit(i, n)
				isClosed(n, "gate", v1alpha1.ReasonBirth)
			}
		})
		var log controllertest.LogLines
		defer w.start(log.Logger(), interceptor.Funcs{})()
		controllertest.Pass(time.Minute)
		if len(w.parameters()) != 1 {
			t.Error("new nodes are not closed")
		}
		w.inMode(v1alpha1.ModePaused)
		before := w.written()
		w.change("n0000", func(n *gate.Node) { n.Labels["fit"] = "" })
		w.change("n0005", func(n *gate.Node) { delete(n.Labels, "fit") })
		w.change("n0006", func(n *gate.Node) { n.BootID = "next" })
		controllertest.Pass(10 * time.Minute)
		status := w.stored("gate").Status
		if n := status.Nodes; w.written() != before || w.closed() != 2 || n.Closed != 2 || n.Open != 8 || len(w.parameters()) != 0 {
			t.Errorf("%d writes, %d tainted, %+v, %d parameters", w.written()-before, w.closed(), n, len(w.parameters()))
		}
		w.wantCondition(t, v1alpha1.ConditionReady, "Paused", "2 nodes stay closed")
		w.wantCondition(t, v1alpha1.ConditionAccepted, "Paused", "is paused")
		if len(status.Waiting) != 2 || status.Waiting[0].Reason != "Paused" || status.Waiting[0].Since.IsZero() {
			t.Errorf("waiting: %+v", status.Waiting)
		}
		if v := testutil.ToFloat64(w.c.metrics.Modes.WithLabelValues("gate", "Paused")); v != 1 || testutil.CollectAndCount(w.c.metrics.Proved) != 0 {
			t.Errorf("metric %v, %d proofs of birth", v, testutil.CollectAndCount(w.c.metrics.Proved))
		}
		w.inMode(v1alpha1.ModeEnforce)
		for name, want := range map[string]v1alpha1.Reason{"n0000": v1alpha1.ReasonSignalsHold, "n0001": v1alpha1.ReasonBirth, "n0005": v1alpha1.ReasonRegression} {
			if r, _ := gate.ParseRecord(w.node(name).Records["gate"]); r.Reason != want {
				t.Errorf("%s: %+v, want %s", name, r, want)
			}
		}
	})
}

// The key of a gate in dry run is not one of the set's keys, so it does not change for
// enforced gates which daemons belong on a node.
func TestKeysOfDryRunsAreNotInTheSet(t *testing.T) {
	set := gateset.New(&gateset.Set{}, gateset.Snapshot{Gates: []*v1alpha1.NodeGate{controllertest.Gate("gate", inMode(v1alpha1.ModeDryRun))}}, gate.KeyPolicy{})
	if len(set.Keys) > 0 || set.ClosesAtBirth("gate") || !set.Unneeded("gate") {
		t.Errorf("keys %v, closes at birth: %t", set.Keys, set.ClosesAtBirth("gate"))
	}
}

// If the gate enters the dry run while one of its writes is in flight, the node that it
// closes is opened.
func TestModeChangesDuringAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(1, func(i int, n *gate.Node) { unfit(i, n); n.Created = time.Now() })
		closed := 0
		w.after = func() {
			if closed = max(closed, w.countClosed()); w.gates[0].Spec.Mode == "" {
				ng := w.gates[0].DeepCopy()
				ng.Generation, ng.Spec.Mode = 2, v1alpha1.ModeDryRun
				w.gates = []*v1alpha1.NodeGate{ng}
				w.c.GatesChanged()
			}
		}
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(time.Minute)
		if n := w.node("n0000"); closed != 1 || len(n.Taints) > 0 || len(n.Records) > 0 || w.written() != 2 {
			t.Errorf("%d writes, taints %v, records %v", w.written(), n.Taints, n.Records)
		}
	})
}
