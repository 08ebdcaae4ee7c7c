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

// Expression is a compiled expression. It is immutable and safe for concurrent
// use.
type Expression struct {
	// counted ends at CostLimit.
	counted cel.Program
	// uncounted is three times as fast, for usual nodes. Nil if even on one of
	// these the expression might cost more than CostLimit.
	uncounted cel.Program
	names     names
	// variables are those that it mentions.
	variables map[string]bool
}

// errorsMax is how many errors of an expression are told.
const errorsMax = 3

// Compile compiles an expression, which must return a bool. An error tells its
// place in the expression, if it has one.
func Compile(expression string) (*Expression, error) {
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("setting up CEL: %w", err)
	}
	checked, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, explain(issues)
	}
	if got := checked.OutputType(); !got.IsExactType(cel.BoolType) {
		return nil, fmt.Errorf("it must return bool, and returns %s", got)
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

// plan says how the expression is evaluated, if it does not cost too much.
func (e *Expression) plan(env *cel.Env, checked *cel.Ast) error {
	cost, err := env.EstimateCost(checked, estimator)
	if err != nil {
		return fmt.Errorf("estimating its cost: %w", err)
	}
	if cost.Max > estimateLimit {
		return fmt.Errorf("it may cost too much: %d by estimate, and at most %d is allowed; "+
			"look at fewer things, or avoid lists within lists", cost.Max, estimateLimit)
	}
	if e.counted, err = env.Program(checked, append([]cel.ProgramOption{optimized}, counting...)...); err != nil {
		return fmt.Errorf("planning its evaluation: %w", err)
	}
	if cost.Max > CostLimit || !isTame(checked.NativeRep()) {
		return nil
	}
	if e.uncounted, err = env.Program(checked, optimized); err != nil {
		return fmt.Errorf("planning its evaluation: %w", err)
	}
	return nil
}

// explain says what is wrong with an expression, and where.
func explain(issues *cel.Issues) error {
	all := issues.Errors()
	told := make([]string, 0, errorsMax+1)
	for _, e := range all[:min(len(all), errorsMax)] {
		told = append(told, place(e.Location.Line(), e.Location.Column())+": "+strings.ReplaceAll(e.Message, " (in container '')", ""))
	}
	if more := len(all) - errorsMax; more > 0 {
		told = append(told, fmt.Sprintf("and %d more", more))
	}
	return errors.New(strings.Join(told, "; "))
}

// Holds evaluates the expression on a node, for a gate whose taints have these keys.
// An error says why there is no answer: something is not there, or the
// evaluation cost more than CostLimit.
func (e *Expression) Holds(n *gate.Node, taintKeys ...string) (bool, error) {
	program := e.counted
	if e.uncounted != nil && usual(n) {
		program = e.uncounted
	}
	out, _, err := program.Eval(node{Node: n, own: taintKeys})
	if err != nil {
		return false, err
	}
	holds, ok := out.(types.Bool)
	if !ok {
		return false, fmt.Errorf("it returned %s instead of bool", out.Type())
	}
	return bool(holds), nil
}

// Annotations are the keys of annotations that the expression looks at.
func (e *Expression) Annotations() []string { return e.names.of(annotationsVariable) }

// Resources are the resources of allocatable that the expression looks at.
func (e *Expression) Resources() []string { return e.names.of(allocatableVariable) }

// NodeInfo are the fields of nodeInfo that the expression looks at.
func (e *Expression) NodeInfo() []string { return e.names.of(nodeInfoVariable) }

// LooksAtConditions tells whether the expression looks at the node's conditions.
func (e *Expression) LooksAtConditions() bool { return e.variables[conditionsVariable] }

// LooksAtTaints tells whether the expression looks at the node's taints.
func (e *Expression) LooksAtTaints() bool { return e.variables[taintsVariable] }
