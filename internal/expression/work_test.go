// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// letters is the literal of a text of 100 letters.
var letters = `"` + strings.Repeat("a", 100) + `"`

// nested is a list of a list that contains 125,000 times the same number.
var nested = `[[1]]` + strings.Repeat(`.map(a, [a`+strings.Repeat(",a", 49)+`])`, 3)

// ones contains 50 numbers.
var ones = "1.0" + strings.Repeat(",1.0", 49)

// oversized contains expressions whose results would have many megabytes, or that compare as
// much.
var oversized = map[string]string{
	"replace":                   `[` + letters + `].map(x, x.replace("", x)).exists(x, x.replace("", x) == "")`,
	"replace with a limit":      `[` + letters + `].map(x, x.replace("", x, 200)).exists(x, x.replace("", x, 10000) == "")`,
	"join":                      `[` + letters + `].map(x, x.split("").join(x)).exists(x, x.split("").join(x) == "")`,
	"format":                    `[` + letters + `]` + strings.Repeat(`.map(a, "`+strings.Repeat("%s", 35)+`".format([a`+strings.Repeat(",a", 34)+`]))`, 3) + `.exists(x, x == "")`,
	"format with a width":       `[` + ones + `].map(x, "` + strings.Repeat("%.65535e", 30) + `".format([x` + strings.Repeat(",x", 29) + `])).size() == 0`,
	"format with a small width": `[` + ones + `].map(x, "` + strings.Repeat("%.1e", 50) + `".format([x` + strings.Repeat(",x", 49) + `])).size() == 0`,
	"format of large numbers":   `[` + ones + `].map(x, "` + strings.Repeat("%s", 40) + `".format([[x*1e300` + strings.Repeat("],[x*1e300", 39) + `]])).size() == 0`,
	"format of nested lists":    `[[` + letters + `]]` + strings.Repeat(`.map(a, [a`+strings.Repeat(",a", 39)+`])`, 3) + `.exists(x, "%s".format([x]) == "")`,
	"flatten":                   `[[1]]` + strings.Repeat(`.map(a, [a`+strings.Repeat(",a", 69)+`])`, 3) + `.flatten(9).size() == 0`,
	"equality":                  nested + `.exists(x, x == x)`,
	"inequality":                nested + `.exists(x, x != x)`,
	"membership":                nested + `.exists(x, x in [x])`,
	"index":                     nested + `.exists(x, [x].indexOf(x) == 1)`,
	"last index":                nested + `.exists(x, [x].lastIndexOf(x) == 1)`,
	"concatenation of texts":    `[dyn(` + letters + `)]` + strings.Repeat(`.map(a, a`+strings.Repeat("+a", 24)+`)`, 4) + `.size() == 0`,
	"concatenation":             `[[1` + strings.Repeat(",1", 99) + `]]` + strings.Repeat(`.map(a, a`+strings.Repeat("+a", 24)+`)`, 3) + `.exists(x, x.reverse().size() == 0)`,
}

// No call creates a result that costs more than the limit.
func TestMemoryOfAnEvaluation(t *testing.T) {
	for name, text := range oversized {
		t.Run(name, func(t *testing.T) {
			for kind, evaluate := range evaluations(t, text) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := evaluate()
				runtime.ReadMemStats(&after)
				if err == nil || !strings.Contains(err.Error(), "cost limit exceeded") {
					t.Errorf("%s: %v", kind, err)
				}
				if got := (after.TotalAlloc - before.TotalAlloc) >> 20; got >= raceFactor {
					t.Errorf("%s: the evaluation allocates %d MiB", kind, got)
				}
			}
		})
	}
}

// evaluations returns the evaluation of an expression in each environment in which it
// compiles.
func evaluations(t *testing.T, text string) map[string]func() error {
	t.Helper()
	node := mustCompile(t, text)
	object, err := CompileObject(text)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]func() error{
		"node":   func() error { _, err := node.Holds(aNode(), ownKey); return err },
		"object": func() error { _, err := object.Holds(nil); return err },
	}
	if e, err := CompileDevice(text); err == nil {
		all["device"] = func() error { _, err := e.Matches("gpu.example.com", testDevice()); return err }
	}
	return all
}

