// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// twoTaints returns a gate with one key for new nodes and another one for nodes on which it
// has been open. It closes as soon as the node's label is removed.
func twoTaints(name, key, recloseKey string) *v1alpha1.NodeGate {
	ng := newGate(name, key, byLabel("ready"))
	ng.Spec.RecloseTaint = &v1alpha1.Taint{Key: recloseKey, Effect: corev1.TaintEffectNoSchedule}
	ng.Spec.ReclosePolicy = v1alpha1.RecloseOnRegression
	ng.Spec.Timing.CloseAfterSeconds = new(int32(0))
	ng.Spec.Budget.MaxReclosed = new(intstr.FromString("100%"))
	return ng
}

// The API server adds the one taint to a new node. Once the gate has been open, it closes
// with the other one. Each transition is one write, and taints and record agree in every
// observed state.
func TestStartupTaintAndStatusTaint(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(twoTaints("agent", keyA, keyB))
	done := e.watchAll(agrees)
	k := e.kubelet("n1")
	if born := k.register(); !hasTaint(born, keyA) || hasTaint(born, keyB) {
		t.Errorf("the node was created with taints %s", keys(born))
	}
	closesWith := func(key, other string) {
		t.Helper()
		k.becomes("agent", isClosed, key)
		if hasTaint(k.node(), other) {
			t.Errorf("closed with taints %s, want only %s", keys(k.node()), key)
		}
	}
	k.reboot()
	e.eventually("the gate records the reboot", func() error { return unless(k.record("agent").Reason == v1alpha1.ReasonRebooted) })
	closesWith(keyA, keyB) // it has never been open
	k.label("ready")
	k.becomes("agent", isOpen, keyA)
	k.patch(`{"metadata":{"labels":{"ready":null}}}`)
	closesWith(keyB, keyA)
	k.wrote(3)
	k.label("ready")
	k.becomes("agent", isOpen, keyB)
	k.becomeUnreachable()
	closesWith(keyB, keyA)
	k.report(corev1.ConditionTrue, "")
	k.becomes("agent", isOpen, keyB)
	k.wrote(6)
	done()
}

// Another writer adds a gate's taints to nodes, including the taint that the gate does not
// currently use.
func TestTaintsAddedByAnotherWriterAreRemoved(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(twoTaints("agent", keyA, keyB))
	closed, open := e.kubelet("closed"), e.kubelet("open")
	closed.register()
	open.register()
	open.label("ready")
	open.becomes("agent", isOpen, keyA)
	for _, k := range []*kubelet{closed, open} {
		e.must(e.editTaints(t.Context(), k.name, "cloud", func(taints []corev1.Taint) []corev1.Taint {
			return append(taints, corev1.Taint{Key: keyB, Effect: corev1.TaintEffectNoSchedule})
		}))
		e.eventually("the added taint is removed", func() error { return unless(!hasTaint(k.node(), keyB)) })
	}
	e.must(closed.is("agent", isClosed, keyA))
	e.must(open.is("agent", isOpen, keyA))
	closed.wrote(1)
	open.wrote(2)
}

// Each of a gate's taints is edited, and then they are swapped. An edit of the taint that a
// node has is one write of the node. An edit of the other one is none.
func TestEditedRecloseTaintIsSwappedInOnePatch(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := e.declare(twoTaints("agent", keyA, keyB))
	born, reclosed := e.kubelet("born"), e.kubelet("reclosed")
	born.register()
	reclosed.register()
	reclosed.label("ready")
	reclosed.becomes("agent", isOpen, keyA)
	reclosed.patch(`{"metadata":{"labels":{"ready":null}}}`)
	reclosed.becomes("agent", isClosed, keyB)
	done := e.watchAll(agrees)

	hasRecordedTaint := func(k *kubelet, taint string) {
		t.Helper()
		e.eventually("the taint of node "+k.name+" is "+taint, func() error { return unless(k.record("agent").Taint == taint) })
	}
	e.edit(ng, func() { ng.Spec.RecloseTaint.Value = "lost" })
	hasRecordedTaint(reclosed, keyB+"=lost:NoSchedule")
	reclosed.wrote(3)
	born.wrote(0)
	e.edit(ng, func() { ng.Spec.Taint.Value = "new" })
	hasRecordedTaint(born, keyA+"=new:NoSchedule")
	reclosed.wrote(3)
	born.wrote(1)

	e.edit(ng, func() {
		ng.Spec.Taint.Key, ng.Spec.RecloseTaint.Key = keyB, keyA
	})
	born.becomes("agent", isClosed, keyB)
	reclosed.becomes("agent", isClosed, keyA)
	reclosed.wrote(4)
	born.wrote(2)
	e.edit(ng, func() { ng.Spec.RecloseTaint = nil })
	reclosed.becomes("agent", isClosed, keyB)
	reclosed.wrote(5)
	born.wrote(2)
	done()
}

// A gate with one key that is not allowed is not accepted, because it could not close again
// on nodes on which it closes at birth.
func TestBothKeysMustBeAllowed(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.must(e.admin.Create(t.Context(), twoTaints("agent", keyA, "test.nodegate.dev/not-allowed")))
	e.eventually("the gate is not accepted", func() error {
		return e.condition("agent", v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonTaintKeyNotAllowed)
	})
	k := e.kubelet("n1")
	k.register()
	e.settled()
	e.must(k.is("agent", isNone, keyA))

	nodegate, err := e.controllerClient(t.Context())
	e.must(err)
	for key, allowed := range map[string]bool{keyA: true, keyB: true, "test.nodegate.dev/not-allowed": false} {
		add := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"add","path":"/spec/taints/-","value":{"key":"`+key+`","effect":"NoSchedule"}}]`))
		err := nodegate.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, add, client.DryRunAll, client.FieldOwner("nodegate"))
		if (err == nil) != allowed {
			t.Errorf("the controller adds taint %s: %v, want allowed %t", key, err, allowed)
		}
	}
}
