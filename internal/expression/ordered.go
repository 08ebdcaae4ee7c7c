// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// orderedMap is a map that loops iterate over in the order of its keys. Go's order is random: a
// gate whose expression reads the first label would open and close although no fact has changed.
type orderedMap struct{ traits.Mapper }

var (
	_ traits.Mapper = orderedMap{}
	_ traits.Zeroer = orderedMap{}
)

// IsZeroValue implements traits.Zeroer.
func (m orderedMap) IsZeroValue() bool { return m.Size() == types.IntZero }

// keysMax is the maximum number of keys that are sorted. A loop costs at least three for each key.
const keysMax = CostLimit / 3

// Iterator implements traits.Iterable. If a loop over the whole map would exceed CostLimit, the keys
// are errors: sorting them is not charged, and a loop that ends early may be within another one.
func (m orderedMap) Iterator() traits.Iterator {
	if size(m) > keysMax {
		return tooManyKeys.Iterator()
	}
	var keys []ref.Val
	for it := m.Mapper.Iterator(); it.HasNext() == types.True; {
		keys = append(keys, it.Next())
	}
	slices.SortFunc(keys, compareKeys)
	return types.NewRefValList(types.DefaultTypeAdapter, keys).Iterator()
}

// tooManyKeys are more keys than any loop can iterate over. The error has the ID of no node of an
// expression: without an ID, the first evaluation would set one in this shared value.
var tooManyKeys = types.NewRefValList(types.DefaultTypeAdapter,
	slices.Repeat([]ref.Val{types.NewErrWithNodeID(-1, "cost limit exceeded: a loop over so many keys would cost more than %d", CostLimit)}, CostLimit+1))

// compareKeys compares the keys of a map, first by type.
func compareKeys(a, b ref.Val) int {
	if byType := cmp.Compare(a.Type().TypeName(), b.Type().TypeName()); byType != 0 {
		return byType
	}
	if comparer, ok := a.(traits.Comparer); ok {
		if result, ok := comparer.Compare(b).(types.Int); ok {
			return int(result)
		}
	}
	return cmp.Compare(fmt.Sprint(a.Value()), fmt.Sprint(b.Value()))
}

// orderLiterals orders maps that are literals.
var orderLiterals = cel.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	switch literal := i.(type) {
	case interpreter.InterpretableConst: // all of its keys and values are constants
		if m, ok := literal.Value().(traits.Mapper); ok {
			return interpreter.NewConstValue(literal.ID(), orderedMap{m}), nil
		}
	case interpreter.InterpretableConstructor:
		if literal.Type() == types.MapType {
			return orderedLiteral{literal}, nil
		}
	}
	return i, nil
})

// orderedLiteral is a literal whose value is an orderedMap.
type orderedLiteral struct {
	interpreter.InterpretableConstructor
}

// Eval implements interpreter.Interpretable.
func (l orderedLiteral) Eval(vars interpreter.Activation) ref.Val {
	return l.Exec(interpreter.AsFrame(vars))
}

// Exec implements interpreter.InterpretableV2.
func (l orderedLiteral) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	return ordered(l.InterpretableConstructor.Exec(frame))
}

// orderedWhenBuilt is a map that a loop builds, and that becomes an orderedMap.
type orderedWhenBuilt struct{ traits.MutableMapper }

// Insert implements traits.MutableMapper.
func (m orderedWhenBuilt) Insert(k, v ref.Val) ref.Val {
	if result := m.MutableMapper.Insert(k, v); types.IsError(result) {
		return result
	}
	return m
}

// ToImmutableMap implements traits.MutableMapper.
func (m orderedWhenBuilt) ToImmutableMap() traits.Mapper {
	return orderedMap{m.MutableMapper.ToImmutableMap()}
}

// The functions that return maps: that with which the macros transformMap and transformMapEntry
// build them, and that of the parameters of a URL.
const (
	insertion = "cel.@mapInsert"
	query     = "getQuery"
)

// orderResults returns an environment whose loops and functions return ordered maps.
func orderResults(env *cel.Env) (*cel.Env, error) {
	return rebind(env, func(function string, _ *decls.OverloadDecl, binding *functions.Overload) call {
		switch function {
		case insertion:
			return func(args ...ref.Val) ref.Val {
				switch m := args[0].(type) {
				case orderedWhenBuilt: // all but the first time
				case traits.MutableMapper:
					args[0] = orderedWhenBuilt{m}
				}
				return invoke(binding, args)
			}
		case query:
			return func(args ...ref.Val) ref.Val { return ordered(invoke(binding, args)) }
		}
		return nil
	})
}

// ordered returns an orderedMap for a map, and any other value as it is.
func ordered(v ref.Val) ref.Val {
	if m, ok := v.(traits.Mapper); ok {
		return orderedMap{m}
	}
	return v
}
