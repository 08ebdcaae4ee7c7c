// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/internal/gate"
)

// largeRule is a rule with as many conditions as a rule may have. All of them require the same
// status.
type largeRule struct {
	mode, policy, prefix, required, byDefault string
}

func (r largeRule) text() string {
	var text strings.Builder
	fmt.Fprintf(&text, "apiVersion: readiness.node.x-k8s.io/v1alpha1\nkind: NodeReadinessRule\nmetadata: {name: a}\nspec:\n"+
		"  taint: {key: readiness.k8s.io/a, effect: NoSchedule}\n  nodeSelector: {}\n  enforcementMode: %s\n  conditionPolicy: %s\n  conditions:\n", r.mode, r.policy)
	for i := range 32 {
		fmt.Fprintf(&text, "  - {type: %s%d, requiredStatus: '%s', defaultStatus: '%s'}\n", r.prefix, i, r.required, r.byDefault)
	}
	return text.String()
}

// node returns the conditions of a node on which the rule's conditions have these statuses,
// after the conditions of other programs. Conditions with the status "" are missing.
func (r largeRule) node(others int, statuses [32]string) []gate.Condition {
	all := []gate.Condition{readyNode}
	for i := range others {
		all = append(all, gate.Condition{Type: fmt.Sprint("example.org/Other", i), Status: corev1.ConditionTrue})
	}
	for i, status := range statuses {
		if status != "" {
			all = append(all, gate.Condition{Type: fmt.Sprint(r.prefix, i), Status: corev1.ConditionStatus(status)})
		}
	}
	return all
}

// holds reports whether node-readiness-controller considers the rule met.
func (r largeRule) holds(statuses [32]string) bool {
	met := 0
	for _, status := range statuses {
		if status == r.required || status == "" && r.byDefault == r.required {
			met++
		}
	}
	return met == len(statuses) || met > 0 && r.policy == policyAnyOf
}

// The gate of a rule with many conditions works on nodes that have many other conditions: its
// expressions do not exceed the cost limit there.
func TestSeedNodeReadinessControllerConvertManyConditionsOfManyOnTheNode(t *testing.T) {
	const met, not = "met", "not met"
	states := map[string]struct{ first, rest string }{
		"all met": {met, met}, "one not met": {not, met}, "one met": {met, not}, "none met": {not, not},
		"one missing": {"", met}, "all missing": {"", ""}, "one met, others missing": {met, ""}, "one not met, others missing": {not, ""},
	}
	for _, r := range largeRules() {
		result := NodeReadinessRules(Source{Name: "rule.yaml", Data: []byte(r.text())})
		gates := compileAll(t, checkGates(t, result))
		if len(gates) != 1 {
			t.Fatalf("%+v: %d gates:\n%s", r, len(gates), findingsText(result))
		}
		status := map[string]string{"": "", met: r.required, not: "Unknown"}
		for name, state := range states {
			statuses := [32]string{}
			for i := range statuses {
				statuses[i] = status[state.rest]
			}
			statuses[9] = status[state.first]
			for _, others := range []int{0, 20, 100} {
				conditions := r.node(others, statuses)
				want := r.holds(statuses)
				if got := len(gate.Decide(gates, freshNode(gates, conditions), epoch).Taints) == 0; got != want {
					t.Errorf("%+v, %s, %d others: open %v, want %v", r, name, others, got, want)
				}
				if r.mode != "continuous" {
					continue
				}
				if got := len(gate.Decide(gates, openNode(gates, conditions), epoch).Taints) == 0; got != want {
					t.Errorf("%+v, %s, %d others: still open %v, want %v", r, name, others, got, want)
				}
			}
		}
	}
}

// largeRules returns rules of each kind, with types that fit in one expression and with types
// that require several.
func largeRules() []largeRule {
	var all []largeRule
	for _, mode := range []string{"bootstrap-only", "continuous"} {
		for _, policy := range []string{policyAllOf, policyAnyOf} {
			for _, prefix := range []string{"example.com/A", "example.com/" + strings.Repeat("A", 80)} {
				for _, required := range []string{"True", "False"} {
					for _, byDefault := range []string{"Unknown", required} {
						all = append(all, largeRule{mode, policy, prefix, required, byDefault})
					}
				}
			}
		}
	}
	return all
}

// The API server rejects a rule with two conditions of one type, but a file can contain them.
func TestConditionsAreCountedOnce(t *testing.T) {
	for policy, want := range map[string]string{
		policyAllOf: `conditions.filter(c, c.type in ["A", "B"] && c.status == "True").size() == 2`,
		policyAnyOf: `conditions.exists(c, c.type in ["A", "B"] && c.status == "True")`,
	} {
		all := []ruleCondition{{"A", "True", "Unknown"}, {"B", "True", "Unknown"}, {"A", "True", "False"}}
		got := packed(policy, all)
		if len(got) != 1 || got[0].Expression != want {
			t.Errorf("%s: got %+v, want %s", policy, got, want)
		}
	}
}
