// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

// overrideFor sets a manual override of a gate on a node, which begins now.
func overrideFor(last time.Duration, gateName, state string) func(*gate.Node) {
	return func(n *gate.Node) {
		n.Overrides = map[string]string{gateName: gate.Override{State: state, Until: time.Now().Add(last), Reason: "ticket 7", UID: n.UID}.String()}
	}
}

func (w *world) tainted(node string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.nodes[node].Taints) > 0
}

// An override opens an unfit node for an hour. It expires without an event, to the second,
// and even if the controller restarts. One write closes the node again, even if the budget
// is used up, because the node has counted as closed meanwhile.
func TestOverrideExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(10, func(i int, n *gate.Node) {
			isOpen(n, "gate")
			if i < 2 {
				delete(n.Labels, "fit")
				isClosed(n, "gate", v1alpha1.ReasonRegression)
			}
		})
		var log controllertest.LogLines
		stop := w.start(log.Logger(), interceptor.Funcs{})
		controllertest.Pass(time.Minute)
		begin := time.Now()
		w.change("n0000", overrideFor(time.Hour, "gate", v1alpha1.StateOpen))
		controllertest.Pass(time.Minute)
		if w.tainted("n0000") || w.written() != 1 {
			t.Fatalf("a minute after the override, the node is closed, or there were %d writes, want 1", w.written())
		}
		w.change("n0002", func(n *gate.Node) { delete(n.Labels, "fit") }) // two of ten count as closed
		controllertest.Pass(10 * time.Minute)
		if w.tainted("n0002") {
			t.Error("the budget of the overridden node was granted to another node")
		}
		w.checkOverridden(t, 1, "manually overridden on n0000")
		stop()
		controllertest.Pass(10 * time.Minute)
		stop = w.start(log.Logger(), interceptor.Funcs{})
		controllertest.Pass(time.Until(begin.Add(time.Hour - time.Second)))
		if w.tainted("n0000") {
			t.Error("closed before the override expired")
		}
		controllertest.Pass(2 * time.Second)
		if !w.tainted("n0000") || w.written() != 2 || len(w.node("n0000").Overrides) > 0 {
			t.Errorf("the override has expired: overrides %v, %d writes", w.node("n0000").Overrides, w.written())
		}
		controllertest.Pass(time.Minute)
		w.checkOverridden(t, 0, "")
		stop()
		for _, want := range []string{`"gate opened" "gate"="gate" "node"="n0000" "reason"="Overridden"`, `"because"="ticket 7"`,
			`"gate closed" "gate"="gate" "node"="n0000" "reason"="OverrideEnded"`} {
			if strings.Count(strings.Join(log.All(), "\n"), want) != 1 {
				t.Errorf("logged %d times, want once: %s", strings.Count(strings.Join(log.All(), "\n"), want), want)
			}
		}
	})
}

// checkOverridden checks what the gate's status reports about overrides.
func (w *world) checkOverridden(t *testing.T, count int32, remark string) {
	t.Helper()
	status := w.stored("gate").Status
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if status.Nodes.Overridden != count || ready == nil || !strings.Contains(ready.Message, remark) || remark == "" && strings.Contains(ready.Message, "overrid") {
		t.Errorf("status: %d overridden, %+v; want %d, %q", status.Nodes.Overridden, ready, count, remark)
	}
}

// An override keeps a fit node closed, even if it is not a member of the gate, and does
// not use the budget.
func TestOverrideKeepsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(10, func(i int, n *gate.Node) {
			if isOpen(n, "gate"); i == 1 {
				delete(n.Records, "gate")
			}
		})
		stop := w.start(logr.Discard(), interceptor.Funcs{})
		defer func() { stop() }()
		controllertest.Pass(time.Minute)
		for _, name := range []string{"n0000", "n0001"} {
			w.change(name, overrideFor(time.Hour, "gate", v1alpha1.StateClosed))
		}
		w.change("n0002", func(n *gate.Node) { delete(n.Labels, "fit") })
		w.change("n0003", func(n *gate.Node) { delete(n.Labels, "fit") })
		controllertest.Pass(time.Minute)
		for _, name := range []string{"n0000", "n0001", "n0002", "n0003"} {
			if !w.tainted(name) {
				t.Errorf("%s is not closed", name)
			}
		}
		w.checkOverridden(t, 2, "manually overridden on n0000, n0001")
		if s := w.stored("gate").Status; s.Nodes.Closed != 4 || s.Waiting[0].Reason == "" {
			t.Errorf("status: %+v, waiting %+v", s.Nodes, s.Waiting)
		}
		controllertest.Pass(time.Hour)
		if w.tainted("n0000") || w.tainted("n0001") || w.node("n0001").Records["gate"] != "" {
			t.Errorf("the overrides have expired: %+v, %+v", w.node("n0000"), w.node("n0001"))
		}
	})
}

// An override that is not followed is logged once. One that is refused is removed, with an
// Event.
func TestIgnoredOverrideIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(1, func(_ int, n *gate.Node) { isOpen(n, "gate") })
		var log controllertest.LogLines
		stop := w.start(log.Logger(), interceptor.Funcs{})
		defer func() { stop() }()
		controllertest.Pass(time.Minute)
		w.change("n0000", func(n *gate.Node) { n.Overrides = map[string]string{"gate": "Closed"} })
		controllertest.Pass(time.Minute)
		w.change("n0000", func(n *gate.Node) { n.Labels["other"] = "x" })
		controllertest.Pass(time.Minute)
		lines := strings.Join(log.All(), "\n")
		if got := strings.Count(lines, `"override is ignored" "gate"="gate" "node"="n0000"`); got != 1 {
			t.Errorf("logged %d times, want once:\n%s", got, lines)
		}
		w.checkOverridden(t, 0, "the override is ignored on n0000: reading the override")

		w.change("n0000", overrideFor(30*24*time.Hour, "gate", v1alpha1.StateClosed))
		controllertest.Pass(time.Minute)
		if len(w.node("n0000").Overrides) > 0 || w.tainted("n0000") {
			t.Errorf("an override of a month: %+v", w.node("n0000"))
		}
		refused := 0
		for _, e := range w.events() {
			if e.Reason == v1alpha1.EventOverrideRefused && strings.Contains(e.Note, "more than 7 days ahead") {
				refused++
			}
		}
		if refused != 1 {
			t.Errorf("%d Events report the refusal, want 1: %v", refused, w.events())
		}
	})
}
