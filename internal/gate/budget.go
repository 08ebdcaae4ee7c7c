// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// A node's decision asks for budget (WantBudget) and does not know how much there
// is. This is what whoever counts goes by.

// MaxReclosed is how many of a number of nodes a budget lets be closed. A percentage
// is rounded up, so that a small zone is not left without any.
func MaxReclosed(budget *intstr.IntOrString, nodes int) int {
	if budget == nil { // the default that the schema gives
		budget = new(intstr.FromString("20%"))
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(budget, nodes, true)
	if err != nil { // the schema lets nothing else in
		return 0
	}
	return n
}

// IsBudgeted tells whether closing for this reason counts against the budget.
func IsBudgeted(reason v1alpha1.Reason) bool {
	switch reason {
	case v1alpha1.ReasonRegression, v1alpha1.ReasonExisting, v1alpha1.ReasonExistingIdle, v1alpha1.ReasonSignalsHold:
		return true
	}
	return false
}
