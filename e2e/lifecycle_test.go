// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func TestBirthAndOpening(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.agent()
	k := e.kubelet("n1")

	born := k.register()
	if !hasTaint(born, keyA) {
		t.Fatalf("the Node was created with taints %v, want %s", keys(born), keyA)
	}
	pod := k.daemonPod(ds)
	k.run(pod, false)
	k.report(corev1.ConditionTrue, "")
	e.waitsFor("agent", "n1", v1alpha1.ReadingPodNotReady)
	e.awaitCounts("agent", v1alpha1.NodeCounts{Selected: 1, Closed: 1})
	if waiting := e.readGate("agent").Status.Waiting; len(waiting) != 1 {
		t.Errorf("waiting: %+v, want only n1", waiting)
	}
	e.must(k.is("agent", isClosed, keyA))

	k.run(pod, true)
	k.becomes("agent", isOpen, keyA)
	k.wrote(1)
	e.awaitCounts("agent", v1alpha1.NodeCounts{Selected: 1, Open: 1})
	if waiting := e.readGate("agent").Status.Waiting; len(waiting) != 0 {
		t.Errorf("waiting: %+v, want no node", waiting)
	}
}

// twoGates declares two gates, each of which opens on a node with the label of its name, and
// registers a node.
func (e *env) twoGates(firstKey, secondKey string) *kubelet {
	e.Helper()
	e.declare(newGate("first", firstKey, byLabel("first")))
	e.declare(newGate("second", secondKey, byLabel("second")))
	k := e.kubelet("n1")
	k.register()
	return k
}

func TestTwoGatesOpenOneByOne(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	k := e.twoGates(keyA, keyB)

	k.label("first")
	k.becomes("first", isOpen, keyA)
	e.must(k.is("second", isClosed, keyB))
	k.label("second")
	k.becomes("second", isOpen, keyB)
	k.wrote(2)
}

func TestSharedTaintStaysUntilBothOpen(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	k := e.twoGates(keyA, keyA)

	k.label("first")
	e.eventually("the first gate is open", func() error { return unless(k.record("first").State == isOpen) })
	e.must(k.is("second", isClosed, keyA))
	k.label("second")
	k.becomes("second", isOpen, keyA)
}

func TestRelabelledNodeIsReleased(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(on(newGate("agent", keyA, byLabel("ready")), "pool", "gpu"))
	k, _ := e.registerWith("n1", "pool", "gpu")
	e.must(k.is("agent", isClosed, keyA))

	k.patch(`{"metadata":{"labels":{"pool":"cpu"}}}`)
	k.becomes("agent", isNone, keyA)
	k.patch(`{"metadata":{"labels":{"pool":"gpu"}}}`)
	k.becomes("agent", isClosed, keyA) // the node is still new
}

func TestDeletedGateOpensEverywhere(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := e.declare(newGate("agent", keyA, byLabel("ready")))
	k := e.kubelet("n1")
	k.register(func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "foreign", Effect: corev1.TaintEffectNoSchedule}}
	})
	e.must(k.is("agent", isClosed, keyA))

	e.must(e.admin.Delete(t.Context(), ng))
	k.becomes("agent", isNone, keyA)
	if !hasTaint(k.node(), "foreign") {
		t.Error("a foreign taint was removed")
	}
	e.eventually("the API server closes no gate on new nodes", func() error {
		if closed := e.closedAtBirth(); len(closed) > 0 {
			return fmt.Errorf("it closes %v", closed)
		}
		return nil
	})
}

// holdNode creates a gate with the given name, and then node n1, on which the gate is closed.
func (e *env) holdNode(name string) (*v1alpha1.NodeGate, *kubelet) {
	ng := e.declare(newGate(name, keyA, byLabel("ready")))
	k := e.kubelet("n1")
	k.register()
	e.must(k.is(name, isClosed, keyA))
	return ng, k
}

func TestGateDeletedWhileControllerIsDown(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	ng, k := e.holdNode("agent")
	stop()
	e.must(e.admin.Delete(t.Context(), ng))
	// A CustomResourceDefinition that was just created may be restored from a backup, with
	// the gates to follow. After an hour, the gate is certain to be deleted.
	e.startController(time.Hour)
	k.becomes("agent", isNone, keyA)
}

