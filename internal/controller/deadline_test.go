// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

func withDeadline(seconds int32, action v1alpha1.DeadlineAction) func(*v1alpha1.NodeGateSpec) {
	return func(spec *v1alpha1.NodeGateSpec) {
		spec.Deadline = &v1alpha1.Deadline{ReadySeconds: new(seconds), Action: action}
	}
}

func (w *world) deadlineEvents() (out []eventsv1.Event) {
	for _, e := range w.events() {
		if e.Reason == v1alpha1.EventDeadlinePassed {
			out = append(out, e)
		}
	}
	return out
}

// A gate that was closed ten minutes ago has a deadline of an hour. The deadline passes
// without an event, later by the time for which the node was unreachable, and also if the
// controller restarts. It is reported once.
func TestDeadlineKeepsClosedAndReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", withDeadline(3600, v1alpha1.DeadlineKeepClosed)))
		w.add(5, func(_ int, n *gate.Node) {
			delete(n.Labels, "fit")
			isClosed(n, "gate", v1alpha1.ReasonBirth)
			n.Created = time.Now().Add(-10 * time.Minute)
		})
		stop := w.start(logr.Discard(), interceptor.Funcs{})
		controllertest.Pass(10 * time.Minute)
		ready := func(status corev1.ConditionStatus) {
			w.change("n0000", func(n *gate.Node) {
				n.Conditions = []gate.Condition{{Type: "Ready", Status: status, Transition: time.Now()}}
			})
		}
		ready(corev1.ConditionUnknown)
		controllertest.Pass(10 * time.Minute)
		stop()
		controllertest.Pass(10 * time.Minute)
		stop = w.start(logr.Discard(), interceptor.Funcs{})
		controllertest.Pass(10 * time.Minute)
		ready(corev1.ConditionTrue)
		controllertest.Pass(10*time.Minute - 2*time.Second) // an hour since it closed
		if n := w.stored("gate").Status.Nodes.Overdue; n != 0 || len(w.deadlineEvents()) > 0 {
			t.Errorf("%d nodes are overdue, with %d Events, which is too early", n, len(w.deadlineEvents()))
		}
		controllertest.Pass(4 * time.Second)
		status := w.stored("gate").Status
		overdue := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionOverdue)
		if status.Nodes.Overdue != 4 || status.Nodes.Closed != 5 || len(w.deadlineEvents()) != 4 || overdue == nil {
			t.Fatalf("%+v, %d Events, condition %v", status.Nodes, len(w.deadlineEvents()), overdue)
		}
		const waits = "n0001, n0002, n0003 and 1 more; n0001 waits for signal fit: the node has no label fit"
		if !strings.HasSuffix(overdue.Message, waits) || overdue.Reason != v1alpha1.ReasonOverdue {
			t.Errorf("condition %+v", overdue)
		}
		if e := w.deadlineEvents()[0]; e.Type != corev1.EventTypeWarning || e.Note != "gate gate stays closed on this node because its deadline has passed; it waits for: signal fit: the node has no label fit" {
			t.Errorf("Event %+v", e)
		}
		if v := testutil.ToFloat64(w.c.metrics.Nodes.WithLabelValues("gate", "overdue")); v != 4 {
			t.Errorf("metric: %v", v)
		}
		stop()
		stop = w.start(logr.Discard(), interceptor.Funcs{})
		defer func() { stop() }()
		controllertest.Pass(28 * time.Minute)
		if n := len(w.deadlineEvents()); n != 0 { // each controller has its own fake API server
			t.Errorf("%d Events after a restart about what was reported before", n)
		}
		controllertest.Pass(3 * time.Minute)
		if n := w.stored("gate").Status.Nodes.Overdue; n != 5 || len(w.deadlineEvents()) != 1 {
			t.Errorf("%d nodes are overdue, with %d new Events, want 5 and 1, for the node that was unreachable", n, len(w.deadlineEvents()))
		}
		w.change("n0001", func(n *gate.Node) { n.Labels = map[string]string{"fit": ""} })
		controllertest.Pass(5 * time.Second)
		if n := w.stored("gate").Status.Nodes; n.Overdue != 4 || n.Open != 1 {
			t.Errorf("after one node has opened: %+v", n)
		}
	})
}

// A deadline that opens the gate is reported, and the gate does not close because of its
// signals until they have held once.
func TestDeadlineOpensAndReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", withDeadline(3600, v1alpha1.DeadlineOpen)))
		w.add(5, func(i int, n *gate.Node) {
			isOpen(n, "gate")
			if i == 0 {
				delete(n.Labels, "fit")
				isClosed(n, "gate", v1alpha1.ReasonRegression)
			}
		})
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(50*time.Minute - 2*time.Second)
		if w.closed() != 1 {
			t.Error("it opened too early")
		}
		controllertest.Pass(time.Hour)
		status := w.stored("gate").Status
		overdue := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionOverdue)
		if w.closed() != 0 || w.written() != 1 || len(w.deadlineEvents()) != 1 || overdue == nil {
			t.Fatalf("%d closed after %d writes, %d Events, condition %v", w.closed(), w.written(), len(w.deadlineEvents()), overdue)
		}
		if status.Nodes.Overdue != 0 || !strings.Contains(overdue.Message, "opened by the deadline, while the signals have not held yet: n0000") {
			t.Errorf("%+v, %+v", status.Nodes, overdue)
		}
		if note := w.deadlineEvents()[0].Note; !strings.Contains(note, "gate gate opens on this node") {
			t.Errorf("Event: %s", note)
		}
		if n := testutil.ToFloat64(w.c.metrics.Opens.WithLabelValues("gate", "DeadlinePassed")); n != 1 {
			t.Errorf("opens: %v", n)
		}
		w.change("n0000", func(n *gate.Node) { n.Labels = map[string]string{"fit": ""} })
		controllertest.Pass(5 * time.Second)
		if meta.FindStatusCondition(w.stored("gate").Status.Conditions, v1alpha1.ConditionOverdue) != nil {
			t.Error("the condition remains after the signals have held")
		}
		w.change("n0000", func(n *gate.Node) { n.Labels = map[string]string{} })
		controllertest.Pass(5 * time.Second)
		if w.closed() != 1 || len(w.deadlineEvents()) != 1 {
			t.Errorf("%d closed, %d Events, want 1 and 1: the gate must close because of its signals again", w.closed(), len(w.deadlineEvents()))
		}
	})
}
