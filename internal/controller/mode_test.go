// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
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

// inMode has the gate be in another mode from now on.
func (w *world) inMode(mode v1alpha1.Mode) {
	w.mu.Lock()
	ng := w.gates[0].DeepCopy()
	w.mu.Unlock()
	ng.Generation++
	ng.Spec.Mode = mode
	w.setGates(true, ng)
	controllertest.Pass(10 * time.Second)
	w.c.resyncAll() // as the feed would have every node that was written
	controllertest.Pass(30 * time.Second)
}

func (w *world) wantCondition(t *testing.T, kind, reason, message string) {
	t.Helper()
	c := meta.FindStatusCondition(w.stored("gate").Status.Conditions, kind)
	if c == nil || c.Status != "True" || c.Reason != reason || !strings.Contains(c.Message, message) {
		t.Errorf("condition %s is %+v, want True, %s, %q", kind, c, reason, message)
	}
}

// A dry run takes its budget from what would be, tells what it would do, and does
// nothing. Switched to Enforce, the gate does it.
func TestDryRunThenEnforce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", inMode(v1alpha1.ModeDryRun), func(s *v1alpha1.NodeGateSpec) { s.ExistingNodes = v1alpha1.ExistingClose }))
		w.add(10, unfit)
		var log controllertest.LogLines
		defer w.start(log.Logger(), interceptor.Funcs{})()
		controllertest.Pass(time.Minute)
		status := w.stored("gate").Status
		if n := status.Nodes; n.Selected != 10 || n.Closed != 2 || n.Open != 0 || len(status.Waiting) != 2 {
			t.Errorf("of 10 nodes and a budget of 20 %%: %+v, waiting %v", n, status.Waiting)
		}
		w.wantCondition(t, v1alpha1.ConditionReady, "DryRun", "no node is changed")
		w.wantCondition(t, v1alpha1.ConditionAccepted, "DryRun", "in dry run")
		w.wantCondition(t, v1alpha1.ConditionThrottled, v1alpha1.ReasonThrottled, "in this dry run, where no node is changed: closing waits on")
		m := w.c.metrics
		closings := testutil.ToFloat64(m.Closes.WithLabelValues("gate", string(v1alpha1.ReasonBirth))) // counted from zero
		if w.written() != 0 || len(w.parameters()) != 0 || closings != 0 || testutil.CollectAndCount(m.Closes) != 1 || testutil.CollectAndCount(m.Proved) != 0 {
			t.Errorf("%d writes, %d parameters, %v closings counted for birth, %d reasons", w.written(), len(w.parameters()), closings, testutil.CollectAndCount(m.Closes))
		}
		if told, real := log.Count(`"gate would close"`), log.Count(`"gate closed"`); told != 2 || real != 0 {
			t.Errorf("told %d times that it would close, %d that it did", told, real)
		}
		if v := testutil.ToFloat64(m.Modes.WithLabelValues("gate", "DryRun")); v != 1 || log.Count(`"gate is in another mode"`) != 1 {
			t.Errorf("mode: metric %v, log %q", v, log.All())
		}
		for _, waits := range status.Waiting { // two of them turn out to be fit
			w.change(waits.Node, func(n *gate.Node) { n.Labels["fit"] = "" })
		}
		controllertest.Pass(time.Minute)
		if n := w.stored("gate").Status.Nodes; n.Closed != 2 || n.Open != 2 || log.Count(`"gate would open"`) != 2 {
			t.Errorf("%+v, told %d times that it would open", n, log.Count(`"gate would open"`))
		}
		if w.written() != 0 || testutil.CollectAndCount(m.Opens, "nodegate_opens_total") != 0 || testutil.ToFloat64(m.Patches.WithLabelValues("ok")) != 0 {
			t.Errorf("%d writes", w.written())
		}
		w.inMode(v1alpha1.ModeEnforce)
		if n := w.stored("gate").Status.Nodes; n.Closed != 2 || n.Open != 2 || w.closed() != 2 {
			t.Errorf("enforced: %+v, %d nodes tainted", n, w.closed())
		}
		w.wantCondition(t, v1alpha1.ConditionReady, v1alpha1.ReasonReady, "")
		if n := testutil.CollectAndCount(m.Modes); n != 1 || len(w.parameters()) != 1 {
			t.Errorf("%d modes, %d parameters", n, len(w.parameters()))
		}
	})
}

