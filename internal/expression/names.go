// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// Of annotations, allocatable and nodeInfo only that is kept which some
// expression names. So each of these must be named where it is used: what an
// expression does not name, it would not find.

// literally says how what is in a variable is named, for variables of which not
// all is kept.
var literally = map[string]string{
	annotationsVariable: `the keys of annotations must be named literally, as in annotations[?"example.com/key"] or ` +
		`"example.com/key" in annotations: nodegate keeps no others`,
	allocatableVariable: `the resources of allocatable must be named literally, as in allocatable[?"example.com/gpu"] or ` +
		`"example.com/gpu" in allocatable: nodegate keeps no others`,
	nodeInfoVariable: "the fields of nodeInfo must be named, as in nodeInfo.kernelVersion: nodegate keeps no others",
}

// names are what an expression names, by variable.
type names map[string]map[string]bool

func (n names) of(variable string) []string { return slices.Sorted(maps.Keys(n[variable])) }

// namesIn returns what a checked expression names, or an error with its place.
func namesIn(checked *ast.AST) (names, error) {
	found := make(names)
	named := make(map[int64]bool) // variables' uses that name something
	visit := func(e ast.Expr) {
		variable, name := nameIn(e)
		if name == "" {
			return
		}
		if found[variable.AsIdent()] == nil {
			found[variable.AsIdent()] = make(map[string]bool)
		}
		found[variable.AsIdent()][name] = true
		named[variable.ID()] = true
	}
	ast.PreOrderVisit(checked.Expr(), ast.NewExprVisitor(visit))
	var err error
	ast.PreOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if err != nil || e.Kind() != ast.IdentKind || named[e.ID()] {
			return
		}
		if how, asks := literally[e.AsIdent()]; asks {
			at := checked.SourceInfo().GetStartLocation(e.ID())
			err = fmt.Errorf("%s: %s", place(at.Line(), at.Column()), how)
		}
	}))
	return found, err
}

// variablesIn returns the variables that an expression mentions, and perhaps others
// that it declares itself.
func variablesIn(checked *ast.AST) map[string]bool {
	found := make(map[string]bool)
	ast.PreOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.IdentKind {
			found[e.AsIdent()] = true
		}
	}))
	return found
}

// nameIn returns the variable that an expression looks into, and what it names
// there: x.name, x[name], name in x, and the optional forms of these. The name
// is empty if it is none of them.
func nameIn(e ast.Expr) (variable ast.Expr, name string) {
	switch e.Kind() {
	case ast.SelectKind:
		variable, name = e.AsSelect().Operand(), e.AsSelect().FieldName()
	case ast.CallKind:
		call := e.AsCall()
		if len(call.Args()) != 2 {
			return nil, ""
		}
		switch call.FunctionName() {
		case operators.Index, operators.OptIndex, operators.OptSelect:
			variable, name = call.Args()[0], text(call.Args()[1])
		case operators.In:
			variable, name = call.Args()[1], text(call.Args()[0])
		}
	}
	if name == "" || variable.Kind() != ast.IdentKind || literally[variable.AsIdent()] == "" {
		return nil, ""
	}
	return variable, name
}

// text returns a literal text; empty for anything else.
func text(e ast.Expr) string {
	if e.Kind() != ast.LiteralKind {
		return ""
	}
	s, _ := e.AsLiteral().(types.String)
	return string(s)
}

// place says where something is in an expression, in which lines and columns
// are counted from 1 and 0.
func place(line, column int) string { return fmt.Sprintf("line %d, column %d", line, column+1) }
