// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

const (
	isOpen   = v1alpha1.StateOpen
	isClosed = v1alpha1.StateClosed
	isNone   = ""
)

func TestBirthAndOpening(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.agent()
	k := e.kubelet("n1")

	born := k.register()
	if !hasTaint(born, keyA) {
		t.Fatalf("the Node came back from its creation with taints %v, want %s", keys(born), keyA)
	}
	pod := k.daemonPod(ds)
	k.run(pod, false)
	k.report(corev1.ConditionTrue, "")
	e.eventually("the status names the waiting node", func() error {
		var ng v1alpha1.NodeGate
		e.must(e.admin.Get(t.Context(), client.ObjectKey{Name: "agent"}, &ng))
		if len(ng.Status.Waiting) != 1 || ng.Status.Waiting[0].Reason != string(v1alpha1.ReadingPodNotReady) {
			return fmt.Errorf("waiting: %+v", ng.Status.Waiting)
		}
		if want := (v1alpha1.NodeCounts{Selected: 1, Closed: 1}); ng.Status.Nodes != want {
			return fmt.Errorf("counts: %+v, want %+v", ng.Status.Nodes, want)
		}
		return nil
	})
	e.must(k.is("agent", isClosed, keyA))

	k.run(pod, true)
	k.becomes("agent", isOpen, keyA)
	if writes := e.nodeWrites("n1"); len(writes) != 1 {
		t.Errorf("nodegate wrote the node %d times from birth to open, want once:\n%v", len(writes), writes)
	}
	e.eventually("the status counts the open node", func() error {
		var ng v1alpha1.NodeGate
		e.must(e.admin.Get(t.Context(), client.ObjectKey{Name: "agent"}, &ng))
		if want := (v1alpha1.NodeCounts{Selected: 1, Open: 1}); ng.Status.Nodes != want || len(ng.Status.Waiting) != 0 {
			return fmt.Errorf("counts: %+v, waiting: %+v", ng.Status.Nodes, ng.Status.Waiting)
		}
		return nil
	})
}

func TestTwoGatesOpenOneByOne(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(newGate("first", keyA, byLabel("first")))
	e.declare(newGate("second", keyB, byLabel("second")))
	k := e.kubelet("n1")
	k.register()

	k.patch(`{"metadata":{"labels":{"first":""}}}`)
	k.becomes("first", isOpen, keyA)
	e.must(k.is("second", isClosed, keyB))
	k.patch(`{"metadata":{"labels":{"second":""}}}`)
	k.becomes("second", isOpen, keyB)
	if writes := e.nodeWrites("n1"); len(writes) != 2 {
		t.Errorf("nodegate wrote the node %d times for two openings, want twice", len(writes))
	}
}

func TestSharedTaintStaysUntilBothOpen(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(newGate("first", keyA, byLabel("first")))
	e.declare(newGate("second", keyA, byLabel("second")))
	k := e.kubelet("n1")
	k.register()

	k.patch(`{"metadata":{"labels":{"first":""}}}`)
	e.eventually("the first gate is open", func() error {
		if r := k.record("first"); r.State != isOpen {
			return errNotYet
		}
		return nil
	})
	e.must(k.is("second", isClosed, keyA))
	k.patch(`{"metadata":{"labels":{"second":""}}}`)
	k.becomes("second", isOpen, keyA)
}

func TestRelabelledNodeIsReleased(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := newGate("agent", keyA, byLabel("ready"))
	ng.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "gpu"}
	e.declare(ng)
	inPool := func(n *corev1.Node) { n.Labels["pool"] = "gpu" }
	k := e.kubelet("n1")
	k.register(inPool)
	e.must(k.is("agent", isClosed, keyA))

	k.patch(`{"metadata":{"labels":{"pool":"cpu"}}}`)
	k.becomes("agent", isNone, keyA)
	k.patch(`{"metadata":{"labels":{"pool":"gpu"}}}`)
	k.becomes("agent", isClosed, keyA) // still new
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
		t.Error("a foreign taint was lost")
	}
	e.eventually("new nodes are not closed any more", func() error {
		if closed := e.closedAtBirth(); len(closed) > 0 {
			return fmt.Errorf("they are closed by %v", closed)
		}
		return nil
	})
}

