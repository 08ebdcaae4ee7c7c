// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"maps"
	"math"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// tooMuch is the cost of any call that may not be evaluated.
const tooMuch = CostLimit + 1

// work contains the costs of functions whose time or result grows faster than their
// arguments, by overload. A cost is computed from the arguments before the call, because
// the libraries charge a call only after it has used its time and memory.
var work = map[string]func(args []ref.Val) uint64{
	"string_replace_string_string":     replacing,
	"string_replace_string_string_int": replacing,
	"list_join":                        joining,
	"list_join_string":                 joining,
	"string_format":                    formatting,
	"list_flatten":                     flattening,
	"list_flatten_int":                 flattening,
	"list_distinct":                    func(args []ref.Val) uint64 { return 2 * pairs(args[0], args[0]) },
	"list_sets_contains_list":          func(args []ref.Val) uint64 { return pairs(args[0], args[1]) },
	"list_sets_intersects_list":        func(args []ref.Val) uint64 { return pairs(args[0], args[1]) },
	"list_sets_equivalent_list":        func(args []ref.Val) uint64 { return 2 * pairs(args[0], args[1]) },
	"string_index_of_string":           searching,
	"string_index_of_string_int":       searching,
	"string_last_index_of_string":      searching,
	"string_last_index_of_string_int":  searching,
	"list_a_index_of_int":              func(args []ref.Val) uint64 { return containing(args[1], args[0]) },
	"list_a_last_index_of_int":         func(args []ref.Val) uint64 { return containing(args[1], args[0]) },
}

// limitWork returns an environment whose functions return an error if their work would
// cost more than CostLimit.
func limitWork(env *cel.Env) (*cel.Env, error) {
	var limited []cel.EnvOption
	for name, function := range env.Functions() {
		bindings, err := function.Bindings()
		if err != nil {
			return nil, err
		}
		bound := make(map[string]*functions.Overload, len(bindings))
		for _, b := range bindings {
			bound[b.Operator] = b
		}
		for _, o := range function.OverloadDecls() {
			if cost := work[o.ID()]; cost != nil && bound[o.ID()] != nil {
				limited = append(limited, cel.Function(name, limitedOverload(o, bound[o.ID()], cost), decls.DisableTypeGuards(true)))
			}
		}
	}
	return env.Extend(limited...)
}

// limitedOverload returns an overload that calls the binding only if it does not cost too
// much.
func limitedOverload(o *decls.OverloadDecl, binding *functions.Overload, cost func([]ref.Val) uint64) cel.FunctionOpt {
	overload := cel.Overload
	if o.IsMemberFunction() {
		overload = cel.MemberOverload
	}
	call := func(args ...ref.Val) ref.Val {
		if cost(args) > CostLimit {
			return errTooMuchWork()
		}
		switch {
		case len(args) == 1 && binding.Unary != nil:
			return binding.Unary(args[0])
		case len(args) == 2 && binding.Binary != nil:
			return binding.Binary(args[0], args[1])
		}
		return binding.Function(args...)
	}
	implementation := cel.FunctionBinding(call)
	switch len(o.ArgTypes()) {
	case 1:
		implementation = cel.UnaryBinding(func(a ref.Val) ref.Val { return call(a) })
	case 2:
		implementation = cel.BinaryBinding(func(a, b ref.Val) ref.Val { return call(a, b) })
	}
	return overload(o.ID(), o.ArgTypes(), o.ResultType(), implementation)
}

// chargeWork charges the calls in work, comparisons, and concatenations of lists. These cost the size
// of the smaller list, so that the elements of all lists are limited by the cost. The macro
// map appends lists of one element.
var chargeWork = cel.CostTrackerOptions(func() []interpreter.CostTrackerOption {
	all := []interpreter.CostTrackerOption{interpreter.OverloadCostTracker("add_list", func(args []ref.Val, _ ref.Val) *uint64 {
		cost := min(size(args[0]), size(args[1])) + 1
		return &cost
	})}
	charged := maps.Clone(work)
	compare := func(args []ref.Val) uint64 { return comparing(args[0], args[1]) }
	charged[overloads.Equals], charged[overloads.NotEquals] = compare, compare
	charged[overloads.InList] = func(args []ref.Val) uint64 { return containing(args[0], args[1]) }
	for overload, of := range charged {
		all = append(all, interpreter.OverloadCostTracker(overload, func(args []ref.Val, _ ref.Val) *uint64 {
			cost := of(args) + 1
			return &cost
		}))
	}
	return all
}()...)

