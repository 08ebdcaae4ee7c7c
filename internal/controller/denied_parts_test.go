// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
)

// unansweredWriter is an API server that denies a key. It carries out all other writes, but
// does not respond to them.
type unansweredWriter struct{ *denyingWriter }

func (d *unansweredWriter) Apply(ctx context.Context, n *gate.Node, decision *gate.Decision) (*corev1.Node, error) {
	if _, err := d.denyingWriter.Apply(ctx, n, decision); err != nil {
		return nil, err
	}
	return nil, errors.New("timed out")
}

const otherKey = "test.nodegate.dev/b"

func withKey(key string) func(*v1alpha1.NodeGateSpec) {
	return func(s *v1alpha1.NodeGateSpec) { s.Taint.Key = key }
}

// A part of a denied decision whose write is uncertain keeps its reservation, like a whole
// decision.
func TestUncertainPartialWriteKeepsItsReservation(t *testing.T) {
	w := newWorld(t, controllertest.Gate("gate"), controllertest.Gate("other", withKey(otherKey)))
	w.add(1, func(_ int, n *gate.Node) {
		isOpen(n, "gate")
		isOpen(n, "other")
	})
	s := &unansweredWriter{&denyingWriter{deniesKey: otherKey}}
	w.reconcileDenied(t, s.denyingWriter, logr.Discard(), 0, func() {
		w.c.writer = s
		_, _ = w.c.reconcile(t.Context(), "n0000")
		w.c.ledger.SetTerms(termsOf(w.c.set.Load()))
		w.c.ledger.SetFleet([]string{"n0000"}, 1, true)
		w.mu.Lock()
		n := w.nodes["n0000"]
		delete(n.Labels, "fit")
		w.mu.Unlock()
	})
	if _, err := w.c.reconcile(t.Context(), "n0000"); err == nil {
		t.Fatal("the write did not fail")
	}
	if w.closed() != 1 {
		t.Fatalf("%d nodes are closed, want 1, by the write without a response", w.closed())
	}
	if w.c.ledger.Reserve(fleet.BudgetScope{Gate: "gate"}, "another", time.Now()) {
		t.Error("its reservation was released")
	}
}

// A gate opens even if both another gate's key and its own stamp are denied.
func TestDeniedStampAndKeyDoNotBlockOtherGates(t *testing.T) {
	w := newWorld(t, controllertest.Gate("gate", func(s *v1alpha1.NodeGateSpec) { s.OpenedAtAnnotation = "example.com/opened-at" }),
		controllertest.Gate("other", withKey(otherKey)))
	w.add(1, func(_ int, n *gate.Node) {
		isClosed(n, "gate", v1alpha1.ReasonBirth)
		n.Records["other"] = strings.ReplaceAll(n.Records["gate"], controllertest.TaintKey, otherKey)
		n.Taints = append(n.Taints, corev1.Taint{Key: otherKey, Effect: corev1.TaintEffectNoSchedule})
	})
	w.logOfDenied(t, &denyingWriter{deniesKey: otherKey, deniesStamps: true})
	if n := w.node("n0000"); len(n.Taints) != 1 || n.Taints[0].Key != otherKey {
		t.Errorf("the node has the taints %v, want that of the other gate", n.Taints)
	}
}

// A denied write is reported for the gates that it would have changed.
func TestDenialIsReportedForAffectedGates(t *testing.T) {
	w := newWorld(t, controllertest.Gate("gate"), controllertest.Gate("other", withKey(otherKey)))
	w.add(1, func(_ int, n *gate.Node) {
		isOpen(n, "gate")
		isClosed(n, "other", v1alpha1.ReasonBirth)
		n.Records["other"] = strings.ReplaceAll(n.Records["other"], controllertest.TaintKey, otherKey)
		n.Taints[0].Key = otherKey
	})
	w.logOfDenied(t, &denyingWriter{deniesKey: otherKey})
	for gateName, want := range map[string]int{"gate": 0, "other": 1} {
		if got := w.c.ledger.Summary(gateName).Denied.Count; got != want {
			t.Errorf("gate %s: denied on %d nodes, want %d", gateName, got, want)
		}
	}
}

// A partial write does not cause reports about other gates' overrides, which are still
// followed.
func TestPartialWriteDoesNotReportOtherOverrides(t *testing.T) {
	const third = "test.nodegate.dev/c"
	w := newWorld(t, controllertest.Gate("gate"), controllertest.Gate("other", withKey(otherKey)), controllertest.Gate("third", withKey(third)))
	w.add(1, func(_ int, n *gate.Node) {
		isOpen(n, "third")
		isClosed(n, "gate", v1alpha1.ReasonBirth)
		n.Records["third"] = strings.ReplaceAll(n.Records["third"], controllertest.TaintKey, third)
		n.Records["other"] = strings.ReplaceAll(n.Records["gate"], controllertest.TaintKey, otherKey)
		n.Taints = append(n.Taints, corev1.Taint{Key: otherKey, Effect: corev1.TaintEffectNoSchedule})
		overrideFor(time.Hour, "third", v1alpha1.StateOpen)(n)
	})
	log := w.logOfDenied(t, &denyingWriter{deniesKey: otherKey})
	if w.written() != 1 || strings.Contains(log, "not followed") {
		t.Errorf("%d writes; log:\n%s", w.written(), log)
	}
}
