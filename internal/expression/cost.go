// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/nodegate/nodegate/internal/gate"
)

// The maximum costs of an expression, in CEL cost units of about 100 nanoseconds each.
const (
	// CostLimit is the maximum cost of one evaluation. An evaluation that exceeds it
	// ends with an error.
	CostLimit = 10_000
	// estimateLimit is the maximum estimated worst-case cost of one evaluation. The
	// worst case is far from the usual case. Kubernetes also allows estimates of ten
	// times the runtime limit.
	estimateLimit = 10 * CostLimit
)

// optimized contains the options for evaluation, counting those for measuring its cost.
var (
	optimized = cel.EvalOptions(cel.OptOptimize)
	counting  = []cel.ProgramOption{
		cel.CostLimit(CostLimit),
		chargeCalls,
		cel.CostTrackerOptions(interpreter.PresenceTestHasCost(false)),
		chargeWork, limitComparisons, orderLiterals,
	}
)

// The sizes of a large node, for which costs are estimated. On a node that exceeds one
// of them, the cost of an evaluation is always measured.
const (
	manyLabels, manyItems    = 128, 32
	longKey, longLabel       = 317, 63
	longAnnotation, longText = 1024, 256
)

// usual reports whether a node does not exceed any of these sizes. The API limits the
// lengths of labels and taints.
func usual(n *gate.Node) bool {
	if len(n.Labels) > manyLabels || len(n.Conditions) > manyItems || len(n.Taints) > manyItems {
		return false
	}
	for i := range n.Conditions {
		if len(n.Conditions[i].Type)+len(n.Conditions[i].Status) > longKey {
			return false
		}
	}
	for _, value := range n.Annotations {
		if len(value) > longAnnotation {
			return false
		}
	}
	for _, value := range n.Info {
		if len(value) > longText {
			return false
		}
	}
	return true
}

// estimator returns an estimator of costs for a node of these sizes.
func estimator(p patterns) *estimates {
	return &estimates{library.CostEstimator{SizeEstimator: sizes{}}, p}
}

// sizes estimates the sizes of the variables. It assumes that the results of functions
// are no longer than an annotation.
type sizes struct{}

// EstimateSize implements checker.CostEstimator. A path names a variable, then
// fields, "@keys", "@values" or "@items".
func (sizes) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	upTo := func(most uint64) *checker.SizeEstimate { return &checker.SizeEstimate{Min: 0, Max: most} }
	path := element.Path()
	if len(path) == 0 {
		return upTo(longAnnotation)
	}
	within := len(path) > 1
	switch undotted(path[0]) {
	case labelsVariable:
		switch {
		case !within:
			return upTo(manyLabels)
		case path[1] == "@keys":
			return upTo(longKey)
		}
		return upTo(longLabel)
	case annotationsVariable:
		return upTo(longAnnotation)
	case conditionsVariable, taintsVariable:
		if !within {
			return upTo(manyItems)
		}
		return upTo(longKey)
	}
	return upTo(longText)
}

// EstimateCallCost implements checker.CostEstimator.
func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// tame contains the functions whose result is never larger than their arguments. If an
// expression uses other functions, the estimate is not an upper bound: it does not take
// into account that a text may be doubled repeatedly.
var tame = setOf(
	operators.Conditional, operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.NotStrictlyFalse,
	operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals,
	operators.In, operators.Index, operators.OptIndex, operators.OptSelect, "orValue", "hasValue", "size",
	"startsWith", "endsWith", "contains", "int", "quantity", "semver", "timestamp", "duration",
	"compareTo", "isGreaterThan", "isLessThan", "asInteger", "major", "minor", "patch",
)

// searched contains the variables that a tame expression may iterate over.
var searched = setOf(labelsVariable, conditionsVariable, taintsVariable)

func setOf(all ...string) map[string]bool {
	set := make(map[string]bool, len(all))
	for _, one := range all {
		set[one] = true
	}
	return set
}

// isTame reports whether the estimate of an expression's cost is an upper bound: the
// expression iterates only over variables, and creates no value that is larger than
// these.
func isTame(checked *ast.AST) bool {
	result := true
	ast.PreOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.CallKind:
			result = result && tame[e.AsCall().FunctionName()]
		case ast.ComprehensionKind:
			through := e.AsComprehension().IterRange()
			result = result && through.Kind() == ast.IdentKind && searched[through.AsIdent()]
		case ast.MapKind, ast.StructKind:
			result = false
		}
	}))
	return result
}
