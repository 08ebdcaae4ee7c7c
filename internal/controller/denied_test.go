// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/gate"
)

// strict is an API server whose policies have not been told of all that the
// controller was told it may do.
type strict struct {
	*world
	// deniesKey and deniesStamps are what it does not let pass.
	deniesKey    string
	deniesStamps bool
}

func (s *strict) Apply(ctx context.Context, n *gate.Node, d *gate.Decision) (*corev1.Node, error) {
	of := func(taints []corev1.Taint) (all []string) {
		for _, t := range taints {
			if t.Key == s.deniesKey {
				all = append(all, t.ToString())
			}
		}
		return all
	}
	if !slices.Equal(of(n.Taints), of(d.Taints)) || s.deniesStamps && len(d.Stamps) > 0 {
		return nil, fmt.Errorf("patching: %w: by policy", cluster.ErrDenied)
	}
	return s.world.Apply(ctx, n, d)
}

// denied decides about one node until nothing more can be done, and returns what
// was logged.
func (w *world) denied(t *testing.T, s *strict) string {
	t.Helper()
	var log logLines
	s.world = w
	w.c = New(Options{Namespace: "nodegate-system", Log: log.logger()}, nil, newTestMetrics())
	w.c.Attach(w, s, w.pods)
	w.c.set.Store(newGateSet(&gateSet{}, known{source: w.GatesFrom(), gates: w.gates, complete: true}, gate.KeyPolicy{}))
	for range 5 {
		_, _ = w.c.reconcile(t.Context(), "n0000")
	}
	return strings.Join(log.all(), "\n")
}

// What may not be taken off a node for a gate that is gone keeps no other gate
// closed there.
func TestDeniedCleaningUpKeepsNoGateClosed(t *testing.T) {
	w := newWorld(t, testGate("gate"))
	w.add(1, func(_ int, n *gate.Node) {
		isClosed(n, "gate", v1alpha1.ReasonBirth)
		n.Records["gone"] = strings.ReplaceAll(n.Records["gate"], testKey, "test.nodegate.dev/gone=x")
		n.Taints = append(n.Taints, corev1.Taint{Key: "test.nodegate.dev/gone", Value: "x", Effect: corev1.TaintEffectNoSchedule})
	})
	w.denied(t, &strict{deniesKey: "test.nodegate.dev/gone"})
	n := w.nodes["n0000"]
	if len(n.Taints) != 1 || n.Taints[0].Key != "test.nodegate.dev/gone" || n.Records["gone"] == "" {
		t.Errorf("the node has the taints %v and records %v, want those of the gate that is gone", n.Taints, n.Records)
	}
}

// For want of a stamp no gate stays closed, and that is told.
func TestDeniedStampKeepsNoGateClosed(t *testing.T) {
	w := newWorld(t, testGate("gate", func(s *v1alpha1.NodeGateSpec) { s.OpenedAtAnnotation = "example.com/opened-at" }))
	w.add(1, func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonBirth) })
	log := w.denied(t, &strict{deniesStamps: true})
	if w.closed() != 0 {
		t.Error("the gate is closed still")
	}
	if strings.Count(log, "gate opened without its stamp") != 1 || strings.Count(log, `"msg"="gate opened" `) != 1 {
		t.Errorf("want it told once, got:\n%s", log)
	}
}
