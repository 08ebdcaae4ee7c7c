// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"maps"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/library"
)

// chargeWork charges the calls in work, comparisons, sizes, and concatenations of lists. These cost
// the size of the smaller list, so that the elements of all lists are limited by the cost. The
// macro map appends lists of one element.
var chargeWork = cel.CostTrackerOptions(func() []interpreter.CostTrackerOption {
	charged := maps.Clone(work)
	compare := func(args []ref.Val) uint64 { return comparing(args[0], args[1]) }
	charged[overloads.Equals], charged[overloads.NotEquals] = compare, compare
	charged[overloads.AddList], charged[overloads.InList] = adding, finding
	charged[overloads.SizeString], charged[overloads.SizeStringInst] = counted, counted
	for _, overload := range []string{
		overloads.LessString, overloads.LessEqualsString, overloads.GreaterString, overloads.GreaterEqualsString,
	} {
		charged[overload] = ordering
	}
	for _, t := range sortable {
		charged["list_"+t.TypeName()+"_sort"], charged["list_"+t.TypeName()+"_sortByAssociatedKeys"] = sorting, sorting
	}
	var all []interpreter.CostTrackerOption
	for overload, of := range charged {
		all = append(all, chargeOverload(overload, of))
	}
	return all
}()...)

// sortable contains the types of the elements of lists that can be sorted.
var sortable = []*cel.Type{
	cel.IntType, cel.UintType, cel.DoubleType, cel.BoolType, cel.DurationType, cel.TimestampType, cel.StringType, cel.BytesType,
}

// sorting returns the cost of sorting a list by itself or, with sortBy, by the keys in the last
// argument. The library's own cost is about the same, but it panics if the list could not be
// computed, and hides the error.
func sorting(args []ref.Val) uint64 {
	n := size(args[len(args)-1])
	return 2 * product(n, n)
}

// chargeOverload charges the calls of an overload.
func chargeOverload(overload string, of func(args []ref.Val) uint64) interpreter.CostTrackerOption {
	return interpreter.OverloadCostTracker(overload, func(args []ref.Val, _ ref.Val) *uint64 {
		cost := of(args) + 1
		return &cost
	})
}

// chargeCalls charges calls that are not charged by their overload.
var chargeCalls = cel.CostTracking(calls{})

// calls charges calls whose overload is not known before the evaluation, because several
// overloads accept values of any type.
type calls struct{ library.CostEstimator }

// CallCost implements interpreter.ActualCostEstimator.
func (c calls) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	if of := dynamic[function]; overload == "" && of != nil {
		cost := of(args) + 1
		return &cost
	}
	return c.CostEstimator.CallCost(function, overload, args, result)
}

// dynamic contains the costs of functions that have several overloads, and do more than one
// step in one of them.
var dynamic = map[string]func(args []ref.Val) uint64{
	operators.Add: adding, operators.In: finding,
	operators.Less: ordering, operators.LessEquals: ordering, operators.Greater: ordering, operators.GreaterEquals: ordering,
	"size": counted, "string": reading, "bytes": reading, "bool": reading, "int": reading, "uint": reading, "double": reading,
	"timestamp": reading, "duration": reading,
	"indexOf":     func(args []ref.Val) uint64 { return searching(args) + containing(args[1], args[0]) },
	"lastIndexOf": func(args []ref.Val) uint64 { return searching(args) + containing(args[1], args[0]) },
}

// adding returns the cost of a concatenation. That of numbers is free.
func adding(args []ref.Val) uint64 {
	switch args[0].(type) {
	case types.String, types.Bytes:
		return characters(length(args[0]) + length(args[1]))
	case types.Int, types.Uint, types.Double, types.Timestamp, types.Duration:
		return 0
	}
	return min(size(args[0]), size(args[1]))
}

func finding(args []ref.Val) uint64 { return containing(args[0], args[1]) }

// ordering returns the cost of comparing texts, without counting their characters.
func ordering(args []ref.Val) uint64 { return characters(min(length(args[0]), length(args[1]))) }

// counted returns the cost of counting the characters of a text, which is faster than
// reading them.
func counted(args []ref.Val) uint64 { return characters(len(textOf(args[0])) / 16) }

// length returns the number of bytes of a text or of bytes.
func length(v ref.Val) int {
	if bytes, ok := v.(types.Bytes); ok {
		return len(bytes)
	}
	return len(textOf(v))
}
