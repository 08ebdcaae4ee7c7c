// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
)

// objectVariable is the variable of expressions over objects of any kind.
const objectVariable = "object"

// metadataField is the field of an object that is transferred even if nothing else is.
const metadataField = "metadata"

// ObjectExpression is a compiled expression over an object of any kind. It is immutable
// and safe for concurrent use.
type ObjectExpression struct {
	// program measures the cost of each evaluation and ends at CostLimit, because
	// objects may have any size.
	program cel.Program
	// metadataOnly is true if the expression reads nothing but the object's metadata.
	metadataOnly bool
}

// objectEnvironment returns the CEL environment of expressions over objects.
var objectEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	env, err := boundedLanguage()
	if err != nil {
		return nil, err
	}
	return env.Extend(cel.Variable(objectVariable, cel.MapType(cel.StringType, cel.DynType)), cel.CustomTypeAdapter(&adapter{env.CELTypeAdapter()}))
})

// CompileObject is Compile for an expression over an object of any kind, which is the
// variable object.
func CompileObject(expression string) (*ObjectExpression, error) {
	return compiledObjects.getOrCompile(expression, compileObject)
}

func compileObject(expression string) (*ObjectExpression, error) {
	env, err := objectEnvironment()
	if err != nil {
		return nil, fmt.Errorf("setting up CEL: %w", err)
	}
	checked, err := check(env, expression)
	if err != nil {
		return nil, err
	}
	if got := checked.OutputType(); !got.IsExactType(cel.BoolType) && !got.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("it must return bool, but returns %s", got)
	}
	searched := patternsIn(checked.NativeRep())
	if _, err := checkCost(env, checked, searched); err != nil {
		return nil, err
	}
	e := &ObjectExpression{metadataOnly: readsOnlyMetadata(checked.NativeRep())}
	if e.program, err = countedProgram(env, checked, searched); err != nil {
		return nil, err
	}
	return e, nil
}

// MetadataOnly reports whether the expression reads nothing but the object's metadata.
func (e *ObjectExpression) MetadataOnly() bool { return e.metadataOnly }

// Holds evaluates the expression for an object. It returns an error if the expression
// reads a field that does not exist, does not return a bool, or costs more than
// CostLimit.
func (e *ObjectExpression) Holds(object map[string]any) (bool, error) {
	return holds(e.program, map[string]any{objectVariable: object})
}

// readsOnlyMetadata reports whether an expression uses the object only to read its
// metadata.
func readsOnlyMetadata(checked *ast.AST) bool {
	metadata := make(map[int64]bool) // uses of the object that select its metadata
	result := true
	ast.PreOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.SelectKind:
			if operand := e.AsSelect().Operand(); e.AsSelect().FieldName() == metadataField {
				metadata[operand.ID()] = true
			}
		case ast.IdentKind:
			result = result && (undotted(e.AsIdent()) != objectVariable || metadata[e.ID()])
		}
	}))
	return result
}
