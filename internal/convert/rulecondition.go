// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

const (
	policyAllOf = "allOf"
	policyAnyOf = "anyOf"
	// maxExpression is the maximum length of an expression, and maxExpressions that of all
	// expressions of a gate together, in bytes.
	maxExpression, maxExpressions = 1024, 4096
)

// ruleCondition is one condition of a rule.
type ruleCondition struct {
	kind, status, byDefault string
}

// conditions reads the rule's conditions.
func (r readinessRules) conditions(f fields, line int) []ruleCondition {
	if !f.has("conditions") {
		r.errorf(line, "spec has no conditions")
		return nil
	}
	items := r.items(f["conditions"], "conditions")
	if f["conditions"].Kind == yaml.SequenceNode && len(items) == 0 {
		r.errorf(f["conditions"].line, "conditions is empty: there is nothing to wait for")
	}
	var all []ruleCondition
	for _, n := range items {
		if c, ok := r.condition(resolve(n)); ok {
			all = append(all, c)
		}
	}
	return all
}

func (r readinessRules) condition(n *yaml.Node) (ruleCondition, bool) {
	f, ok := r.mapping(n, "the condition", "type", "requiredStatus", "defaultStatus")
	if !ok {
		return ruleCondition{}, false
	}
	out := ruleCondition{byDefault: string(corev1.ConditionUnknown)}
	var hasType, hasStatus bool
	out.kind, hasType = r.text(f, "type", "the condition", n.Line)
	if out.status, hasStatus = r.text(f, "requiredStatus", "the condition", n.Line); hasStatus {
		r.checkStatus(f, "requiredStatus")
	}
	if f.has("defaultStatus") {
		if out.byDefault, ok = r.str(f["defaultStatus"], "defaultStatus"); !ok {
			return out, false
		}
		r.checkStatus(f, "defaultStatus")
	}
	return out, hasType && hasStatus
}

// checkStatus adds an error if the API server would reject the rule, because the value is not
// the status of a condition.
func (r readinessRules) checkStatus(f fields, key string) {
	switch corev1.ConditionStatus(f.at(key)) {
	case corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown:
	default:
		r.errorf(f[key].line, "%s is %q, want True, False or Unknown", key, f.at(key))
	}
}

// signals converts conditions to the gate's signals. All of them must hold.
func (r readinessRules) signals(all []ruleCondition, policy v1alpha1.ReclosePolicy, f fields) []v1alpha1.Signal {
	var out []v1alpha1.Signal
	if f.has("conditionPolicy") && f.at("conditionPolicy") != policyAllOf {
		if f.at("conditionPolicy") != policyAnyOf {
			r.errorf(f["conditionPolicy"].line, "conditionPolicy is %q, want allOf or anyOf", f.at("conditionPolicy"))
		}
		out = anyOf(all)
	} else {
		out = allOf(all, policy)
	}
	if n := expressionBytes(out); n > maxExpressions {
		r.errorf(f["conditions"].line, "the types of the conditions are too long: they require expressions of %d bytes, but a gate can have %d: "+
			"divide the rule into several", n, maxExpressions)
	}
	return out
}

// allOf returns signals that all hold if all conditions are met.
func allOf(all []ruleCondition, policy v1alpha1.ReclosePolicy) []v1alpha1.Signal {
	used := names{}
	var out []v1alpha1.Signal
	for _, c := range all {
		s := v1alpha1.Signal{Name: used.unique(c.kind)}
		if policy == v1alpha1.RecloseNever {
			s.Condition = c.signal()
		} else { // a condition signal with the status Unknown would not close the gate
			s.Expression = met(policyAllOf, c)
		}
		out = append(out, s)
	}
	if len(out) <= maxSignals && expressionBytes(out) <= maxExpressions {
		return out
	}
	// One gate, and not several ones with the same taint: these would not have to be met
	// at the same time.
	out = nil
	for _, source := range packed(policyAllOf, all) {
		out = append(out, v1alpha1.Signal{Name: source.Name, SignalSource: source.SignalSource})
	}
	return out
}

