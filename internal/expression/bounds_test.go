// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func nest(open, inner, end string, depth int) string {
	return strings.Repeat(open, depth) + inner + strings.Repeat(end, depth)
}

// attacks contains expressions of less than a kilobyte whose compilation took up to
// seconds and gigabytes, or did not end.
var attacks = []struct{ name, text, says string }{
	{"long", "true" + strings.Repeat(" ", TextMax), "it has 1028 bytes, but at most 1024 are allowed; shorten it, or split it into several signals"},
	{"the parser copies the expression before optMap", "optional.of(1)" + strings.Repeat(".optMap(x, x)", 60) + ".hasValue()", "it uses optMap and optFlatMap 60 times, but at most 3 are allowed; use orValue or hasValue instead"},
	{"the parser copies the expression before optFlatMap", "optional.of(1)" + strings.Repeat(".\noptFlatMap\t(x, optional.of(x))", 20) + ".hasValue()", "it uses optMap and optFlatMap 20 times"},
	{"each loop doubles a type", "[1]" + strings.Repeat(".map(x, {x: x})", 4) + " == []", "it has more than 2 maps that are empty or have computed keys"},
	{"each transformMapEntry doubles a type", "[1]" + strings.Repeat(".transformMapEntry(k, v, {v: v})", 4) + " == {}", "it has more than 2 maps"},
	{"maps as keys", nest("{[]: ", "[]", "}", 80) + " == {}", "it has more than 2 maps"},
	{"lists in lists", nest("[", "1", "]", 240) + " == []", "it nests more than 8 lists and maps; use fewer"},
	{"maps in maps", nest("{1: ", "1", "}", 100) + " == {}", "it nests more than 8 lists and maps"},
	{"a chain of loops", "[1]" + strings.Repeat(".map(x, [x])", 80) + ".size() == 1", "it nests more than 4 loops"},
	{"loops in loops", nest("[1].all(x, ", "true", ")", 20), "it nests more than 4 loops, such as exists and map; use fewer"},
	{"wide", strings.Repeat("a&&", 340) + "a", "it has more than 400 operands and operators, macros such as exists expanded; split it into several signals"},
	{"wide by macros", strings.Repeat("a.all(x,x)&&", 80) + "a", "it has more than 400 operands and operators"},
	{"deep", strings.Repeat("1+", 50) + "1 == 1", "it nests more than 40 levels deep, macros such as exists expanded; split it into several signals"},
	{"repetitions of a regular expression", `labels.a.matches("` + strings.Repeat("(a?){1000}", 20) + `")`, "the regular expression of matches is too large: it compiles to more than 1000 instructions; use fewer or smaller repetitions"},
	{"repetitions within repetitions", `labels.a.matches("((a{30}){30}|b)*")`, "the regular expression of matches is too large"},
	{"a long regular expression", `matches(labels.a, r"` + strings.Repeat(`\pL|`, 100) + `")`, "the regular expression of matches has 400 bytes, but at most 256 are allowed; shorten it"},
	{"a computed regular expression", `labels.a.matches(labels.a + "(")`, "the regular expression of matches must be a literal"},
	{"a computed regular expression of findAll", `labels.a.findAll(labels.a, 1) == []`, "the regular expression of findAll must be a literal"},
}

func TestAttacksAreRefused(t *testing.T) {
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			var err error
			if used := allocated(func() { _, err = Compile(a.text) }); used > compiledMax {
				t.Errorf("allocates %d bytes", used)
			}
			if err == nil || !strings.HasPrefix(err.Error(), a.says) {
				t.Errorf("got %v\nwant %s", err, a.says)
			}
		})
	}
}

