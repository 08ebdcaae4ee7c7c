// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gateset"
)

// termsOf returns the budgets of the gates.
func termsOf(s *gateset.Set) map[string]fleet.BudgetTerms {
	all := make(map[string]fleet.BudgetTerms, len(s.Declared))
	for name, ng := range s.Declared {
		all[name] = fleet.BudgetTerms{Budget: ng.Spec.Budget.MaxReclosed, Since: s.Since[name]}
	}
	return all
}
