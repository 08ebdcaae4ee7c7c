// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/testcluster"
)

// A network partition must not close gates.
func TestPartitionClosesNothing(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.agent()
	fleet := make([]*kubelet, 10)
	for i := range fleet {
		k := e.kubelet(fmt.Sprintf("n%d", i))
		k.register()
		k.run(k.daemonPod(ds), true)
		fleet[i] = k
	}
	for _, k := range fleet {
		k.becomes("agent", isOpen, keyA)
	}

	// Up to 55 % of the zone are so many nodes that fell silent.
	for _, k := range fleet[:5] {
		k.becomeUnreachable()
		k.becomes("agent", isClosed, keyA)
	}
	// Beyond, it is the network: what is open stays open.
	for _, k := range fleet[5:8] {
		k.becomeUnreachable()
	}
	e.settled()
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
		t.Error("after the restart a node was born untainted")
	}
	e.must(k.is("agent", isClosed, keyA))
	k.run(pod, true)
	k.becomes("agent", isOpen, keyA)
	k.run(late.daemonPod(ds), true)
	late.becomes("agent", isOpen, keyA)
}

func TestKeyThatANodeReadinessRuleManages(t *testing.T) {
	e := newEnv(t)
	api := e.crdClient()
	definition := readinessRuleDefinition()
	e.must(api.Create(t.Context(), definition))
	t.Cleanup(func() { e.must(api.Delete(context.Background(), definition)) }) // the test's own context has ended
	rule := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "readiness.node.x-k8s.io/v1alpha1", "kind": "NodeReadinessRule",
		"metadata": map[string]any{"name": "theirs"},
		"spec":     map[string]any{"taint": map[string]any{"key": keyA, "effect": "NoSchedule"}},
	}}
	e.eventually("the rule is created", func() error { return api.Create(t.Context(), rule.DeepCopy()) })

	e.startController(0)
	e.must(e.admin.Create(t.Context(), newGate("agent", keyA, byLabel("ready"))))
	e.eventually("the gate yields", func() error {
		return e.condition("agent", v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonOwnedByNodeReadinessRule)
	})
	k := e.kubelet("n1")
	if born := k.register(); hasTaint(born, keyA) {
		t.Error("a gate that is not accepted closed a node")
	}
}

// readinessRuleDefinition is as much of that project's kind as matters here.
func readinessRuleDefinition() *apiextensionsv1.CustomResourceDefinition {
	preserve := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "nodereadinessrules.readiness.node.x-k8s.io", Annotations: map[string]string{
			apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, for a test",
		}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "readiness.node.x-k8s.io", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "nodereadinessrules", Singular: "nodereadinessrule", Kind: "NodeReadinessRule", ListKind: "NodeReadinessRuleList",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1alpha1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &preserve,
				}},
			}},
		},
	}
}

// Adding or removing a gate does not affect nodes that wait for other gates.
func TestOtherGatesComeAndGo(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	k := e.kubelet("n1")
	k.register()
	e.waitNextSecond() // so that the other gate is younger than the node
	other := newGate("other", keyB, byLabel("other"))
	e.declare(other)
	e.must(k.is("other", isNone, keyB))
	e.must(e.admin.Delete(t.Context(), other))
	k.patch(`{"metadata":{"labels":{"ready":""}}}`)
	k.becomes("agent", isOpen, keyA)
	e.eventually("the other gate is gone", func() error {
		err := e.admin.Get(t.Context(), client.ObjectKeyFromObject(other), &v1alpha1.NodeGate{})
		if client.IgnoreNotFound(err) == nil && err != nil {
			return nil
		}
		return errNotYet
	})
}
