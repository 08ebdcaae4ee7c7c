// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// A gate that is not accepted does not close on nodes, and does not affect an older gate.
func TestGatesThatAreNotAccepted(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.must(e.admin.Create(t.Context(), newGate("older", keyA, byLabel("ready"))))
	for name, c := range map[string]struct {
		change func(*v1alpha1.NodeGate)
		reason string
	}{
		"a key that is not allowed": {
			change: func(ng *v1alpha1.NodeGate) { ng.Spec.Taint.Key = "example.com/mine" },
			reason: v1alpha1.ReasonTaintKeyNotAllowed,
		},
		"a value that differs": {
			change: func(ng *v1alpha1.NodeGate) { ng.Spec.Taint.Value = "x" },
			reason: v1alpha1.ReasonTaintConflict,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ng := newGate("younger", keyA, byLabel("ready"))
			c.change(ng)
			e.waitNextSecond() // the gate must be younger than the other one
			e.must(e.admin.Create(t.Context(), ng))
			e.eventually("the younger gate is not accepted", func() error {
				return e.condition("younger", v1alpha1.ConditionAccepted, metav1.ConditionFalse, c.reason)
			})
			e.must(e.condition("younger", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNotAccepted))
			reason := v1alpha1.ReasonNoBootEvidence
			if c.reason == v1alpha1.ReasonTaintConflict {
				reason = c.reason // both gates report the conflict
			}
			e.eventually("the older gate is accepted, and reports a conflict", func() error {
				return e.condition("older", v1alpha1.ConditionAccepted, metav1.ConditionTrue, reason)
			})
			k := e.kubelet("n1")
			born := k.register()
			if slices.ContainsFunc(born.Spec.Taints, func(t corev1.Taint) bool {
				return t.Key == ng.Spec.Taint.Key && t.Value == ng.Spec.Taint.Value
			}) {
				t.Errorf("a gate that is not accepted closed at birth: taints %v", keys(born))
			}
			e.must(e.admin.Delete(t.Context(), born))
			e.must(e.admin.Delete(t.Context(), ng))
		})
	}
}

// Condition Ready reports a DaemonSet that does not exist, and one that does not tolerate one
// of the gate's taints.
func TestWhatIsWrongWithADaemonIsTold(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := newGate("agent", keyA, byDaemonSet("agent"))
	e.must(e.admin.Create(t.Context(), ng))
	e.eventually("the gate reports the missing DaemonSet", func() error {
		return e.condition("agent", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDaemonSetNotFound)
	})
	ds := e.daemonSet("agent")
	e.inForce("agent")
	e.edit(ds, func() { ds.Spec.Template.Spec.Tolerations = nil })
	e.eventually("the gate reports the missing toleration", func() error {
		return e.condition("agent", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDaemonDoesNotTolerateGate)
	})

	e.edit(ds, func() {
		ds.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: keyA, Operator: corev1.TolerationOpExists}}
	})
	e.inForce("agent")
	e.edit(ng, func() { ng.Spec.RecloseTaint = &v1alpha1.Taint{Key: keyB, Effect: corev1.TaintEffectNoSchedule} })
	e.eventually("the gate reports that the DaemonSet does not tolerate recloseTaint", func() error {
		c := e.currentCondition("agent", v1alpha1.ConditionReady)
		return unless(c.Reason == v1alpha1.ReasonDaemonDoesNotTolerateGate && strings.Contains(c.Message, "agent does not tolerate "+keyB+":NoSchedule"))
	})
}

// Condition Ready warns of valid selectors that select nothing.
func TestSelectorsThatSelectNothing(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := newGate("nowhere", keyA, v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{daemonNamespace}}})
	ng.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "none"}
	e.declare(ng)
	e.must(e.messageContains("nowhere", v1alpha1.ConditionReady, "nodeSelector selects no node at present"))
	e.must(e.messageContains("nowhere", v1alpha1.ConditionReady, "signal signal: no DaemonSet matches its selector"))
}