// anyOf returns a signal that holds if one of the conditions is met.
func anyOf(all []ruleCondition) []v1alpha1.Signal {
	switch sources := packed(policyAnyOf, all); len(sources) {
	case 0:
		return nil
	case 1:
		return []v1alpha1.Signal{{Name: sources[0].Name, SignalSource: sources[0].SignalSource}}
	default:
		return []v1alpha1.Signal{{Name: "any", AnyOf: sources}}
	}
}

// signal returns a condition signal that holds if the condition is met.
func (c ruleCondition) signal() *v1alpha1.ConditionSignal {
	s := &v1alpha1.ConditionSignal{Type: c.kind, Status: c.status}
	if c.metIfMissing() {
		s.WhenMissing = v1alpha1.MissingHolds
	}
	return s
}

func (c ruleCondition) metIfMissing() bool { return c.status == c.byDefault }

// conditionGroup is what conditions that share an expression have in common.
type conditionGroup struct {
	status  string
	missing bool
}

// packed returns as few expressions as possible, in a stable order. Each covers conditions
// with the same status that are treated alike if they are missing.
func packed(policy string, all []ruleCondition) []v1alpha1.NamedSource {
	groups := map[conditionGroup][]ruleCondition{}
	var order []conditionGroup
	for _, c := range all {
		g := conditionGroup{c.status, c.metIfMissing()}
		if len(groups[g]) == 0 {
			order = append(order, g)
		}
		// Types are counted, so each may occur only once.
		if !slices.ContainsFunc(groups[g], func(other ruleCondition) bool { return other.kind == c.kind }) {
			groups[g] = append(groups[g], c)
		}
	}
	used := names{}
	var out []v1alpha1.NamedSource
	for _, g := range order {
		for rest := groups[g]; len(rest) > 0; {
			n := len(rest)
			for n > 1 && len(met(policy, rest[:n]...)) > maxExpression {
				n--
			}
			name := "conditions"
			if n == 1 {
				name = rest[0].kind
			}
			out = append(out, v1alpha1.NamedSource{Name: used.unique(name), SignalSource: v1alpha1.SignalSource{Expression: met(policy, rest[:n]...)}})
			rest = rest[n:]
		}
	}
	return out
}

// met returns an expression that is true if the conditions of a group are met: all of them,
// or one of them, according to the policy. It consists of one loop, because a loop over types
// within a loop over conditions exceeds the cost limit on nodes with many conditions. It counts
// conditions instead: a node has at most one of each type.
func met(policy string, group ...ruleCondition) string {
	quoted := make([]string, len(group))
	for i, c := range group {
		quoted[i] = strconv.Quote(c.kind)
	}
	is, isNot := "c.type == "+quoted[0], "c.type != "+quoted[0]
	if len(group) > 1 {
		is = "c.type in [" + strings.Join(quoted, ", ") + "]"
		isNot = "!(" + is + ")"
	}
	every := policy == policyAllOf || len(group) == 1
	switch status, missing := group[0].status, group[0].metIfMissing(); {
	case every && missing:
		return fmt.Sprintf("conditions.all(c, %s || c.status == %q)", isNot, status)
	case missing:
		return fmt.Sprintf("conditions.filter(c, %s && c.status != %q).size() < %d", is, status, len(group))
	case every && len(group) > 1:
		return fmt.Sprintf("conditions.filter(c, %s && c.status == %q).size() == %d", is, status, len(group))
	default:
		return fmt.Sprintf("conditions.exists(c, %s && c.status == %q)", is, status)
	}
}

// expressionBytes returns the length of the distinct expressions of the signals.
func expressionBytes(signals []v1alpha1.Signal) int {
	var all []string
	for i := range signals {
		all = append(all, signals[i].Expression)
		for j := range signals[i].AnyOf {
			all = append(all, signals[i].AnyOf[j].Expression)
		}
	}
	slices.Sort(all)
	return len(strings.Join(slices.Compact(all), ""))
}
