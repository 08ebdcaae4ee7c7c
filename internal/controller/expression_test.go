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
	"github.com/nodegate/nodegate/internal/gateset"
)

// opensBy makes a gate open while an expression is true.
func opensBy(by string) func(*v1alpha1.NodeGateSpec) {
	return func(spec *v1alpha1.NodeGateSpec) {
		spec.OpenWhen = []v1alpha1.Signal{{Name: "cel", SignalSource: v1alpha1.SignalSource{Expression: by}}}
	}
}

// closesBy makes a gate closed while an expression is true.
func closesBy(expression string) func(*v1alpha1.NodeGateSpec) {
	return func(spec *v1alpha1.NodeGateSpec) {
		opensBy(expression)(spec)
		spec.CloseWhen, spec.OpenWhen, spec.ReclosePolicy = spec.OpenWhen, nil, ""
	}
}

// The status of a gate whose expression cannot be compiled contains the position and the
// error. The gate keeps its state on all nodes until the expression is corrected.
func TestInvalidExpression(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ng := controllertest.Gate("gate", closesBy(`labels[?"bad"].orValue("") == "yes"`))
		w := newWorld(t, ng)
		w.add(10, func(i int, n *gate.Node) {
			if i == 0 {
				n.Labels = map[string]string{"bad": "yes"}
			}
		})
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Second)
		if n := w.closed(); n != 1 {
			t.Fatalf("%d nodes are closed, want 1", n)
		}
		edit := func(generation int64, expression string) {
			edited := ng.DeepCopy()
			edited.Generation = generation
			closesBy(expression)(&edited.Spec)
			edited.Spec.OpenWhen = nil
			w.setGates(true, edited)
			controllertest.Pass(5 * time.Second)
		}
		edit(2, `labels[?"bad"].orValue("") == 1`)
		c := meta.FindStatusCondition(w.stored("gate").Status.Conditions, v1alpha1.ConditionAccepted)
		if c == nil || c.Status != "False" || c.Reason != v1alpha1.ReasonInvalidSpec ||
			!strings.HasPrefix(c.Message, "compiling signal cel: compiling its expression: line 1, column 28: found no matching overload") {
			t.Errorf("Accepted = %+v", c)
		}
		if !strings.HasSuffix(c.Message, "to open it, correct or delete the gate") {
			t.Errorf("the message does not end with what to do: %s", c.Message)
		}
		held := w.stored("gate").Status.Waiting
		if len(held) != 1 || held[0].Node != "n0000" || held[0].Reason != v1alpha1.ReasonInvalidSpec || !strings.Contains(held[0].Message, "see its condition Accepted") {
			t.Errorf("waiting does not explain the closed node: %+v", held)
		}
		w.change("n0001", func(n *gate.Node) { n.Labels = map[string]string{"bad": "yes"} })
		w.change("n0000", func(n *gate.Node) { n.Labels = nil })
		controllertest.Pass(5 * time.Second)
		if n := w.closed(); n != 1 {
			t.Errorf("%d nodes are closed by a gate that is not accepted, want the one from before", n)
		}
		edit(3, `labels[?"bad"].orValue("") == "yes"`)
		if n := w.closed(); n != 1 {
			t.Errorf("%d nodes are closed after the correction, want the one that is bad", n)
		}
		if n := w.stored("gate").Status.Waiting; len(n) != 1 || n[0].Node != "n0001" {
			t.Errorf("closed: %+v", n)
		}
	})
}

// An open node whose expression cannot be evaluated is not in waiting. The condition Ready
// names it.
func TestExpressionErrorIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", closesBy(`labels["bad"] == "yes"`)))
		w.add(5, func(i int, n *gate.Node) {
			if i > 0 {
				n.Labels = map[string]string{"bad": "no"}
			}
		})
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Second)
		c := meta.FindStatusCondition(w.stored("gate").Status.Conditions, v1alpha1.ConditionReady)
		const want = "; unknown, and therefore not closed, on n0000: signal cel: the expression could not be evaluated on this node: no such key: bad"
		if c == nil || c.Status != "True" || !strings.HasSuffix(c.Message, want) {
			t.Errorf("Ready = %+v", c)
		}
		w.change("n0000", func(n *gate.Node) { n.Labels = map[string]string{"bad": "no"} })
		controllertest.Pass(10 * time.Second)
		c = meta.FindStatusCondition(w.stored("gate").Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || strings.Contains(c.Message, "unknown") {
			t.Errorf("Ready = %+v, although the expression can be evaluated on every node", c)
		}
	})
}

// An unchanged gate is not compiled again, but it is accepted or rejected again.
func TestGatesAreCompiledOnce(t *testing.T) {
	policy := gate.KeyPolicy{Allowed: gate.AllowedTaints{{Key: controllertest.TaintKey, Effect: "NoSchedule"}: true}}
	fine, broken := controllertest.Gate("fine", opensBy("true")), controllertest.Gate("broken", opensBy("1"))
	now := gateset.Snapshot{Source: v1alpha1.SourceCRD, Gates: []*v1alpha1.NodeGate{fine, broken}, Complete: true}
	first := gateset.New(&gateset.Set{}, now, policy)
	second := gateset.New(first, now, gate.KeyPolicy{Allowed: gate.AllowedTaints{}})
	a, _ := first.Gate("fine")
	b, _ := second.Gate("fine")
	if &a.Signals[0] != &b.Signals[0] {
		t.Error("compiled twice")
	}
	if !first.Accepted("fine") || second.Accepted("fine") || second.Acceptance["fine"].Reason != v1alpha1.ReasonTaintKeyNotAllowed {
		t.Errorf("acceptance %+v, and with other keys %+v", first.Acceptance["fine"], second.Acceptance["fine"])
	}
	if got := second.Acceptance["broken"]; got.Reason != v1alpha1.ReasonInvalidSpec || got != first.Acceptance["broken"] {
		t.Errorf("broken: %+v", got)
	}
	edited := fine.DeepCopy()
	edited.Generation++
	opensBy("false")(&edited.Spec)
	again := fine.DeepCopy() // deleted and created again
	again.UID = "another"
	for _, ng := range []*v1alpha1.NodeGate{edited, again} {
		now.Gates = []*v1alpha1.NodeGate{ng}
		third := gateset.New(first, now, policy)
		if c, _ := third.Gate("fine"); &a.Signals[0] == &c.Signals[0] || third.Since["fine"] != third.Seq {
			t.Errorf("a changed gate was not compiled: %+v", ng.ObjectMeta)
		}
	}
}
