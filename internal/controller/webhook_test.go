// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/signal"
)

// An API server rejects a Node if a webhook makes it invalid, regardless of the
// failurePolicy. A gate that violates the CRD's rules, for example because the CRD is of
// another version, must not prevent nodes from registering.
func TestWebhookOmitsGatesThatInvalidateNodes(t *testing.T) {
	c := New(Options{Namespace: "nodegate-system", Log: logr.Discard()}, nil, newTestMetrics())
	value := controllertest.Gate("value")
	value.Spec.Taint.Value = "not a value"
	effect := controllertest.Gate("effect")
	effect.Spec.Taint.Key, effect.Spec.Taint.Effect = "test.nodegate.dev/effect", "NoWay"
	key := controllertest.Gate("key")
	key.Spec.Taint.Key = "not/a/key"
	long := controllertest.Gate(strings.Repeat("x", 64))
	long.Spec.Taint.Key = "test.nodegate.dev/long"
	all := []*v1alpha1.NodeGate{controllertest.Gate("good"), value, effect, key, long}
	all[0].Spec.Taint.Key = "test.nodegate.dev/good"
	if _, known := c.birthGates(); known {
		t.Error("the gates are known before they are compiled")
	}
	c.set.Store(gateset.New(&gateset.Set{}, gateset.Snapshot{Source: v1alpha1.SourceCRD, Gates: all, Complete: true}, gate.KeyPolicy{}))
	gates, known := c.birthGates()
	if !known || len(gates) != 1 || gates[0].Name != "good" {
		t.Errorf("known: %t, closed at birth: %+v, want only the gate good", known, gates)
	}
	if n := testing.AllocsPerRun(10, func() { c.birthGates() }); n > 0 {
		t.Errorf("the gates are copied for each Node: %v allocations", n)
	}
}

// A gate that cannot be read, or is being compiled, is still closed on new nodes in the version
// that was last in force, until it is known not to close there.
func TestWebhookClosesGatesThatAreUnknown(t *testing.T) {
	was := controllertest.Gate("odd", func(s *v1alpha1.NodeGateSpec) { s.NodeSelector.MatchLabels = map[string]string{"pool": "a"} })
	edited := controllertest.Gate("odd", func(s *v1alpha1.NodeGateSpec) { s.Taint.Key = "test.nodegate.dev/edited" })
	edited.Generation = 2
	unread := &v1alpha1.NodeGate{ObjectMeta: edited.ObjectMeta, ReadError: "json: the timing"}
	dry := edited.DeepCopy()
	dry.Generation, dry.Spec.Mode = 3, v1alpha1.ModeDryRun
	compiling := func(ng *v1alpha1.NodeGate, source string) (gate.Gate, error) {
		return signal.Uncompiled(ng, source), gateset.ErrCompiling
	}
	for name, unknown := range map[string]gateset.Snapshot{
		"unreadable":      {Gates: []*v1alpha1.NodeGate{unread}, Complete: true},
		"compiling":       {Gates: []*v1alpha1.NodeGate{edited}, Complete: true, Compile: compiling},
		"list incomplete": {},
	} {
		c := New(Options{Namespace: "nodegate-system", Log: logr.Discard()}, nil, newTestMetrics())
		next := func(now gateset.Snapshot) []gate.Gate {
			now.Source = v1alpha1.SourceCRD
			c.set.Store(gateset.New(c.set.Load(), now, gate.KeyPolicy{}))
			gates, _ := c.birthGates()
			return gates
		}
		next(gateset.Snapshot{Gates: []*v1alpha1.NodeGate{was}, Complete: true})
		for range 2 {
			if gates := next(unknown); len(gates) != 1 || gates[0].Taint != was.Spec.Taint || gates[0].Selector.String() != "pool=a" {
				t.Errorf("%s: closed at birth: %+v, want the gate as it was", name, gates)
			}
		}
		for known, now := range map[string]gateset.Snapshot{
			"deleted":    {Complete: true},
			"in dry run": {Gates: []*v1alpha1.NodeGate{dry}, Complete: true},
		} {
			if gates := next(now); len(gates) > 0 {
				t.Errorf("%s, then %s: closed at birth: %+v", name, known, gates)
			}
			next(gateset.Snapshot{Gates: []*v1alpha1.NodeGate{was}, Complete: true})
			next(unknown)
		}
		corrected := next(gateset.Snapshot{Gates: []*v1alpha1.NodeGate{edited}, Complete: true})
		if !slices.EqualFunc(corrected, []string{edited.Spec.Taint.Key}, func(g gate.Gate, key string) bool { return g.Taint.Key == key }) {
			t.Errorf("%s, then corrected: closed at birth: %+v", name, corrected)
		}
	}
}