func errTooMuchWork() ref.Val {
	return types.NewErr("cost limit exceeded: this call would cost more than %d", CostLimit)
}

// characters returns the cost of processing so many bytes of text.
func characters(n int) uint64 { return uint64(n+9) / 10 }

func replacing(args []ref.Val) uint64 {
	text, old, by := textOf(args[0]), textOf(args[1]), textOf(args[2])
	n := strings.Count(text, old)
	if len(args) == 4 {
		if limit, ok := args[3].(types.Int); ok && limit >= 0 {
			n = min(n, int(limit))
		}
	}
	growth := max(len(by)-len(old), 0)
	if growth > 0 && n > 10*tooMuch/growth {
		return tooMuch
	}
	return characters(3*len(text) + n*growth)
}

func joining(args []ref.Val) uint64 {
	list, ok := args[0].(traits.Lister)
	if !ok {
		return 0
	}
	separator := 0
	if len(args) == 2 {
		separator = len(textOf(args[1]))
	}
	var cost uint64
	for it := list.Iterator(); it.HasNext() == types.True && cost <= CostLimit; {
		cost += 1 + characters(2*(len(textOf(it.Next()))+separator))
	}
	return cost
}

func formatting(args []ref.Val) uint64 {
	format := textOf(args[0])
	return characters(len(format)) + clauses(format) + elements(args[1], func(v ref.Val) uint64 {
		switch value := v.(type) {
		case types.Bytes:
			return characters(2 * len(value))
		case types.Double:
			return characters(longNumber)
		}
		return 1 + characters(len(textOf(v)))
	})
}

// longNumber is about the length of the largest number without an exponent.
const longNumber = 320

// clauses returns the cost of the clauses %e and %f of a format, because they have precisions,
// and select a language. With %e, the precision is a width: so many characters are returned.
func clauses(format string) uint64 {
	var cost uint64
	for cost <= CostLimit {
		_, clause, found := strings.Cut(format, "%")
		if !found {
			break
		}
		format = strings.TrimPrefix(clause, "%")
		digits, isPrecise := strings.CutPrefix(clause, ".")
		verb := digits
		if isPrecise {
			verb = strings.TrimLeft(digits, "0123456789")
		}
		if !strings.HasPrefix(verb, "e") && !strings.HasPrefix(verb, "f") {
			continue
		}
		precision := 0
		if digits = digits[:len(digits)-len(verb)]; digits != "" {
			var err error
			if precision, err = strconv.Atoi(digits); err != nil || precision > 10*CostLimit {
				return tooMuch
			}
		}
		cost += 200 + characters(2*precision)
	}
	return cost
}

func flattening(args []ref.Val) uint64 { return elements(args[0], one) }

// pairs returns the cost of comparing each element of a list with each of another one.
func pairs(a, b ref.Val) uint64 {
	return max(product(size(a), elements(b, one)), product(size(b), elements(a, one)))
}

// searching returns the same cost as the function contains.
func searching(args []ref.Val) uint64 {
	return product(characters(len(textOf(args[0]))), characters(len(textOf(args[1]))))
}

func product(a, b uint64) uint64 {
	if a > 0 && b > math.MaxUint32/a {
		return tooMuch
	}
	return a * b
}

func one(ref.Val) uint64 { return 1 }

// elements returns the sum of the costs of a value's elements, those of nested lists and
// maps included. It stops above CostLimit, because lists can contain the same list many
// times.
func elements(v ref.Val, of func(ref.Val) uint64) uint64 {
	var sum uint64
	add := func(element ref.Val) { sum += of(element) + elements(element, of) }
	switch container := v.(type) {
	case traits.Lister:
		for it := container.Iterator(); it.HasNext() == types.True && sum <= CostLimit; {
			add(it.Next())
		}
	case traits.Mapper:
		for it := container.Iterator(); it.HasNext() == types.True && sum <= CostLimit; {
			key := it.Next()
			add(key)
			add(container.Get(key))
		}
	case *types.Optional:
		if container.HasValue() {
			add(container.GetValue())
		}
	}
	return sum
}

func size(v ref.Val) uint64 {
	if sized, ok := v.(traits.Sizer); ok {
		if n, ok := sized.Size().(types.Int); ok {
			return uint64(n)
		}
	}
	return 1
}

func textOf(v ref.Val) string {
	text, _ := v.(types.String)
	return string(text)
}
