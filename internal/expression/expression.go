// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"github.com/nodegate/nodegate/internal/gate"
)

// Expression is a compiled expression. It is immutable and safe for concurrent use.
type Expression struct {
	// counted measures the cost and ends at CostLimit.
	counted cel.Program
	// uncounted is three times as fast and is used for usual nodes. Nil if the
	// expression might cost more than CostLimit even on a usual node.
	uncounted cel.Program
	names     names
	// variables contains the variables that the expression uses.
	variables map[string]bool
}

// errorsMax is the maximum number of errors of an expression that are reported.
const errorsMax = 3

// Compile compiles an expression, which must return a bool. The error contains the
// position in the expression, if there is one. While an expression is in use, Compile
// returns the same Expression for the same text.
func Compile(expression string) (*Expression, error) {
	return compiled.getOrCompile(expression, compile)
}

func compile(expression string) (*Expression, error) {
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("setting up CEL: %w", err)
	}
	checked, err := check(env, expression)
	if err != nil {
		return nil, err
	}
	if got := checked.OutputType(); !got.IsExactType(cel.BoolType) {
		return nil, fmt.Errorf("it must return bool, but returns %s", got)
	}
	e := &Expression{}
	if e.names, err = namesIn(checked.NativeRep()); err != nil {
		return nil, err
	}
	e.variables = variablesIn(checked.NativeRep())
	if err := e.plan(env, checked); err != nil {
		return nil, err
	}
	return e, nil
}

// check parses an expression and checks its types, if the expression is within the
// bounds.
func check(env *cel.Env, expression string) (*cel.Ast, error) {
	if err := checkText(expression); err != nil {
		return nil, err
	}
	parsed, issues := env.Parse(expression)
	if len(issues.Errors()) > 0 { // Err() would repeat the text for each error
		return nil, explain(issues)
	}
	if err := checkTree(parsed.NativeRep()); err != nil {
		return nil, err
	}
	checked, issues := env.Check(parsed)
	if len(issues.Errors()) > 0 {
		return nil, explain(issues)
	}
	return checked, nil
}

// plan determines how the expression is evaluated, or returns an error if it may cost
// too much.
func (e *Expression) plan(env *cel.Env, checked *cel.Ast) error {
	searched := patternsIn(checked.NativeRep())
	most, err := checkCost(env, checked, searched)
	if err != nil {
		return err
	}
	if e.counted, err = countedProgram(env, checked, searched); err != nil {
		return err
	}
	if most > CostLimit || !isTame(checked.NativeRep()) {
		return nil
	}
	if e.uncounted, err = env.Program(checked, optimized, limitComparisons, searched.limit()); err != nil {
		return fmt.Errorf("planning its evaluation: %w", err)
	}
	return nil
}

// countedProgram returns a program that measures the cost of each evaluation.
func countedProgram(env *cel.Env, checked *cel.Ast, searched patterns) (cel.Program, error) {
	program, err := env.Program(checked, append([]cel.ProgramOption{optimized, searched.charge(), searched.limit()}, counting...)...)
	if err != nil {
		return nil, fmt.Errorf("planning its evaluation: %w", err)
	}
	return program, nil
}

// checkCost returns the estimated maximum cost of an expression, or an error if it may
// cost too much.
func checkCost(env *cel.Env, checked *cel.Ast, searched patterns) (uint64, error) {
	cost, err := env.EstimateCost(checked, estimator(searched))
	if err != nil {
		return 0, fmt.Errorf("estimating its cost: %w", err)
	}
	if cost.Max > estimateLimit {
		return 0, errTooCostly(cost.Max)
	}
	return cost.Max, nil
}

func errTooCostly(estimate uint64) error {
	return fmt.Errorf("it may cost too much: the estimate is %d, but at most %d is allowed; "+
		"use fewer or less deeply nested macros such as all and exists, and smaller repetitions in regular expressions", estimate, estimateLimit)
}

// explain returns the errors of an expression, with their positions.
func explain(issues *cel.Issues) error {
	all := issues.Errors()
	texts := make([]string, 0, errorsMax+1)
	for _, e := range all[:min(len(all), errorsMax)] {
		texts = append(texts, place(e.Location.Line(), e.Location.Column())+": "+strings.ReplaceAll(e.Message, " (in container '')", ""))
	}
	if more := len(all) - errorsMax; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return errors.New(strings.Join(texts, "; "))
}

// Holds evaluates the expression for a node and a gate whose taints have these keys. It
// returns an error if the expression reads a value that does not exist, or if the
// evaluation costs more than CostLimit.
func (e *Expression) Holds(n *gate.Node, taintKeys ...string) (bool, error) {
	program := e.counted
	if e.uncounted != nil && usual(n) {
		program = e.uncounted
	}
	return holds(program, node{Node: n, own: taintKeys})
}

// holds evaluates a program, which must return a bool.
func holds(program cel.Program, input any) (bool, error) {
	out, _, err := program.Eval(input)
	if err != nil {
		return false, err
	}
	result, ok := out.(types.Bool)
	if !ok {
		return false, fmt.Errorf("it returned %s instead of bool", out.Type())
	}
	return bool(result), nil
}

// Annotations returns the keys of the annotations that the expression reads.
func (e *Expression) Annotations() []string { return e.names.of(annotationsVariable) }

// Resources returns the names of the allocatable resources that the expression reads.
func (e *Expression) Resources() []string { return e.names.of(allocatableVariable) }

// NodeInfo returns the names of the nodeInfo fields that the expression reads.
func (e *Expression) NodeInfo() []string { return e.names.of(nodeInfoVariable) }

// ReadsConditions reports whether the expression reads the node's conditions.
func (e *Expression) ReadsConditions() bool { return e.variables[conditionsVariable] }

// ReadsTaints reports whether the expression reads the node's taints.
func (e *Expression) ReadsTaints() bool { return e.variables[taintsVariable] }
