// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

// closesByNIC makes a gate a closeWhen gate, which is closed while the condition NIC is
// Kaput.
func closesByNIC(spec *v1alpha1.NodeGateSpec) {
	nic := &v1alpha1.ConditionSignal{Type: "NIC", Status: "Kaput"}
	spec.OpenWhen, spec.ReclosePolicy = nil, ""
	spec.CloseWhen = []v1alpha1.Signal{{Name: "nic", SignalSource: v1alpha1.SignalSource{Condition: nic}}}
}

func setNIC(n *gate.Node, status corev1.ConditionStatus) {
	n.Conditions = []gate.Condition{{Type: "Ready", Status: corev1.ConditionTrue}, {Type: "NIC", Status: status}}
}

// A closeWhen gate does not close nodes at birth: it is ready without an entry in the
// parameter and without a probe.
func TestCloseWhenHasNoBirth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		was := controllertest.Gate("gate")
		w := newWorld(t, was)
		w.add(3, func(int, *gate.Node) {})
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Second)
		w.wantParameters("with openWhen", "map[gate:"+controllertest.TaintKey+"]")
		if n := testutil.CollectAndCount(w.c.metrics.Proved); n != 1 {
			t.Errorf("%d series of proofs of birth, want 1", n)
		}

		edited := was.DeepCopy()
		edited.Generation = 2
		closesByNIC(&edited.Spec)
		w.setGates(true, edited)
		controllertest.Pass(5 * time.Second)
		w.wantParameters("with closeWhen", "map[]")
		if n := testutil.CollectAndCount(w.c.metrics.Proved); n != 0 {
			t.Errorf("%d series of proofs of birth, want none", n)
		}
		status := w.stored("gate").Status
		if !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady) {
			t.Errorf("not Ready: %+v", status.Conditions)
		}
		if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAccepted); c == nil || c.Reason != v1alpha1.ReasonAccepted {
			t.Errorf("not Accepted: %+v", c)
		}
	})
}

// waiting reports the signal that keeps a node closed. Every selected node is open or
// closed. The budget is respected, and used again when a node opens.
func TestCloseWhenIsReportedAndBudgeted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", closesByNIC))
		w.add(10, func(i int, n *gate.Node) {
			if i < 3 {
				setNIC(n, "Kaput")
			}
		})
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(4 * time.Second) // a new gate closes nodes after the whole fleet was reconciled
		if n := w.closed(); n != 2 {
			t.Fatalf("%d nodes are closed, want 2 of 10", n)
		}
		controllertest.Pass(2 * time.Second)
		status := w.stored("gate").Status
		if n := status.Nodes; n.Selected != 10 || n.Open != 8 || n.Closed != 2 {
			t.Errorf("counts: %+v", n)
		}
		if !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionThrottled) {
			t.Errorf("not throttled: %+v", status.Conditions)
		}
		first := status.Waiting[0]
		if first.Signal != "nic" || first.Reason != "Matches" || first.Message != "condition NIC=Kaput matches" {
			t.Errorf("waiting: %+v", first)
		}

		w.change(first.Node, func(n *gate.Node) { setNIC(n, "Fine") })
		controllertest.Pass(30 * time.Second)
		if n := w.closed(); n != 2 || w.written() != 4 {
			t.Errorf("%d nodes are closed after %d writes, want 2 after 4", n, w.written())
		}
		if got := testutil.ToFloat64(w.c.metrics.Opens.WithLabelValues("gate", string(v1alpha1.ReasonSignalsCleared))); got != 1 {
			t.Errorf("%v openings are counted, want 1", got)
		}
		if meta.IsStatusConditionTrue(w.stored("gate").Status.Conditions, v1alpha1.ConditionThrottled) {
			t.Error("still throttled")
		}
	})
}

func TestManualReopenIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", closesByNIC, func(s *v1alpha1.NodeGateSpec) { s.Reopen = v1alpha1.ReopenManual }))
		w.add(1, func(_ int, n *gate.Node) { setNIC(n, "Kaput") })
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Second)
		w.change("n0000", func(n *gate.Node) { setNIC(n, "Fine") })
		controllertest.Pass(5 * time.Second)
		if waiting := w.stored("gate").Status.Waiting; len(waiting) != 1 || !strings.Contains(waiting[0].Message, "remove the taint") {
			t.Errorf("waiting: %+v", waiting)
		}
		w.change("n0000", func(n *gate.Node) { n.Taints = nil })
		controllertest.Pass(5 * time.Second)
		if n := w.stored("gate").Status.Nodes; n.Closed != 0 || n.Open != 1 || len(w.node("n0000").Records) != 0 {
			t.Errorf("counts: %+v, records %v", n, w.node("n0000").Records)
		}
	})
}

// While there is budget for all nodes that must be closed, nothing reports that they wait for it:
// neither when the leader starts, nor when a gate changes later.
func TestFreeBudgetIsNotReportedAsUsedUp(t *testing.T) {
	for after := time.Duration(0); after < 6*time.Second; after += 750 * time.Millisecond {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { freeBudgetIsNotReported(t, after) })
		})
	}
}

func freeBudgetIsNotReported(t *testing.T, after time.Duration) {
	was, closes := controllertest.Gate("gate", budget("100%")), controllertest.Gate("gate", budget("100%"), closesByNIC)
	if closes.Generation = 2; after == 0 {
		was = closes
	}
	w := newWorld(t, was)
	w.add(3, func(_ int, n *gate.Node) { setNIC(n, "Kaput") })
	defer w.start(logr.Discard(), interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
		if _, probe := obj.(*corev1.Node); probe {
			<-time.After(400 * time.Millisecond) // so that statuses are reported between two checks of the budget
		}
		return controllertest.PolicyOf(ctx, c, obj, o...)
	}})()
	controllertest.Pass(after)
	w.setGates(true, closes)
	controllertest.Pass(10 * time.Second)
	if n := w.closed(); n != 3 {
		t.Errorf("%d nodes are closed, want 3", n)
	}
	for _, line := range w.eventLines("NodeGate") {
		if strings.Contains(line, "Throttled") {
			t.Error(line)
		}
	}
}