func TestRenamedGateOpensNothing(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	old, k := e.holdNode("old")
	untainted := e.watchFor(func(n *corev1.Node) bool { return n.Name == "n1" && !hasTaint(n, keyA) })

	e.declare(newGate("renamed", keyA, byLabel("ready")))
	e.must(e.admin.Delete(t.Context(), old))
	e.eventually("the renamed gate has replaced the old one", func() error {
		if _, present := k.node().Annotations[v1alpha1.RecordAnnotationPrefix+"old"]; present {
			return errNotYet
		}
		return k.is("renamed", isClosed, keyA)
	})
	if n := untainted(); n > 0 {
		t.Errorf("%d states of the node were without its taint", n)
	}
	k.label("ready")
	k.becomes("renamed", isOpen, keyA)
}

// If the old gate is deleted first, the node opens, and the new gate ignores it.
func TestRenamedGateIgnoresNodesIfTheOldOneIsDeletedFirst(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	old, k := e.holdNode("old")
	e.must(e.admin.Delete(t.Context(), old))
	k.becomes("old", isNone, keyA)

	e.eventually("the next gate is younger than the node", func() error { // creation times are in seconds
		return unless(time.Since(k.node().CreationTimestamp.Time) >= time.Second)
	})
	e.declare(newGate("renamed", keyA, byLabel("ready")))
	e.eventually("the new gate has evaluated the node", func() error {
		all := e.readGate("renamed").Status.NonMembers
		return unless(len(all) == 1 && all[0].Reason == v1alpha1.NonMemberCreatedBeforeGate)
	})
	e.must(k.is("renamed", isNone, keyA))
}

func TestEditedTaintIsReplacedInOnePatch(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng, k := e.holdNode("agent")
	untainted := e.watchFor(func(n *corev1.Node) bool { return n.Name == "n1" && !hasTaint(n, keyA) && !hasTaint(n, keyB) })

	e.edit(ng, func() { ng.Spec.Taint.Key = keyB })
	k.becomes("agent", isClosed, keyB)
	if hasTaint(k.node(), keyA) {
		t.Error("the old taint was not removed")
	}
	if n := untainted(); n > 0 {
		t.Errorf("%d states of the node were without either taint", n)
	}
	k.wrote(1)
}

func TestCloudNodeWithLateLabels(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(on(newGate("agent", keyA, byLabel("ready")), "pool", "gpu"))
	k := e.kubelet("n1")
	k.register(func(n *corev1.Node) {
		n.Labels["ready"] = ""
		n.Spec.Taints = []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	})
	e.must(k.is("agent", isNone, keyA))

	k.patch(`{"metadata":{"labels":{"pool":"gpu"}}}`) // by the cloud controller
	k.becomes("agent", isClosed, keyA)                // although its signal holds
	k.patch(`{"spec":{"taints":[{"key":"` + keyA + `","effect":"NoSchedule"}]}}`)
	k.becomes("agent", isOpen, keyA)
}

func TestControllerDownDuringBirth(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	ds := e.agent()
	stop()

	k := e.kubelet("n1")
	k.register()
	e.must(k.is("agent", isClosed, keyA))
	k.run(k.daemonPod(ds), true)
	e.must(k.is("agent", isClosed, keyA))
	e.startController(0)
	k.becomes("agent", isOpen, keyA)
}

func TestControllerRestartedBetweenOpenings(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	k := e.twoGates(keyA, keyB)
	k.label("first")
	k.becomes("first", isOpen, keyA)
	stop()
	k.patch(`{"metadata":{"labels":{"second":"","first":null}}}`)
	e.startController(0)
	k.becomes("second", isOpen, keyB)
	e.must(k.is("first", isOpen, keyA)) // OnReboot: removing the label closes nothing
}

func TestNodesThatWereNotClosedAtBirth(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	stop()
	e.must(e.deleteParameters(t.Context()))
	early := e.kubelet("early")
	e.eventually("the policy no longer closes the gate", func() error {
		node := early.register()
		if hasTaint(node, keyA) {
			e.must(e.admin.Delete(t.Context(), node))
			return errNotYet
		}
		return nil
	})

	e.startController(0)
	early.becomes("agent", isClosed, keyA) // an hour later, it would not: TestExistingNodesAreLeftAlone
}

func TestExistingNodesAreLeftAlone(t *testing.T) {
	e := newEnv(t)
	k := e.kubelet("n1")
	k.register()
	e.startController(time.Hour)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	fence := e.kubelet("fence")
	fence.register()
	fence.label("ready")
	fence.becomes("agent", isOpen, keyA)
	e.must(k.is("agent", isNone, keyA))
	k.wrote(0)
}
