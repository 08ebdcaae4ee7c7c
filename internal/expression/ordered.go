// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"cmp"
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

// Iterator implements traits.Iterable. If a loop over the whole map would exceed CostLimit, the keys
// are errors: copying and sorting them would take too long even for a loop that ends early.
func (m orderedMap) Iterator() traits.Iterator {
	if size(m) > CostLimit {
		return tooManyKeys.Iterator()
	}
	var keys []ref.Val
	for it := m.Mapper.Iterator(); it.HasNext() == types.True; {
		keys = append(keys, it.Next())
	}
	slices.SortFunc(keys, compareKeys)
	return types.NewRefValList(types.DefaultTypeAdapter, keys).Iterator()
}

var tooManyKeys = types.NewRefValList(types.DefaultTypeAdapter, slices.Repeat([]ref.Val{errTooMuchWork()}, CostLimit+1))

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
	return 0
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
	value := l.InterpretableConstructor.Exec(frame)
	if m, ok := value.(traits.Mapper); ok {
		return orderedMap{m}
	}
	return value // an error
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

// insertion is the function with which the macros transformMap and transformMapEntry build maps.
const insertion = "cel.@mapInsert"

// orderBuiltMaps returns an environment in which loops build ordered maps.
func orderBuiltMaps(env *cel.Env) (*cel.Env, error) {
	return rebind(env, func(function string, _ *decls.OverloadDecl, binding *functions.Overload) call {
		if function != insertion {
			return nil
		}
		return func(args ...ref.Val) ref.Val {
			switch m := args[0].(type) {
			case orderedWhenBuilt: // all but the first time
			case traits.MutableMapper:
				args[0] = orderedWhenBuilt{m}
			}
			return invoke(binding, args)
		}
	})
}
