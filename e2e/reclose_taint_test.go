// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// twoTaints is a gate with one key for new nodes and another for every later
// close, which it does as soon as its label goes.
func twoTaints(name, key, again string) *v1alpha1.NodeGate {
	ng := newGate(name, key, byLabel("ready"))
	ng.Spec.RecloseTaint = &v1alpha1.Taint{Key: again, Effect: corev1.TaintEffectNoSchedule}
	ng.Spec.ReclosePolicy = v1alpha1.RecloseOnRegression
	ng.Spec.Timing.CloseAfterSeconds = ptr.To[int32](0)
	ng.Spec.Budget.MaxReclosed = ptr.To(intstr.FromString("100%"))
	return ng
}

// A node gets the one taint from the API server and, once it has been open, the
// other. Each edge is one write, and in no state that is ever seen do taints and
// record disagree.
func TestStartupTaintAndStatusTaint(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(twoTaints("agent", keyA, keyB))
	done := e.watchAll(agrees)
	k := e.kubelet("n1")
	if born := k.register(); !hasTaint(born, keyA) || hasTaint(born, keyB) {
		t.Errorf("born with the taints %s", keys(born))
	}
	isWith := func(key, other string) {
		t.Helper()
		k.becomes("agent", isClosed, key)
		if hasTaint(k.node(), other) {
			t.Errorf("closed with %s", keys(k.node()))
		}
	}
	k.reboot()
	e.eventually("the new boot is seen", func() error { return unless(k.record("agent").Reason == v1alpha1.ReasonRebooted) })
	isWith(keyA, keyB) // it has never been open
	k.label("ready")
	k.becomes("agent", isOpen, keyA)
	k.patch(`{"metadata":{"labels":{"ready":null}}}`)
	isWith(keyB, keyA)
	k.wrote(3)
	k.label("ready")
	k.becomes("agent", isOpen, keyB)
	k.becomeUnreachable()
	isWith(keyB, keyA)
	k.report(corev1.ConditionTrue, "")
	k.becomes("agent", isOpen, keyB)
	k.wrote(6)
	done()
}

// Another writer adds a gate's taints to nodes, including the taint that the gate does not
// currently use.
func TestNeitherTaintIsAnybodyElses(t *testing.T) {
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
		e.eventually("the other taint is gone", func() error { return unless(!hasTaint(k.node(), keyB)) })
	}
	e.must(closed.is("agent", isClosed, keyA))
	e.must(open.is("agent", isOpen, keyA))
	closed.wrote(1)
	open.wrote(2)
}

// Either taint of a gate is edited, and then they change places. A node is written
// once for the one that it has, and not for the other.
func TestEditedRecloseTaintIsSwappedInOnePatch(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := e.declare(twoTaints("agent", keyA, keyB))
	born, again := e.kubelet("born"), e.kubelet("again")
	born.register()
	again.register()
	again.label("ready")
	again.becomes("agent", isOpen, keyA)
	again.patch(`{"metadata":{"labels":{"ready":null}}}`)
	again.becomes("agent", isClosed, keyB)
	done := e.watchAll(agrees)

	e.edit(ng, func() { ng.Spec.RecloseTaint.Value = "ill" })
	e.eventually("the value is there", func() error { return unless(again.record("agent").Taint == keyB+"=ill:NoSchedule") })
	again.wrote(3)
	born.wrote(0)
	e.edit(ng, func() { ng.Spec.Taint.Value = "new" })
	e.eventually("the value is there", func() error { return unless(born.record("agent").Taint == keyA+"=new:NoSchedule") })
	again.wrote(3)
	born.wrote(1)

	e.edit(ng, func() {
		ng.Spec.Taint.Key, ng.Spec.RecloseTaint.Key = keyB, keyA
	})
	born.becomes("agent", isClosed, keyB)
	again.becomes("agent", isClosed, keyA)
	again.wrote(4)
	born.wrote(2)
	e.edit(ng, func() { ng.Spec.RecloseTaint = nil })
	again.becomes("agent", isClosed, keyB)
	again.wrote(5)
	born.wrote(2)
	done()
}

// A gate of which only one key is allowed is not in force, and says which is not:
// no node is closed at birth that could not be closed later.
func TestBothKeysMustBeAllowed(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.must(e.admin.Create(t.Context(), twoTaints("agent", keyA, "test.nodegate.dev/not-allowed")))
	e.eventually("the gate is refused", func() error {
		return e.condition("agent", v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonTaintKeyNotAllowed)
	})
	k := e.kubelet("n1")
	k.register()
	e.settled()
	e.must(k.is("agent", isNone, keyA))

	config, err := e.cluster.ServiceAccount(t.Context(), installation.Namespace, installation.ServiceAccount)
	e.must(err)
	nodegate, err := client.New(config, client.Options{Scheme: e.admin.Scheme()})
	e.must(err)
	for key, allowed := range map[string]bool{keyA: true, keyB: true, "test.nodegate.dev/not-allowed": false} {
		add := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"add","path":"/spec/taints/-","value":{"key":"`+key+`","effect":"NoSchedule"}}]`))
		err := nodegate.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, add, client.DryRunAll, client.FieldOwner("nodegate"))
		if (err == nil) != allowed {
			t.Errorf("the policy on taint %s: %v", key, err)
		}
	}
}

func unless(ok bool) error {
	if ok {
		return nil
	}
	return errNotYet
}
