// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"regexp/syntax"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/library"
)

// patterns contains the costs of an expression's regular expressions, for each ten bytes of
// text. They are computed once, because parsing a pattern may take longer than searching for it.
type patterns map[string]uint64

// patternsIn returns the patterns of an expression.
func patternsIn(checked *ast.AST) patterns {
	found := make(patterns)
	ast.PreOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		if pattern, ok := literalPattern(patternOf(e.AsCall())); ok {
			found[pattern] = steps(pattern)
		}
	}))
	return found
}

// steps returns the cost of a regular expression for each ten bytes of text. Repetitions are
// counted, because few bytes can repeat an expression hundreds of times.
func steps(pattern string) uint64 {
	byLength := max(uint64(len(pattern)+3)/4, 1)
	if !strings.Contains(pattern, "{") {
		return byLength
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return byLength
	}
	return max(byLength, uint64(instructions(tree, patternMax)))
}

// matching returns the cost of searching a text for a pattern.
func (p patterns) matching(args []ref.Val) uint64 {
	each, ok := p[textOf(args[1])]
	if !ok {
		return tooMuch // checkPattern accepts only literals
	}
	return product(characters(len(textOf(args[0]))+1), each)
}

// findingAll returns the cost of finding a pattern as often as possible: the empty pattern
// is found at each character.
func (p patterns) findingAll(args []ref.Val) uint64 {
	found := uint64(len(textOf(args[0])) + 1)
	if len(args) == 3 {
		if limit, ok := args[2].(types.Int); ok && limit >= 0 {
			found = min(found, uint64(limit))
		}
	}
	return found + p.matching(args)
}

// of returns the cost of a function of takesPattern.
func (p patterns) of(function string) func(args []ref.Val) uint64 {
	if function == "findAll" {
		return p.findingAll
	}
	return p.matching
}

// charge charges the searches for these patterns.
func (p patterns) charge() cel.ProgramOption {
	var all []interpreter.CostTrackerOption
	for overload, of := range map[string]func(args []ref.Val) uint64{
		overloads.Matches: p.matching, overloads.MatchesString: p.matching, "string_find_string": p.matching,
		"string_find_all_string": p.findingAll, "string_find_all_string_int": p.findingAll,
	} {
		all = append(all, chargeOverload(overload, of))
	}
	return cel.CostTrackerOptions(all...)
}

// limit lets a search fail before it begins if it would cost more than CostLimit. The planner
// replaces a call whose regular expression is a literal by a call with the same arguments, and
// so bypasses the function's binding. The limit is therefore in the argument.
func (p patterns) limit() cel.ProgramOption {
	return cel.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		call, ok := i.(interpreter.InterpretableCall)
		if !ok || !takesPattern[call.Function()] {
			return i, nil
		}
		args, cost := call.Args(), p.of(call.Function())
		values := make([]ref.Val, len(args))
		for i, arg := range args {
			values[i] = types.NullValue
			if literal, ok := arg.(interpreter.InterpretableConst); ok {
				values[i] = literal.Value()
			}
		}
		return &search{call, limitedText{args[0], func(text ref.Val) uint64 {
			return cost(append([]ref.Val{text}, values[1:]...))
		}}}, nil
	})
}

// search is a call that searches a limited text for a pattern.
type search struct {
	interpreter.InterpretableCall
	text limitedText
}

// Args implements interpreter.InterpretableCall.
func (s *search) Args() []interpreter.InterpretableV2 {
	return append([]interpreter.InterpretableV2{s.text}, s.InterpretableCall.Args()[1:]...)
}

// Eval implements interpreter.Interpretable.
func (s *search) Eval(vars interpreter.Activation) ref.Val { return s.Exec(interpreter.AsFrame(vars)) }

// Exec implements interpreter.InterpretableV2.
func (s *search) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	if text := s.text.Exec(frame); types.IsUnknownOrError(text) {
		return text
	}
	return s.InterpretableCall.Exec(frame)
}

// limitedText is a text that is an error if searching it costs too much.
type limitedText struct {
	interpreter.InterpretableV2
	cost func(text ref.Val) uint64
}

// Eval implements interpreter.Interpretable.
func (t limitedText) Eval(vars interpreter.Activation) ref.Val {
	return t.Exec(interpreter.AsFrame(vars))
}

// Exec implements interpreter.InterpretableV2.
func (t limitedText) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	text := t.InterpretableV2.Exec(frame)
	if !types.IsUnknownOrError(text) && t.cost(text) > CostLimit {
		return errTooMuchWork()
	}
	return text
}

// estimates estimates the cost of calls as Kubernetes does, but with the repetitions of patterns.
type estimates struct {
	library.CostEstimator
	patterns patterns
}

// EstimateCallCost implements checker.CostEstimator.
func (e *estimates) EstimateCallCost(function, overload string, target *checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
	estimate := e.CostEstimator.EstimateCallCost(function, overload, target, args)
	if target != nil {
		args = append([]checker.AstNode{*target}, args...)
	}
	if !takesPattern[function] || len(args) < 2 {
		return estimate
	}
	pattern, ok := literalPattern(args[1].Expr())
	size := args[0].ComputedSize()
	if size == nil {
		size = e.EstimateSize(args[0])
	}
	if !ok || size == nil {
		return estimate
	}
	if estimate == nil {
		estimate = &checker.CallEstimate{}
	}
	each := e.patterns[pattern]
	estimate.CostEstimate = size.Add(checker.SizeEstimate{Min: 1, Max: 1}).MultiplyByCostFactor(0.1).Multiply(checker.CostEstimate{Min: each, Max: each})
	return estimate
}
