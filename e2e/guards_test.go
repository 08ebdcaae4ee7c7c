// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
)

// allGuards are the policies that the controller proves once a minute.
var allGuards = []string{admission.ConfinementPolicy, admission.RecordsPolicy, admission.ParametersPolicy, admission.AcknowledgePolicy}

// Guards are disabled before the controller starts and while it runs. The Ready condition of
// each gate names them, gates still open, and the condition recovers when they are enabled.
func TestGuardsAreSwitchedOffAndOn(t *testing.T) {
	e := newEnv(t)
	t.Cleanup(func() { e.must(e.apply(context.Background())) })
	deleteBinding := func(guard string) {
		t.Helper()
		e.must(e.admin.Delete(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: guard}}))
	}
	deleteBinding(admission.ParametersPolicy)
	deleteBinding(admission.ConfinementPolicy)
	deleteBinding(admission.AcknowledgePolicy)
	e.must(e.admin.Delete(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: admission.RecordsPolicy}}))
	e.kubelet("n1").register()
	e.startController(0)
	e.must(e.admin.Create(t.Context(), newGate("agent", keyA, byLabel("ready"))))
	e.must(e.admin.Create(t.Context(), newClosingGate("level", keyB, byLabel("bad"))))
	e.awaitMissingGuards(allGuards...)

	second := e.kubelet("n2")
	second.register()
	second.label("ready")
	second.becomes("agent", isOpen, keyA) // gates work without the guards
	e.must(e.apply(t.Context()))
	e.awaitMissingGuards()

	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	e.must(e.admin.Get(t.Context(), client.ObjectKey{Name: admission.ConfinementPolicy}, binding))
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
	e.must(e.admin.Update(t.Context(), binding))
	e.awaitMissingGuards(admission.ConfinementPolicy) // within a minute
	e.must(e.apply(t.Context()))
	e.awaitMissingGuards()
}

// awaitMissingGuards waits until the Ready condition of both gates names exactly these guards
// as not in force, or is True if none are given.
func (e *env) awaitMissingGuards(guards ...string) {
	e.Helper()
	for _, gate := range []string{"agent", "level"} {
		e.eventually(fmt.Sprintf("gate %s misses guards %v", gate, guards), func() error {
			if len(guards) == 0 {
				return e.condition(gate, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
			}
			message := e.message(gate, v1alpha1.ConditionReady)
			for _, guard := range allGuards {
				if named := strings.Contains(message, "guard "+guard+" is not in force"); named != slices.Contains(guards, guard) {
					return fmt.Errorf("the message is %q", message)
				}
			}
			return e.condition(gate, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonGuardNotProved)
		})
	}
}
