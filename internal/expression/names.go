// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// nodegate stores only those annotations, allocatable resources and nodeInfo fields
// that some expression names. An expression must therefore use literal names: others
// would not be stored, and the expression would not find them.

// literally contains an explanation of how to name the contents of each variable that
// is stored only in part.
var literally = map[string]string{
	annotationsVariable: `the keys of annotations must be named literally, as in annotations[?"example.com/key"] or ` +
		`"example.com/key" in annotations: nodegate stores no others`,
	allocatableVariable: `the resources of allocatable must be named literally, as in allocatable[?"example.com/gpu"] or ` +
		`"example.com/gpu" in allocatable: nodegate stores no others`,
	nodeInfoVariable: "the fields of nodeInfo must be named, as in nodeInfo.kernelVersion: nodegate stores no others",
}

// names contains the literal names that an expression uses, by variable.
type names map[string]map[string]bool

func (n names) of(variable string) []string { return slices.Sorted(maps.Keys(n[variable])) }

// namesIn returns the names in a checked expression, or an error with its position.
func namesIn(checked *ast.AST) (names, error) {
	found := make(names)
	named := make(map[int64]bool) // uses of variables that have a literal name
	visit := func(e ast.Expr) {
		variable, name := nameIn(e)
		if name == "" {
			return
		}
		of := undotted(variable.AsIdent())
		if found[of] == nil {
			found[of] = make(map[string]bool)
		}
		found[of][name] = true
		named[variable.ID()] = true
	}
	ast.PreOrderVisit(checked.Expr(), ast.NewExprVisitor(visit))
	var err error
	ast.PreOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if err != nil || e.Kind() != ast.IdentKind || named[e.ID()] {
			return
		}
		if how, required := literally[undotted(e.AsIdent())]; required {
			at := checked.SourceInfo().GetStartLocation(e.ID())
			err = fmt.Errorf("%s: %s", place(at.Line(), at.Column()), how)
		}
	}))
	return found, err
}

// undotted returns the name of a variable that an identifier of a checked expression refers to. Where
// a loop declares a variable of the same name, a dot precedes the name of ours.
func undotted(identifier string) string { return strings.TrimPrefix(identifier, ".") }

// variablesIn returns the variables that an expression uses. It may include variables
// that the expression declares itself.
func variablesIn(checked *ast.AST) map[string]bool {
	found := make(map[string]bool)
	ast.PreOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.IdentKind {
			found[undotted(e.AsIdent())] = true
		}
	}))
	return found
}

// nameIn returns the variable that an expression reads from and the name that it reads:
// x.name, x[name], name in x, and the optional forms of these. The name is empty if the
// expression has none of these forms.
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
	if name == "" || variable.Kind() != ast.IdentKind || literally[undotted(variable.AsIdent())] == "" {
		return nil, ""
	}
	return variable, name
}

// text returns the value of a string literal, or "" for any other expression.
func text(e ast.Expr) string {
	if e.Kind() != ast.LiteralKind {
		return ""
	}
	s, _ := e.AsLiteral().(types.String)
	return string(s)
}

// place returns the human-readable position of a line, counted from 1, and a column,
// counted from 0.
func place(line, column int) string { return fmt.Sprintf("line %d, column %d", line, column+1) }
