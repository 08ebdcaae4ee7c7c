// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
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
}