func TestGateDeletedWhileControllerIsDown(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	ng := e.declare(newGate("agent", keyA, byLabel("ready")))
	k := e.kubelet("n1")
	k.register()
	stop()
	e.must(e.admin.Delete(t.Context(), ng))
	// A CustomResourceDefinition that is only just there could be that of a
	// restore, with the gates to follow: an hour later it is certain.
	e.startController(time.Hour)
	k.becomes("agent", isNone, keyA)
}

func TestRenamedGateOpensNothing(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	old := e.declare(newGate("old", keyA, byLabel("ready")))
	k := e.kubelet("n1")
	k.register()
	e.must(k.is("old", isClosed, keyA))
	untainted := e.watchFor(func(n *corev1.Node) bool { return n.Name == "n1" && !hasTaint(n, keyA) })

	renamed := newGate("renamed", keyA, byLabel("ready"))
	e.declare(renamed)
	e.must(e.admin.Delete(t.Context(), old))
	e.eventually("the renamed gate has taken over", func() error {
		node := k.node()
		if _, left := node.Annotations[v1alpha1.RecordAnnotationPrefix+"old"]; left {
			return errNotYet
		}
		return k.is("renamed", isClosed, keyA)
	})
	if n := untainted(); n > 0 {
		t.Errorf("the node was seen without its taint %d times", n)
	}
	k.patch(`{"metadata":{"labels":{"ready":""}}}`)
	k.becomes("renamed", isOpen, keyA)
}

func TestEditedTaintIsSwappedInOnePatch(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := e.declare(newGate("agent", keyA, byLabel("ready")))
	k := e.kubelet("n1")
	k.register()
	bare := e.watchFor(func(n *corev1.Node) bool { return n.Name == "n1" && !hasTaint(n, keyA) && !hasTaint(n, keyB) })

	e.edit(ng, func() { ng.Spec.Taint.Key = keyB })
	k.becomes("agent", isClosed, keyB)
	if hasTaint(k.node(), keyA) {
		t.Error("the old taint is left")
	}
	if n := bare(); n > 0 {
		t.Errorf("the node was seen with neither taint %d times", n)
	}
	if writes := e.nodeWrites("n1"); len(writes) != 1 {
		t.Errorf("nodegate wrote the node %d times, want once", len(writes))
	}
}

func TestCloudNodeWithLateLabels(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := newGate("agent", keyA, byLabel("ready"))
	ng.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "gpu"}
	e.declare(ng)
	k := e.kubelet("n1")
	k.register(func(n *corev1.Node) {
		n.Labels["ready"] = ""
		n.Spec.Taints = []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	})
	e.must(k.is("agent", isNone, keyA))

	k.patch(`{"metadata":{"labels":{"pool":"gpu"}}}`) // the cloud controller labels it
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
	pod := k.daemonPod(ds)
	k.run(pod, true)
	e.must(k.is("agent", isClosed, keyA))
	e.startController(0)
	k.becomes("agent", isOpen, keyA)
}

func TestControllerRestartedHalfWay(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	e.declare(newGate("first", keyA, byLabel("first")))
	e.declare(newGate("second", keyB, byLabel("second")))
	k := e.kubelet("n1")
	k.register(func(n *corev1.Node) { n.Labels["first"] = "" })
	k.becomes("first", isOpen, keyA)
	stop()
	k.patch(`{"metadata":{"labels":{"second":"","first":null}}}`)
	e.startController(0)
	k.becomes("second", isOpen, keyB)
	e.must(k.is("first", isOpen, keyA)) // OnReboot: a label that goes closes nothing
}

func TestNodesThatSlippedThrough(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	stop()
	e.must(e.deleteParameters(t.Context()))
	early := e.kubelet("early")
	e.eventually("the policy does not close the gate any more", func() error {
		node := early.register()
		if hasTaint(node, keyA) {
			e.must(e.admin.Delete(t.Context(), node))
			return errNotYet
		}
		return nil
	})

	e.startController(0)
	early.becomes("agent", isClosed, keyA) // an hour later: TestExistingNodesAreLeftAlone
}

func TestExistingNodesAreLeftAlone(t *testing.T) {
	e := newEnv(t)
	k := e.kubelet("n1")
	k.register()
	e.startController(time.Hour)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	fence := e.kubelet("fence")
	fence.register()
	fence.patch(`{"metadata":{"labels":{"ready":""}}}`)
	fence.becomes("agent", isOpen, keyA)
	e.must(k.is("agent", isNone, keyA))
	if writes := e.nodeWrites("n1"); len(writes) > 0 {
		t.Errorf("nodegate wrote an existing node: %v", writes)
	}
}