func evaluateObject(t *testing.T, text string, object map[string]any) error {
	t.Helper()
	e, err := CompileObject(text)
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Holds(object)
	return err
}

// Each evaluation of a call on a long text or a large value allocates or reads as much as the
// value has, so a loop of such calls ends soon.
func TestCallsOnLargeValues(t *testing.T) {
	text := strings.Repeat("1", 1<<20)
	large := map[string]any{}
	for i := range 9000 {
		large[fmt.Sprint(i)] = int64(i)
	}
	object := map[string]any{"text": text, "short": text[:2000], "middle": text[:20_000], "map": large}
	for _, call := range []string{
		`object.text.charAt(i) == ""`, `object.text.size() == i`, `size(object.text) == i`, `object.short.findAll("").size() == i`,
		`object.text + object.text == ""`, `int(object.text) == i`, `double(object.text) == 1.0`, `bool(object.text)`,
		`timestamp(object.text).getHours() == i`, `bytes(object.text).size() == i`, `isURL(object.text)`, `object.text.lowerAscii() == ""`,
		`created.getHours(object.text) == 1`,
	} {
		call = strings.ReplaceAll(call, "created", `timestamp("2026-01-01T00:00:00Z")`)
		e, err := CompileObject("lists.range(1000).exists(i, " + call + ")")
		if err != nil {
			t.Errorf("%s: %v", call, err)
			continue
		}
		if used := allocated(func() { _, err = e.Holds(object) }); used > raceFactor*8<<20 || err == nil || !strings.Contains(err.Error(), "cost limit exceeded") {
			t.Errorf("%s: %v, allocates %d MiB", call, err, used>>20)
		}
	}
	// Calls within the limit are charged, too.
	for _, call := range []string{
		`object.middle.charAt(i) == ""`, `int(object.middle) == i`, `isURL(object.middle)`, `object.middle + object.middle == ""`,
		`timestamp("2026-01-01T00:00:00Z").getHours("Europe/Berlin") == 99`,
	} {
		var err error
		e, err := CompileObject("lists.range(1000).exists(i, " + call + ")")
		if err == nil {
			_, err = e.Holds(object)
		}
		if err == nil || !strings.Contains(err.Error(), "cost limit exceeded") {
			t.Errorf("%s: %v", call, err)
		}
	}
	// Comparing with a small value is cheap, and so is computing what it costs.
	for _, call := range []string{`object.map == {"a": i}`, `[object.map] == [{}, {}]`, `object.?map.orValue(1) == 1`, `optional.of(object.map) == optional.of({})`} {
		var err error
		e, err := CompileObject("lists.range(100).exists(i, " + call + ")")
		if err != nil {
			t.Errorf("%s: %v", call, err)
			continue
		}
		if used := allocated(func() { _, err = e.Holds(object) }); used > 1<<20 || err != nil {
			t.Errorf("%s: %v, allocates %d KiB", call, err, used>>10)
		}
	}
}

