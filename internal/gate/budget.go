// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// A decision about one node requests budget (WantBudget) but does not know how much is
// left. The controller counts nodes and grants budget by the rules below.

// MaxReclosed returns how many of the given number of nodes may be closed under the
// budget. A percentage is rounded up, so that even a small zone gets a budget of one.
func MaxReclosed(budget *intstr.IntOrString, nodes int) int {
	if budget == nil { // the default in the schema
		budget = new(intstr.FromString("20%"))
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(budget, nodes, true)
	if err != nil { // the schema rejects such a budget
		return 0
	}
	return n
}

// IsBudgeted reports whether closing for this reason counts against the budget.
func IsBudgeted(reason v1alpha1.Reason) bool {
	switch reason {
	case v1alpha1.ReasonRegression, v1alpha1.ReasonExisting, v1alpha1.ReasonExistingIdle, v1alpha1.ReasonRebootedUnobserved, v1alpha1.ReasonSignalsHold, v1alpha1.ReasonGroupIncomplete:
		return true
	}
	return false
}
