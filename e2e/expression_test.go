// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func byExpression(text string) v1alpha1.SignalSource { return v1alpha1.SignalSource{Expression: text} }

// messageContains verifies the message of a gate's condition.
func (e *env) messageContains(gateName, kind, text string) error {
	var ng v1alpha1.NodeGate
	if err := e.admin.Get(e.Context(), client.ObjectKey{Name: gateName}, &ng); err != nil {
		return err
	}
	c := meta.FindStatusCondition(ng.Status.Conditions, kind)
	if c == nil || !strings.Contains(c.Message, text) {
		return fmt.Errorf("condition %s of gate %s is %s, and does not say %q", kind, gateName, conditionText(c), text)
	}
	return nil
}

func TestExpressionSignal(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := e.declare(newGate("cel", keyA, byExpression(
		`int(annotations["example.com/images"]) >= 3 && allocatable[?"example.com/gpu"].orValue(quantity("0")).compareTo(quantity("2")) >= 0 &&
		 conditions.exists(c, c.type == "Ready" && c.status == "True") && nodeInfo.bootID != "" && taints.all(t, t.effect != "NoExecute")`)))
	e.must(e.condition("cel", v1alpha1.ConditionAccepted, "True", v1alpha1.ReasonNoBootEvidence))
	k := e.kubelet("n1")
	k.register()
	e.waitsFor("cel", "n1", v1alpha1.ReadingDiffers) // no resource: the annotation does not matter
	k.reportsResource("example.com/gpu", 2)
	e.waitsFor("cel", "n1", v1alpha1.ReadingExpressionFailed)
	k.patch(`{"metadata":{"annotations":{"example.com/images":"2"}}}`)
	e.waitsFor("cel", "n1", v1alpha1.ReadingDiffers)
	e.must(k.is("cel", isClosed, keyA))
	k.patch(`{"metadata":{"annotations":{"example.com/images":"3"}}}`)
	k.becomes("cel", isOpen, keyA)
	k.wrote(1)

	// An expression that is wrong is told of with its place; no node is closed,
	// and none is let go.
	closed := e.kubelet("n2")
	closed.register()
	closed.becomes("cel", isClosed, keyA)
	e.edit(ng, func() { ng.Spec.OpenWhen[0].Expression = "true &&\n  annotation.x == ''" })
	e.eventually("the gate is not accepted", func() error {
		return e.condition("cel", v1alpha1.ConditionAccepted, "False", v1alpha1.ReasonInvalidSpec)
	})
	e.must(e.messageContains("cel", v1alpha1.ConditionAccepted, "compiling signal signal: compiling its expression: line 2, column 3: undeclared reference to 'annotation'"))
	closed.settled()
	e.must(closed.is("cel", isClosed, keyA))
	e.must(k.is("cel", isOpen, keyA))
	e.edit(ng, func() { ng.Spec.OpenWhen[0].Expression = `"example.com/images" in annotations` })
	closed.patch(`{"metadata":{"annotations":{"example.com/images":""}}}`)
	closed.becomes("cel", isOpen, keyA)
}

// A gate is closed while an expression is true. If the evaluation fails, nothing changes,
// and the gate reports it.
func TestExpressionCloses(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := newGate("cel", keyA, byExpression(""))
	ng.Spec.OpenWhen = nil
	ng.Spec.CloseWhen = []v1alpha1.Signal{{Name: "any", AnyOf: []v1alpha1.NamedSource{
		{Name: "old", SignalSource: byExpression(`semver(labels["example.com/driver"]).isLessThan(semver("570.0.0"))`)},
		{Name: "sick", SignalSource: byLabel("sick")},
	}}}
	e.declare(ng)
	k := e.kubelet("n1")
	k.register()
	e.eventually("the gate says what it does not know", func() error {
		return e.messageContains("cel", v1alpha1.ConditionReady, "unknown, and so not closed, on n1: signal any: ")
	})
	k.patch(`{"metadata":{"labels":{"example.com/driver":"560.28.3"}}}`)
	k.becomes("cel", isClosed, keyA)
	k.patch(`{"metadata":{"labels":{"example.com/driver":"570.1.0"}}}`)
	k.becomes("cel", "", keyA)
	k.label("sick")
	k.becomes("cel", isClosed, keyA)
}