// Expressions within the bounds compile.
func TestWithinTheBounds(t *testing.T) {
	for _, text := range []string{
		"true" + strings.Repeat(" ", TextMax-4),
		"optional.of(1)" + strings.Repeat(".optMap(x, x)", optionalsMax) + ".hasValue()",
		"[1]" + strings.Repeat(".map(x, {x: x})", freeMapsMax) + ".size() == 1",
		nest("[", "1", "]", literalsMax) + ".size() == 1",
		"[1]" + strings.Repeat(".map(x, x)", loopsMax) + ".size() == 1",
		strings.Repeat("labels.a=='b'||", 60) + "true",
		strings.Repeat("1+", depthMax-3) + "1 == 1",
		`labels.a.matches("(a?){200}")`,
		"labels.a.matches('" + strings.Repeat("a", patternTextMax) + "')",
	} {
		if _, err := Compile(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Real expressions use less than half of every bound.
func TestRealExpressionsHaveReserve(t *testing.T) {
	env, err := environment()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range truths {
		parsed, issues := env.Parse(text)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		size := &counter{most: bounds{nodes: nodesMax / 2, depth: depthMax / 2, loops: loopsMax / 2, literals: literalsMax / 2, freeMaps: freeMapsMax / 2}}
		if err := size.visit(parsed.NativeRep().Expr(), nesting{}); err != nil || len(text) > TextMax/2 {
			t.Errorf("%s: %d bytes, %d nodes: %v", name, len(text), size.nodes, err)
		}
	}
}

// compiledMax is how many bytes a compilation may allocate. The worst expression that a
// search found allocates a tenth of it; attacks allocated a hundred times as much.
const compiledMax = 24 << 20

// allocated returns how many bytes a function allocates. No other test may run at the
// same time.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Every expression within the bounds is cheap to compile. The texts consist of elements
// that are known to be expensive: nested literals, loops, and types that multiply each
// other.
func TestCompilingIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := expressions(6, nil).Draw(t, "text")
		if used := allocated(func() { _, _ = Compile(text) }); used > compiledMax {
			t.Errorf("compiling %s allocates %d bytes", text, used)
		}
	})
}

// expressions generates texts that can be parsed, and often violate a bound or have a
// type error.
func expressions(depth int, variables []string) *rapid.Generator[string] {
	leaves := append([]string{"1", "'a'", "true", "[]", "{}", "labels", "conditions", "dyn(1)", "optional.none()", "labels.?a"}, variables...)
	if depth == 0 {
		return rapid.SampledFrom(leaves)
	}
	return rapid.Custom(func(t *rapid.T) string {
		part := func(more ...string) string {
			return expressions(depth-1, append(variables[:len(variables):len(variables)], more...)).Draw(t, "part")
		}
		x, y := fmt.Sprintf("x%d", depth), fmt.Sprintf("y%d", depth)
		switch rapid.IntRange(0, 12).Draw(t, "kind") {
		case 0:
			return rapid.SampledFrom(leaves).Draw(t, "leaf")
		case 1:
			return "[" + part() + "]"
		case 2:
			return "[" + part() + ", " + part() + "]"
		case 3:
			return "{" + part() + ": " + part() + "}"
		case 4:
			return "{1: " + part() + "}"
		case 5:
			return "(" + part() + rapid.SampledFrom([]string{" == ", " + ", " && ", " in "}).Draw(t, "operator") + part() + ")"
		case 6:
			return "(true ? " + part() + " : " + part() + ")"
		case 7, 8, 9:
			macro := rapid.SampledFrom([]string{"map", "filter", "all", "exists", "exists_one", "optMap", "optFlatMap"}).Draw(t, "macro")
			return part() + "." + macro + "(" + x + ", " + part(x) + ")"
		case 10:
			macro := rapid.SampledFrom([]string{"transformList", "transformMap"}).Draw(t, "macro")
			return part() + "." + macro + "(" + x + ", " + y + ", " + part(x, y) + ")"
		case 11:
			return "sets.contains(" + part() + ", " + part() + ")"
		}
		return part() + rapid.SampledFrom([]string{".size()", ".flatten()", "[0]", ".orValue(1)", ".value()"}).Draw(t, "end")
	})
}
