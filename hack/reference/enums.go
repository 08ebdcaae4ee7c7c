// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A choice is one value of an enumeration, with its comment.
type choice struct {
	value, meaning string
}

// readEnums reads the typed string constants of a package, by the set of their
// values (see enumKey), because the CRD contains the values but not the type.
func readEnums(dir string) (map[string][]choice, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, fmt.Errorf("finding the types: %w", err)
	}
	byType := map[string][]choice{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("reading the types: %w", err)
		}
		for _, declaration := range parsed.Decls {
			if constants, ok := declaration.(*ast.GenDecl); ok && constants.Tok == token.CONST {
				readConstants(constants, byType)
			}
		}
	}
	enums := make(map[string][]choice, len(byType))
	for _, choices := range byType {
		enums[enumKey(choices)] = choices
	}
	return enums, nil
}

func readConstants(constants *ast.GenDecl, byType map[string][]choice) {
	for _, spec := range constants.Specs {
		value, ok := spec.(*ast.ValueSpec)
		if !ok || value.Type == nil || value.Doc == nil || len(value.Values) != 1 {
			continue
		}
		kind, ok := value.Type.(*ast.Ident)
		literal, isLiteral := value.Values[0].(*ast.BasicLit)
		if !ok || !isLiteral {
			continue
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			continue // a number
		}
		meaning := strings.Join(strings.Fields(strings.TrimPrefix(value.Doc.Text(), value.Names[0].Name+" ")), " ")
		byType[kind.Name] = append(byType[kind.Name], choice{text, meaning})
	}
}

// enumKey returns a key for a set of values.
func enumKey(choices []choice) string {
	values := make([]string, 0, len(choices))
	for _, c := range choices {
		values = append(values, c.value)
	}
	slices.Sort(values)
	return strings.Join(values, ",")
}
