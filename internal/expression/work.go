// SPDX-License-Identifier: Apache-2.0

package expression

import (
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
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/nodegate/nodegate/internal/gate"
)

// tooMuch is the cost of any call that may not be evaluated.
const tooMuch = CostLimit + 1

// work contains the costs of functions that do more than one step, by overload. Those that
// search for regular expressions are in patterns. A cost is computed from the arguments before the call, because
// the libraries charge a call only after it has used its time and memory.
var work = withGroups(map[string]func(args []ref.Val) uint64{
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
	"url_get_query":                    queried,
	"url_get_escaped_path":             escaped,
})

// readers contains the functions that read or copy a whole text, whatever their result is.
// Libraries charge some of them as one step.
var readers = []string{
	"string_char_at_int", "string_substring_int", "string_substring_int_int", "string_lower_ascii", "string_upper_ascii",
	"string_trim", "strings_quote", "string_split_string", "string_split_string_int",
	"string_to_int64", "string_to_uint64", "string_to_double", "string_to_bool", "string_to_bytes", "bytes_to_string",
	"string_to_timestamp", "string_to_duration", "is_url_string", "string_to_url", "is_ip", "string_to_ip", "ip_is_canonical",
	"is_cidr", "string_to_cidr", "is_semver_string", "is_semver_string_bool", "string_to_semver", "string_bool_to_semver",
}

// zoned contains the functions that load a time zone.
var zoned = []string{
	overloads.TimestampToYearWithTz, overloads.TimestampToMonthWithTz, overloads.TimestampToDayOfYearWithTz,
	overloads.TimestampToDayOfMonthZeroBasedWithTz, overloads.TimestampToDayOfMonthOneBasedWithTz,
	overloads.TimestampToDayOfWeekWithTz, overloads.TimestampToHoursWithTz, overloads.TimestampToMinutesWithTz,
	overloads.TimestampToSecondsWithTz, overloads.TimestampToMillisecondsWithTz,
}

// withGroups adds the costs of readers and zoned.
func withGroups(costs map[string]func(args []ref.Val) uint64) map[string]func(args []ref.Val) uint64 {
	for _, overload := range readers {
		costs[overload] = reading
	}
	for _, overload := range zoned {
		costs[overload] = loading
	}
	return costs
}

// limitWork returns an environment whose functions return an error if their work would
// cost more than CostLimit.
func limitWork(env *cel.Env) (*cel.Env, error) {
	return rebind(env, func(_ string, o *decls.OverloadDecl, binding *functions.Overload) call {
		cost := work[o.ID()]
		if cost == nil {
			return nil
		}
		return func(args ...ref.Val) ref.Val {
			if cost(args) > CostLimit {
				return errTooMuchWork()
			}
			return withText(invoke(binding, args), args[0])
		}
	})
}

// quotedMax is the maximum length of a text in an error, which comes from an object.
const quotedMax = 64

// withText adds the text that a function could not process to its error. CEL names only the types of a
// conversion, for example.
func withText(result, value ref.Val) ref.Val {
	err, failed := result.(*types.Err)
	text, isText := value.(types.String)
	if !failed || !isText {
		return result
	}
	quoted := strconv.Quote(gate.Clip(string(text), quotedMax))
	if strings.Contains(err.Error(), quoted) {
		return result
	}
	return types.NewErr("%v: %s", err, quoted)
}

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
	return characters(len(format)) + clauses(format) + elements(args[1], CostLimit, func(v ref.Val) uint64 {
		switch value := v.(type) {
		case types.Bytes:
			return 1 + characters(2*len(value))
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

func flattening(args []ref.Val) uint64 { return elements(args[0], CostLimit, one) }

// pairs returns the cost of comparing each element of a list with each of another one.
func pairs(a, b ref.Val) uint64 {
	return max(product(size(a), elements(b, CostLimit, one)), product(size(b), elements(a, CostLimit, one)))
}

// searching returns the same cost as the function contains.
func searching(args []ref.Val) uint64 {
	return product(characters(len(textOf(args[0]))), characters(len(textOf(args[1]))))
}

// reading returns the cost of reading and copying a text.
func reading(args []ref.Val) uint64 { return characters(2 * length(args[0])) }

// loading returns the cost of reading a time zone from a file, in any of several directories.
func loading(args []ref.Val) uint64 { return 100 + characters(10*len(textOf(args[1]))) }

// queried returns the cost of parsing the query of a URL, which creates a list for each parameter.
func queried(args []ref.Val) uint64 {
	if u, ok := args[0].(apiservercel.URL); ok {
		return characters(5 * len(u.RawQuery))
	}
	return 0
}

// escaped returns the cost of the escaped path of a URL.
func escaped(args []ref.Val) uint64 {
	if u, ok := args[0].(apiservercel.URL); ok {
		return characters(2 * len(u.Path))
	}
	return 0
}

func product(a, b uint64) uint64 {
	if a > 0 && b > math.MaxUint32/a {
		return tooMuch
	}
	return a * b
}

func one(ref.Val) uint64 { return 1 }

// elements returns the sum of the costs of a value's elements, those of nested lists and
// maps included. It stops above the limit, because lists can contain the same list many
// times. It does not begin if there are more elements: an iterator copies the keys of a map.
func elements(v ref.Val, limit uint64, of func(ref.Val) uint64) uint64 {
	var sum uint64
	add := func(element ref.Val) { sum += of(element) + elements(element, limit, of) }
	switch container := v.(type) {
	case traits.Lister:
		n := size(container)
		if n > limit {
			return n
		}
		for i := uint64(0); i < n && sum <= limit; i++ { // an iterator would be one more object for each list
			add(container.Get(types.Int(i)))
		}
	case traits.Mapper:
		if n := size(container); n > limit {
			return n
		}
		for it := container.Iterator(); it.HasNext() == types.True && sum <= limit; {
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
