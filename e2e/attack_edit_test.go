// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Automation changes a gate's selector back and forth.
func TestSelectorFlips(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := e.declare(on(newGate("agent", keyA, byLabel("ready")), "pool", "a"))
	a, _ := e.registerWith("in-a", "pool", "a")
	b, _ := e.registerWith("in-b", "pool", "b")
	done := e.watchAll(agrees)

	for i := range 100 {
		e.edit(ng, func() { ng.Spec.NodeSelector.MatchLabels["pool"] = string("ba"[i%2]) })
	}
	a.becomes("agent", isClosed, keyA)
	b.becomes("agent", isNone, keyA)
	e.settled()
	writes := func() int { return len(a.nodeWrites()) + len(b.nodeWrites()) }
	written := writes()
	e.settled()
	if now := writes(); now != written || now > 200 {
		t.Errorf("nodegate wrote the nodes %d times, %d of them after the last edit was processed; want at most 200, and 0", now, now-written)
	}
	done()
}

func TestTwoGatesSwapTheirKeys(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	k := e.twoGates(keyA, keyB)
	first := &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: "first"}}
	second := &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: "second"}}
	done := e.watchAll(func(n *corev1.Node) error {
		if n.Name == "n1" && !hasTaint(n, keyA) && !hasTaint(n, keyB) {
			return fmt.Errorf("two gates are closed, and the taints are %s", keys(n))
		}
		return agrees(n)
	})

	e.edit(first, func() { first.Spec.Taint.Key = keyB })
	e.edit(second, func() { second.Spec.Taint.Key = keyA })
	k.becomes("first", isClosed, keyB)
	k.becomes("second", isClosed, keyA)
	k.label("first")
	k.becomes("first", isOpen, keyB)
	e.must(k.is("second", isClosed, keyA))
	done()
	k.label("second")
	k.becomes("second", isOpen, keyA)
}

// Key, value and effect of a gate's taint are edited while the gate opens on
// one node after the other.
func TestTaintEditedWhileNodesOpen(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := e.declare(newGate("agent", keyA, byLabel("ready")))
	done := e.watchAll(agrees)
	edits := []func(*v1alpha1.NodeGateSpec){
		func(s *v1alpha1.NodeGateSpec) { s.Taint.Value = "x" },
		func(s *v1alpha1.NodeGateSpec) {
			s.Taint.Effect, s.Acknowledge = corev1.TaintEffectNoExecute, []v1alpha1.Acknowledgement{v1alpha1.AcknowledgePodEviction}
		},
		func(s *v1alpha1.NodeGateSpec) { s.Taint.Key = keyB },
		func(s *v1alpha1.NodeGateSpec) { s.Taint.Effect, s.Acknowledge = corev1.TaintEffectNoSchedule, nil },
		func(s *v1alpha1.NodeGateSpec) { s.Taint.Key, s.Taint.Value = keyA, "" },
	}
	var fleet []*kubelet
	for i, change := range edits {
		for j := range 4 {
			k := e.kubelet(fmt.Sprintf("n%d-%d", i, j))
			k.register()
			fleet = append(fleet, k)
			if j%2 == 0 {
				k.label("ready")
			}
		}
		e.edit(ng, func() { change(&ng.Spec) })
	}
	for _, k := range fleet {
		k.label("ready")
	}
	for _, k := range fleet {
		k.becomes("agent", isOpen, keyA)
		e.must(k.is("agent", isOpen, keyB))
	}
	done()
}

// A gate is deleted and re-created with another key, faster than the controller can
// reconcile.
func TestGateReplacedOverAndOver(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := e.declare(newGate("agent", keyA, byLabel("ready")))
	open, held := e.kubelet("open"), e.kubelet("held")
	open.register()
	open.label("ready")
	open.becomes("agent", isOpen, keyA)
	e.waitNextSecond() // the re-created gates are younger than this node
	held.register()
	done := e.watchAll(func(n *corev1.Node) error {
		if n.Name == "open" && (hasTaint(n, keyA) || hasTaint(n, keyB)) {
			return fmt.Errorf("an existing node was closed: %s", keys(n))
		}
		return agrees(n)
	})

	key := keyA
	for i := range 10 {
		e.must(e.admin.Delete(t.Context(), ng))
		key = []string{keyB, keyA}[i%2]
		ng = newGate("agent", key, byLabel("never"))
		e.must(e.admin.Create(t.Context(), ng))
	}
	e.inForce("agent")
	late := e.kubelet("late")
	if born := late.register(); !hasTaint(born, key) {
		t.Errorf("a node was created with taints %s, want %s", keys(born), key)
	}
	e.settled()
	for _, k := range []*kubelet{held, open, late} {
		e.must(agrees(k.node()))
	}
	done()
	e.must(client.IgnoreNotFound(e.admin.Delete(t.Context(), ng)))
	for _, k := range []*kubelet{held, open, late} {
		k.becomes("agent", isNone, keyA)
		e.must(k.is("agent", isNone, keyB))
	}
}
