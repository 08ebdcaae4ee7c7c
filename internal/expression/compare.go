// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// limitComparisons replaces the operators ==, != and in, which have no bindings that could be
// replaced, by ones that return an error if they would cost more than CostLimit: lists can
// contain the same list many times.
var limitComparisons = cel.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok || len(call.Args()) != 2 {
		return i, nil
	}
	compared := &comparison{InterpretableCall: call, a: call.Args()[0], b: call.Args()[1], cost: comparing}
	switch call.Function() {
	case operators.Equals:
		compared.compare = types.Equal
	case operators.NotEquals:
		compared.compare = func(a, b ref.Val) ref.Val { return types.Bool(types.Equal(a, b) != types.True) }
	case operators.In:
		compared.cost, compared.compare = containing, isIn
	default:
		return i, nil
	}
	return compared, nil
})

// comparison is a call that compares two values.
type comparison struct {
	interpreter.InterpretableCall
	a, b    interpreter.InterpretableV2 // its arguments
	cost    func(a, b ref.Val) uint64
	compare func(a, b ref.Val) ref.Val
}

// Eval implements interpreter.Interpretable.
func (c *comparison) Eval(vars interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(vars))
}

// Exec implements interpreter.InterpretableV2.
func (c *comparison) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	a, b := c.a.Exec(frame), c.b.Exec(frame)
	switch {
	case types.IsUnknownOrError(a):
		return a
	case types.IsUnknownOrError(b):
		return b
	case c.cost(a, b) > CostLimit:
		return errTooMuchWork()
	}
	return c.compare(a, b)
}

func isIn(a, b ref.Val) ref.Val {
	if container, ok := b.(traits.Container); ok {
		return container.Contains(a)
	}
	return types.ValOrErr(b, "no such overload")
}

// comparing returns the cost of comparing two values. Nested lists are compared to the end of
// the smaller one. Growing limits make sure that little more than that is counted.
func comparing(a, b ref.Val) uint64 {
	for _, limit := range []uint64{20, 500} {
		if cost := min(content(a, limit), content(b, limit)); cost <= limit {
			return cost
		}
	}
	return min(content(a, CostLimit), content(b, CostLimit))
}

// containing returns the cost of finding a value in a list: its size, unless the value is
// nested, because only nested values are compared in more than one step.
func containing(a, b ref.Val) uint64 {
	list, ok := b.(traits.Lister)
	if !ok {
		return 0 // a map
	}
	switch a.(type) {
	case traits.Lister, traits.Mapper, *types.Optional:
		return content(list, CostLimit)
	}
	return size(list)
}

// content returns the cost of reading a whole value. It stops above a limit.
func content(v ref.Val, limit uint64) uint64 {
	switch text := v.(type) {
	case types.String:
		return characters(len(text))
	case types.Bool, types.Int, types.Uint, types.Double:
		return 1
	}
	return elements(v, limit, func(v ref.Val) uint64 { return 1 + characters(len(textOf(v))) })
}
