// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"fmt"
	"regexp/syntax"
	"strings"

	"github.com/google/cel-go/common/ast"
)

// The bounds of an expression. They are checked before the type checker runs, because
// the time and memory of the type checker can grow exponentially with the length of the
// text, and it cannot be interrupted. See
// docs/decisions/0035-expressions-are-bounded.md.
const (
	// TextMax is the maximum length of an expression in bytes. The schema of NodeGate
	// has the same limit, in characters.
	TextMax = 1024
	// nodesMax is the maximum number of nodes in the syntax tree, with macros expanded.
	nodesMax = 400
	// depthMax is the maximum depth of that tree.
	depthMax = 40
	// loopsMax is the maximum nesting of loops (all, exists, map, filter and so on). A
	// loop over the result of another loop counts as nested.
	loopsMax = 4
	// literalsMax is the maximum nesting of list and map literals. The macros map and
	// filter expand to a list literal each.
	literalsMax = 8
	// freeMapsMax is the maximum number of map literals whose keys are not all
	// literals. Each of them can double the size of a type. transformMap expands to
	// one.
	freeMapsMax = 2
	// optionalsMax is the maximum number of calls of optMap and optFlatMap. Each of
	// them doubles the expression before it while the text is parsed.
	optionalsMax = 3
	// patternMax is the maximum number of instructions of a regular expression.
	patternMax = 1000
	// patternTextMax is the maximum length of a regular expression in bytes.
	patternTextMax = 256
)

// checkText returns an error if a text is too long, or would be too large once parsed.
func checkText(text string) error {
	if len(text) > TextMax {
		return fmt.Errorf("it has %d bytes, but at most %d are allowed; shorten it, or split it into several signals", len(text), TextMax)
	}
	if n := strings.Count(text, "optMap") + strings.Count(text, "optFlatMap"); n > optionalsMax {
		return fmt.Errorf("it uses optMap and optFlatMap %d times, but at most %d are allowed; use orValue or hasValue instead", n, optionalsMax)
	}
	return nil
}

// checkTree returns an error if the syntax tree exceeds a bound. It stops at the first
// violation, so that its own time is bounded.
func checkTree(parsed *ast.AST) error {
	c := counter{most: bounds{nodesMax, depthMax, loopsMax, literalsMax, freeMapsMax}}
	return c.visit(parsed.Expr(), nesting{})
}

// bounds contains the bounds of a syntax tree.
type bounds struct{ nodes, depth, loops, literals, freeMaps int }

// counter counts what is bounded for the whole tree.
type counter struct {
	most            bounds
	nodes, freeMaps int
}

// nesting counts what is bounded on the path from the root to a node.
type nesting struct{ depth, loops, literals int }

func (c *counter) visit(e ast.Expr, n nesting) error {
	c.nodes++
	n.depth++
	switch e.Kind() {
	case ast.ComprehensionKind:
		n.loops++
	case ast.ListKind:
		n.literals++
	case ast.MapKind:
		n.literals++
		if !literalKeys(e.AsMap()) {
			c.freeMaps++
		}
	}
	if err := c.check(n); err != nil {
		return err
	}
	if e.Kind() == ast.CallKind {
		if err := checkPattern(e.AsCall()); err != nil {
			return err
		}
	}
	for _, child := range children(e) {
		if err := c.visit(child, n); err != nil {
			return err
		}
	}
	return nil
}

func (c *counter) check(n nesting) error {
	switch {
	case c.nodes > c.most.nodes:
		return fmt.Errorf("it has more than %d operands and operators, macros such as exists expanded; split it into several signals", c.most.nodes)
	case n.depth > c.most.depth:
		return fmt.Errorf("it nests more than %d levels deep, macros such as exists expanded; split it into several signals", c.most.depth)
	case n.loops > c.most.loops:
		return fmt.Errorf("it nests more than %d loops, such as exists and map; use fewer", c.most.loops)
	case n.literals > c.most.literals:
		return fmt.Errorf("it nests more than %d lists and maps; use fewer", c.most.literals)
	case c.freeMaps > c.most.freeMaps:
		return fmt.Errorf("it has more than %d maps that are empty or have computed keys; use literal keys, or fewer maps", c.most.freeMaps)
	}
	return nil
}

// literalKeys reports whether a map is not empty and all of its keys are literals.
func literalKeys(m ast.MapExpr) bool {
	for _, entry := range m.Entries() {
		if entry.AsMapEntry().Key().Kind() != ast.LiteralKind {
			return false
		}
	}
	return m.Size() > 0
}

func children(e ast.Expr) []ast.Expr {
	switch e.Kind() {
	case ast.SelectKind:
		return []ast.Expr{e.AsSelect().Operand()}
	case ast.CallKind:
		call := e.AsCall()
		if call.IsMemberFunction() {
			return append([]ast.Expr{call.Target()}, call.Args()...)
		}
		return call.Args()
	case ast.ListKind:
		return e.AsList().Elements()
	case ast.MapKind:
		var all []ast.Expr
		for _, entry := range e.AsMap().Entries() {
			all = append(all, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
		return all
	case ast.StructKind:
		var all []ast.Expr
		for _, field := range e.AsStruct().Fields() {
			all = append(all, field.AsStructField().Value())
		}
		return all
	case ast.ComprehensionKind:
		loop := e.AsComprehension()
		return []ast.Expr{loop.IterRange(), loop.AccuInit(), loop.LoopCondition(), loop.LoopStep(), loop.Result()}
	}
	return nil
}

// takesPattern contains the functions whose first argument is a regular expression. For
// the global form of matches, it is the second argument.
var takesPattern = setOf("matches", "find", "findAll")

// patternOf returns the regular expression of a call of such a function, or nil.
func patternOf(call ast.CallExpr) ast.Expr {
	args := call.Args()
	if !call.IsMemberFunction() && len(args) > 0 {
		args = args[1:]
	}
	if !takesPattern[call.FunctionName()] || len(args) == 0 {
		return nil
	}
	return args[0]
}

// literalPattern returns the text of a regular expression if it is a literal.
func literalPattern(e ast.Expr) (pattern string, ok bool) {
	if e == nil || e.Kind() != ast.LiteralKind {
		return "", false
	}
	return textOf(e.AsLiteral()), true
}

// checkPattern returns an error if a call's regular expression is not a literal, or
// compiles to too many instructions.
func checkPattern(call ast.CallExpr) error {
	e := patternOf(call)
	if e == nil {
		return nil
	}
	pattern, ok := literalPattern(e)
	if !ok {
		return fmt.Errorf("the regular expression of %s must be a literal", call.FunctionName())
	}
	if len(pattern) > patternTextMax {
		return fmt.Errorf("the regular expression of %s has %d bytes, but at most %d are allowed; shorten it", call.FunctionName(), len(pattern), patternTextMax)
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil // the type checker reports it with its position
	}
	if instructions(tree, patternMax) > patternMax {
		return fmt.Errorf("the regular expression of %s is too large: it compiles to more than %d instructions; use fewer or smaller repetitions",
			call.FunctionName(), patternMax)
	}
	return nil
}

// instructions returns approximately how many instructions a regular expression
// compiles to. If these are more than most, it returns any number above most.
func instructions(tree *syntax.Regexp, most int) int {
	sum := 1 + len(tree.Rune)/8
	for _, sub := range tree.Sub {
		if sum += instructions(sub, most); sum > most {
			return sum
		}
	}
	if tree.Op == syntax.OpRepeat {
		return sum * max(tree.Min, tree.Max, 1)
	}
	return sum
}