// The cost of a regular expression includes its repetitions.
func TestRepetitionsAreCharged(t *testing.T) {
	object := map[string]any{"name": strings.Repeat("a", 63), "text": strings.Repeat("a", 2000), "long": strings.Repeat("a", 200_000)}
	for text, limited := range map[string]bool{
		`object.text.matches("(a?){200}b")`: true, `object.text.find("(a?){200}b") == ""`: true, `object.text.findAll("(a?){200}b", 1) == []`: true,
		`object.long.matches("b")`: true, `matches(object.text, "(a|aa){99}b")`: true,
		`object.name.matches("^[a-z0-9]{1,63}$")`: false, `object.text.find("a{2}") == "aa"`: false, `matches("10.1.2.3", "^([0-9]{1,3}[.]?){4}$")`: false,
	} {
		e, err := CompileObject(text)
		if err != nil {
			t.Fatal(err)
		}
		_, err = e.Holds(object)
		if is := err != nil && strings.Contains(err.Error(), "cost limit exceeded"); is != limited || !limited && err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// compared is a number that counts how often it is compared.
type compared struct {
	types.Int
	comparisons *int
}

func (c compared) Equal(other ref.Val) ref.Val {
	*c.comparisons++
	if o, ok := other.(compared); ok {
		return types.Bool(c.Int == o.Int)
	}
	return types.False
}

// Long lists are not compared element by element if that costs more than the limit.
func TestListsAreNotCompared(t *testing.T) {
	for _, text := range []string{
		"sets.contains(object.a, object.a)", "sets.intersects(object.a, object.b)",
	} {
		comparisons := 0
		var a, b []any
		for i := range 2000 {
			a, b = append(a, compared{types.Int(i), &comparisons}), append(b, compared{types.Int(-i - 1), &comparisons})
		}
		err := evaluateObject(t, text, map[string]any{"a": a, "b": b})
		if err == nil || !strings.Contains(err.Error(), "cost limit exceeded") || comparisons > CostLimit {
			t.Errorf("%s: %v, after %d comparisons", text, err, comparisons)
		}
	}
}

// Long texts are not searched for each other, at each of their positions.
func TestTextsAreNotSearched(t *testing.T) {
	object := map[string]any{"text": strings.Repeat("a", 20_000), "part": strings.Repeat("a", 10_000) + "b"}
	for _, text := range []string{
		"object.text.indexOf(object.part) == 0", "object.text.indexOf(object.part, 1) == 0",
		"object.text.lastIndexOf(object.part) == 0", "object.text.lastIndexOf(object.part, 9000) == 0",
	} {
		if err := evaluateObject(t, text, object); err == nil || !strings.Contains(err.Error(), "cost limit exceeded") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// What does not cost too much is evaluated as before.
func TestWorkWithinTheLimit(t *testing.T) {
	for _, text := range []string{
		`"abcabc".replace("b", "xyz") == "axyzcaxyzc" && "aaa".replace("a", "bb", 2) == "bbbba" && "ab".replace("", "-") == "-a-b-"`,
		`"aaa".replace("a", "", -1) == "" && "aaa".replace("a", "b", 0) == "aaa"`,
		`["a", "b"].join() == "ab" && ["a", "b"].join(", ") == "a, b"`,
		`"%s is %d, %.3f".format(["a", 1, 2.0]) == "a is 1, 2.000"`,
		`"100%%, %.2f %.200f %e".format([1.0, 1.0, 1.0]).startsWith("100%, 1.00 1.0")`, `"%%.65535e".format([]) == "%.65535e"`,
		`lists.range(1000).size() == 1000 && [[1], [2, 3]].flatten() == [1, 2, 3] && [1, 1, 2].distinct() == [1, 2]`,
		`lists.range(500).map(x, x + 1).size() == 500`,
		`sets.contains([1, 2], [2]) && !sets.intersects([1], [2]) && sets.equivalent(["a", "b"], ["b", "a", "a"])`,
		`"hello".indexOf("l") == 2 && "hello".lastIndexOf("l") == 3 && "hello".indexOf("l", 3) == 3 && ["a"].indexOf("a") == 0`,
		`[[1, 2]].map(a, a + a + [3])[0] == [1, 2, 1, 2, 3]`,
	} {
		if got, err := mustCompile(t, text).Holds(aNode(), ownKey); err != nil || !got {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{`lists.range(-1).size() == 0`, `object.text.flatten(2) == []`, `[object.text].join() == ""`, `object.text.join(object.text) == ""`} {
		if err := evaluateObject(t, text, map[string]any{"text": int64(1)}); err == nil || strings.Contains(err.Error(), "cost") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Names are found in long lists at the cost of the list's size.
func TestNamesInLongLists(t *testing.T) {
	var names []any
	for i := range 6000 {
		names = append(names, fmt.Sprintf("node-%040d.example.com", i))
	}
	object := map[string]any{"names": names, "name": names[len(names)-1]}
	for _, text := range []string{`object.name in object.names`, `!("other" in object.names)`} {
		if err := evaluateObject(t, text, object); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The limits refer to overloads that exist: a library that renames one must not end its limit.
func TestWorkNamesOverloads(t *testing.T) {
	env, err := cel.NewEnv(append(slices.Clip(language), boundedQuantities...)...)
	if err != nil {
		t.Fatal(err)
	}
	bound := map[string]bool{}
	for _, function := range env.Functions() {
		bindings, err := function.Bindings()
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range bindings {
			bound[b.Operator] = true
		}
	}
	for overload := range work {
		if !bound[overload] {
			t.Errorf("no function has the overload %s", overload)
		}
	}
}
