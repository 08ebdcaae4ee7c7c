// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/testcluster"
)

// A network partition must not close gates.
func TestPartitionClosesNothing(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.agent()
	inZone := func(zone string, n int) []*kubelet {
		fleet := make([]*kubelet, n)
		for i := range fleet {
			k := e.kubelet(fmt.Sprintf("%s%d", zone, i))
			k.register(func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = zone })
			k.run(k.daemonPod(ds), true)
			fleet[i] = k
		}
		return fleet
	}
	fleet, other := inZone("n", 10), inZone("other", 3)
	for _, k := range slices.Concat(fleet, other) {
		k.becomes("agent", isOpen, keyA)
	}

	// Up to 55 % of a zone's nodes count as individually unreachable.
	for _, k := range fleet[:5] {
		k.becomeUnreachable()
	}
	for _, k := range fleet[:5] {
		k.becomes("agent", isClosed, keyA)
	}
	// Beyond that, the network is the likely cause, and open gates stay open: also when a node of
	// another zone, which became unreachable later, has closed.
	for _, k := range fleet[5:8] {
		k.becomeUnreachable()
	}
	other[0].becomeUnreachable()
	other[0].becomes("agent", isClosed, keyA)
	open := 0
	for _, k := range fleet[5:] {
		if k.is("agent", isOpen, keyA) == nil {
			open++
		}
	}
	if open != len(fleet[5:]) {
		t.Errorf("%d of %d nodes are open in a partitioned zone, want all", open, len(fleet[5:]))
	}
	for _, k := range fleet {
		k.report(corev1.ConditionTrue, "")
	}
	for _, k := range fleet {
		k.becomes("agent", isOpen, keyA)
	}
}

func TestAPIServerIsKilledAndComesBack(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.agent()
	k := e.kubelet("n1")
	k.register()
	pod := k.daemonPod(ds)
	k.run(pod, false)

	e.cluster.KillComponent(testcluster.APIServer)
	e.must(e.cluster.StartComponent(t.Context(), testcluster.APIServer))
	late := e.kubelet("late")
	if born := late.register(); !hasTaint(born, keyA) {
		t.Error("after the restart, a node was created without the taint")
	}
	e.must(k.is("agent", isClosed, keyA))
	k.run(pod, true)
	k.becomes("agent", isOpen, keyA)
	k.run(late.daemonPod(ds), true)
	late.becomes("agent", isOpen, keyA)
}

// Rules are watched, so the deletion of one is noticed without waiting for the next list. A
// gate that was applied before then also closes on nodes that have registered meanwhile.
func TestKeyThatANodeReadinessRuleManages(t *testing.T) {
	e := newEnv(t)
	rule := map[string]any{
		"apiVersion": "readiness.node.x-k8s.io/v1alpha1", "kind": "NodeReadinessRule",
		"metadata": map[string]any{"name": "same-key"},
		"spec":     map[string]any{"taint": map[string]any{"key": keyA, "effect": "NoSchedule"}},
	}
	e.createOther(rule)

	e.startController(0)
	e.must(e.admin.Create(t.Context(), newGate("agent", keyA, byLabel("ready"))))
	e.eventually("the gate is not accepted", func() error {
		return e.condition("agent", v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonOwnedByNodeReadinessRule)
	})
	k := e.kubelet("n1")
	if born := k.register(); hasTaint(born, keyA) {
		t.Error("a gate that is not accepted closed a node")
	}

	e.eventually("the rules are watched", func() error { return e.watched("nodereadinessrules") })
	e.must(e.crdClient().Delete(t.Context(), &unstructured.Unstructured{Object: rule}))
	e.eventually("the gate is accepted", func() error {
		return e.condition("agent", v1alpha1.ConditionAccepted, metav1.ConditionTrue, "")
	})
	k.becomes("agent", isClosed, keyA) // it has registered while neither tool added taints
}

// watched returns an error unless the API server is serving a watch of a resource.
func (e *env) watched(resource string) error {
	kube, err := kubernetes.NewForConfig(e.cluster.Admin())
	e.must(err)
	metrics, err := kube.RESTClient().Get().AbsPath("/metrics").DoRaw(e.Context())
	if err != nil {
		return fmt.Errorf("reading the API server's metrics: %w", err)
	}
	line := regexp.MustCompile(`(?m)^apiserver_longrunning_requests\{.*resource="` + resource + `".*verb="WATCH".*\} [1-9]`)
	return unless(line.Match(metrics))
}

// Adding or removing a gate does not affect nodes that wait for other gates.
func TestOtherGatesComeAndGo(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	k := e.kubelet("n1")
	k.register()
	e.waitNextSecond() // the other gate must be younger than the node
	other := newGate("other", keyB, byLabel("other"))
	e.declare(other)
	e.must(k.is("other", isNone, keyB))
	e.must(e.admin.Delete(t.Context(), other))
	k.patch(`{"metadata":{"labels":{"ready":""}}}`)
	k.becomes("agent", isOpen, keyA)
	e.eventually("the other gate is deleted", func() error {
		return unless(apierrors.IsNotFound(e.admin.Get(t.Context(), client.ObjectKeyFromObject(other), other)))
	})
}