// Coming into a dry run, a gate opens what it held, which is told as done; it goes
// on, on paper, where it stood.
func TestEnforceThenDryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", withDeadline(7200, v1alpha1.DeadlineOpen)))
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
			t.Errorf("%+v, %d events, log %q", n, len(w.events())-before, log.All())
		}
		w.wantCondition(t, v1alpha1.ConditionOverdue, v1alpha1.ReasonOverdue, "in this dry run")
		if n := w.written(); n != 5 {
			t.Errorf("%d writes, want one for each node", n)
		}
	})
}

// Another leader begins the dry run again, and tells of the mode again.
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
			t.Errorf("%+v, want an existing node", n)
		}
		if n := log.Count(`"gate is in another mode"`); n != 2 {
			t.Errorf("told %d times", n)
		}
	})
}

// Nodes that need no more than a record need nothing in a dry run.
func TestDryRunAdoptionIsNotPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", inMode(v1alpha1.ModeDryRun), func(s *v1alpha1.NodeGateSpec) { s.ExistingNodes = v1alpha1.ExistingAdopt }))
		w.add(500, func(int, *gate.Node) {})
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Second) // five hundred would take fifty
		if n := w.stored("gate").Status.Nodes; n.Open != 500 || w.written() != 0 {
			t.Errorf("%+v, %d writes", n, w.written())
		}
	})
}

// A paused gate neither opens nor closes, and closes no births. Resumed, it does
// what is due.
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
			t.Error("births are not closed")
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
		w.wantCondition(t, v1alpha1.ConditionReady, "Paused", "kept closed are 2")
		w.wantCondition(t, v1alpha1.ConditionAccepted, "Paused", "is paused")
		if len(status.Waiting) != 2 || status.Waiting[0].Reason != "Paused" || status.Waiting[0].Since.IsZero() {
			t.Errorf("waiting: %+v", status.Waiting)
		}
		if v := testutil.ToFloat64(w.c.metrics.Modes.WithLabelValues("gate", "Paused")); v != 1 || testutil.CollectAndCount(w.c.metrics.Proved) != 0 {
			t.Errorf("metric %v, births: %d", v, testutil.CollectAndCount(w.c.metrics.Proved))
		}
		w.inMode(v1alpha1.ModeEnforce)
		for name, want := range map[string]v1alpha1.Reason{"n0000": v1alpha1.ReasonSignalsHold, "n0001": v1alpha1.ReasonBirth, "n0005": v1alpha1.ReasonRegression} {
			if r, _ := gate.ParseRecord(w.nodes[name].Records["gate"]); r.Reason != want {
				t.Errorf("%s: %+v, want %s", name, r, want)
			}
		}
	})
}

// A gate in dry run has its key count as no gate's for those that act, so that it
// does not change which daemons belong on a node.
func TestKeysOfDryRunsAreNotInTheSet(t *testing.T) {
	set := gateset.New(&gateset.Set{}, gateset.Snapshot{Gates: []*v1alpha1.NodeGate{controllertest.Gate("gate", inMode(v1alpha1.ModeDryRun))}}, gate.KeyPolicy{})
	if len(set.Keys) > 0 || set.ClosesAtBirth("gate") || !set.Unneeded("gate") {
		t.Errorf("keys %v, closes at birth: %t", set.Keys, set.ClosesAtBirth("gate"))
	}
}

// The gate comes into a dry run while a write of before is on its way. What it
// closed is opened all the same.
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
		if n := w.nodes["n0000"]; closed != 1 || len(n.Taints) > 0 || len(n.Records) > 0 || w.written() != 2 {
			t.Errorf("%d writes, taints %v, records %v", w.written(), n.Taints, n.Records)
		}
	})
}
