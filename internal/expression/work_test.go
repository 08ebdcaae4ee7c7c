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
	"format of empty bytes":     `[[b""` + strings.Repeat(`,b""`, 49) + `]]` + strings.Repeat(`.map(a, [a`+strings.Repeat(",a", 79)+`])`, 2) + `.exists(x, "%s".format([x]) == "")`,
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
				if !limited(err) {
					t.Errorf("%s: %v", kind, err)
				}
				if got := (after.TotalAlloc - before.TotalAlloc) >> 20; got > 0 {
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

// limited reports whether an evaluation exceeded the cost limit.
func limited(err error) bool {
	return err != nil && strings.Contains(err.Error(), "cost limit exceeded")
}

// Each evaluation of a call on a long text or a large value costs as much as it reads or
// allocates, so a loop of such calls ends soon. With a short text, the same loop is cheap.
func TestCallsOnLargeValues(t *testing.T) {
	text := strings.Repeat("1", 1<<20)
	object := map[string]any{"text": text, "short": text[:2000], "middle": text[:20_000]}
	small := map[string]any{"text": "1", "short": "1", "middle": "1"}
	// These calls fail before they begin, or after a few times.
	refused := []string{
		`object.text.charAt(i) == ""`, `object.text.findAll("").size() == i`,
		`object.text + object.text == ""`, `int(object.text) == i`, `double(object.text) == 0.0`, `bool(object.text)`,
		`timestamp(object.text).getHours() == i`, `bytes(object.text).size() == i`, `isURL(object.text)`, `object.text.lowerAscii() == ""`,
		`created.getHours(object.text) == 1`,
	}
	// The memory of these is not measured: with the race detector, searching and counting allocate.
	repeated := []string{
		`object.text.size() == 99`, `size(object.text) == 99`, `object.short.findAll("").size() == 99`, `object.middle.charAt(i + 1) == "a"`,
		`int(object.middle) == -1`, `isURL(object.middle)`, `object.middle + object.middle == ""`, `created.getHours("Europe/Berlin") == 99`,
	}
	for i, call := range slices.Concat(refused, repeated) {
		call = strings.ReplaceAll(call, "created", `timestamp("2026-01-01T00:00:00Z")`)
		withoutZone := strings.NewReplacer(`getHours("Europe/Berlin")`, "getHours()", "getHours(object.text)", "getHours()").Replace(call)
		if err := evaluateObject(t, "lists.range(100).exists(i, "+withoutZone+")", small); limited(err) {
			t.Errorf("%s of a short text: %v", call, err)
		}
		e, err := CompileObject("lists.range(100).exists(i, " + call + ")")
		if err != nil {
			t.Errorf("%s: %v", call, err)
			continue
		}
		used := allocated(func() { _, err = e.Holds(object) })
		if !limited(err) || i < len(refused) && used > 8<<20 {
			t.Errorf("%s: %v, allocates %d MiB", call, err, used>>20)
		}
	}
}

// A part of a URL costs as much as its length, each time that it is read.
func TestPartsOfURLs(t *testing.T) {
	for _, part := range []string{"getQuery().size() == -1", "getEscapedPath().size() == -1"} {
		for n, expensive := range map[int]bool{1: false, 9000: true} {
			object := map[string]any{"url": "http://a/" + strings.Repeat("%20", n) + "?" + strings.Repeat("a&", n/5)}
			err := evaluateObject(t, "[url(object.url)].exists(u, lists.range(100).exists(i, u."+part+"))", object)
			if limited(err) != expensive || !expensive && err != nil {
				t.Errorf("%s of %d bytes: %v", part, len(object["url"].(string)), err)
			}
		}
	}
}

// Comparing with a small value is cheap, and so is computing what it costs.
func TestComparisonsWithSmallValues(t *testing.T) {
	large := map[string]any{}
	for i := range 9000 {
		large[fmt.Sprint(i)] = int64(i)
	}
	for _, call := range []string{`object.map == {"a": i}`, `[object.map] == [{}, {}]`, `object.?map.orValue(1) == 1`, `optional.of(object.map) == optional.of({})`} {
		e, err := CompileObject("lists.range(100).exists(i, " + call + ")")
		if err != nil {
			t.Errorf("%s: %v", call, err)
			continue
		}
		if used := allocated(func() { _, err = e.Holds(map[string]any{"map": large}) }); used > 1<<20 || err != nil {
			t.Errorf("%s: %v, allocates %d KiB", call, err, used>>10)
		}
	}
}

// Parsing a regular expression may take much longer than searching for it, so charging a search
// does not parse it again.
func TestPatternsAreParsedOnce(t *testing.T) {
	const folded = `"".matches("(?i)[B-\U0001E942][B-\U0001E942]a{2}")`
	for _, text := range []string{folded, "lists.range(140).exists(i, " + folded + ")"} {
		if err := evaluateObject(t, text, nil); err != nil {
			t.Fatal(err)
		}
		e, err := CompileObject(text)
		if err != nil {
			t.Fatal(err)
		}
		if used := allocated(func() { _, _ = e.Holds(nil) }); used > 1<<20 {
			t.Errorf("%s allocates %d KiB", text, used>>10)
		}
	}
}

// A loop is rejected when it is declared if its searches are too expensive for a large node.
func TestEstimateOfPatterns(t *testing.T) {
	for text, accepted := range map[string]bool{
		`labels.exists(k, k.matches("^[a-z0-9./-]{1,63}$"))`: false, `labels.exists(k, k.find("[a-z]{40}") == "x")`: false,
		`labels.exists(k, k.matches("^[a-z0-9./-]+$"))`: true, `conditions.exists(c, c.type.matches("^[A-Z][a-z]{1,20}$"))`: true,
		`labels["a"].matches("^[a-z0-9]{1,63}$")`: true,
	} {
		if _, err := Compile(text); (err == nil) != accepted {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The cost of a regular expression includes its repetitions.
func TestRepetitionsAreCharged(t *testing.T) {
	object := map[string]any{"name": strings.Repeat("a", 63), "text": strings.Repeat("a", 2000), "long": strings.Repeat("a", 200_000)}
	for text, expensive := range map[string]bool{
		`object.text.matches("(a?){200}b")`: true, `object.text.find("(a?){200}b") == ""`: true, `object.text.findAll("(a?){200}b", 1) == []`: true,
		`object.long.matches("b")`: true, `matches(object.text, "(a|aa){99}b")`: true,
		`object.name.matches("^[a-z0-9]{1,63}$")`: false, `object.text.find("a{2}") == "aa"`: false, `matches("10.1.2.3", "^([0-9]{1,3}[.]?){4}$")`: false,
	} {
		e, err := CompileObject(text)
		if err != nil {
			t.Fatal(err)
		}
		_, err = e.Holds(object)
		if limited(err) != expensive || !expensive && err != nil {
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
		if !limited(err) || comparisons > CostLimit {
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
		if err := evaluateObject(t, text, object); !limited(err) {
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
