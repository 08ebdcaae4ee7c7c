// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func TestExpressionSignal(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := e.declare(newGate("cel", keyA, byExpression(
		`int(annotations["example.com/images"]) >= 3 && allocatable[?"example.com/gpu"].orValue(quantity("0")).compareTo(quantity("2")) >= 0 &&
		 conditions.exists(c, c.type == "Ready" && c.status == "True") && nodeInfo.bootID != "" && taints.all(t, t.effect != "NoExecute")`)))
	e.must(e.condition("cel", v1alpha1.ConditionAccepted, "True", v1alpha1.ReasonNoBootEvidence))
	k := e.kubelet("n1")
	k.register()
	e.waitsFor("cel", "n1", v1alpha1.ReadingDiffers) // without the resource, the annotation does not matter
	k.reportsResource("example.com/gpu", 2)
	e.waitsFor("cel", "n1", v1alpha1.ReadingExpressionFailed)
	k.patch(`{"metadata":{"annotations":{"example.com/images":"2"}}}`)
	e.waitsFor("cel", "n1", v1alpha1.ReadingDiffers)
	e.must(k.is("cel", isClosed, keyA))
	k.patch(`{"metadata":{"annotations":{"example.com/images":"3"}}}`)
	k.becomes("cel", isOpen, keyA)
	k.wrote(1)

	// The gate reports the position of an error in its expression. It closes and opens no
	// node.
	closed := e.kubelet("n2")
	closed.register()
	closed.becomes("cel", isClosed, keyA)
	e.edit(ng, func() { ng.Spec.OpenWhen[0].Expression = "true &&\n  annotation.x == ''" })
	e.isInvalid("cel")
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
	ng := newClosingGate("cel", keyA, v1alpha1.SignalSource{})
	ng.Spec.CloseWhen[0].AnyOf = []v1alpha1.NamedSource{
		{Name: "old", SignalSource: byExpression(`semver(labels["example.com/driver"]).isLessThan(semver("570.0.0"))`)},
		{Name: "sick", SignalSource: byLabel("sick")},
	}
	e.declare(ng)
	k := e.kubelet("n1")
	k.register()
	e.eventually("the gate reports that the signal is unknown", func() error {
		return e.messageContains("cel", v1alpha1.ConditionReady, "unknown, and therefore not closed, on n1: signal signal: ")
	})
	k.patch(`{"metadata":{"labels":{"example.com/driver":"560.28.3"}}}`)
	k.becomes("cel", isClosed, keyA)
	k.patch(`{"metadata":{"labels":{"example.com/driver":"570.1.0"}}}`)
	k.becomes("cel", isNone, keyA)
	k.label("sick")
	k.becomes("cel", isClosed, keyA)
}
