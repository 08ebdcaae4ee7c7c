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

// What an expression may cost, in CEL's units: a hundred nanoseconds or so each.
const (
	// CostLimit is what one evaluation may cost. It then ends with an error.
	CostLimit = 10_000
	// estimateLimit is what one evaluation may cost at worst, by estimate. The
	// worst is far from the usual, as Kubernetes allows for, too: it estimates ten
	// times as much as it lets an evaluation cost.
	estimateLimit = 10 * CostLimit
)

// optimized is how expressions are evaluated, and counting how what they cost
// is counted.
var (
	optimized = cel.EvalOptions(cel.OptOptimize)
	counting  = []cel.ProgramOption{
		cel.CostLimit(CostLimit),
		cel.CostTracking(&library.CostEstimator{}),
		cel.CostTrackerOptions(interpreter.PresenceTestHasCost(false)),
	}
)

// The sizes of a usual node, or rather of a large one: costs are estimated with
// these. On a node that is larger an evaluation is counted in any case.
const (
	manyLabels, manyItems    = 128, 32
	longKey, longLabel       = 317, 63
	longAnnotation, longText = 1024, 256
)

// usual tells whether a node has none of the sizes that costs are estimated
// with exceeded. Of labels and taints the API bounds the lengths.
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

// estimator estimates costs on a node of these sizes.
var estimator = &library.CostEstimator{SizeEstimator: sizes{}}

// sizes estimates how large the variables are, and takes it that what functions
// make of them is no longer than an annotation.
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
	switch path[0] {
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

// tame are functions that make nothing larger than what they are given. Of an
// expression that uses others an estimate is no upper bound: it does not see that
// a text is doubled again and again.
var tame = setOf(
	operators.Conditional, operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.NotStrictlyFalse,
	operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals,
	operators.In, operators.Index, operators.OptIndex, operators.OptSelect, "orValue", "hasValue", "size",
	"startsWith", "endsWith", "contains", "int", "quantity", "semver", "timestamp", "duration",
	"compareTo", "isGreaterThan", "isLessThan", "asInteger", "major", "minor", "patch",
)

// searched are the variables that a tame expression may go through.
var searched = setOf(labelsVariable, conditionsVariable, taintsVariable)

func setOf(all ...string) map[string]bool {
	set := make(map[string]bool, len(all))
	for _, one := range all {
		set[one] = true
	}
	return set
}

// isTame tells whether the estimate of an expression's cost is an upper bound: it
// goes through nothing but variables, and makes nothing larger than these.
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
