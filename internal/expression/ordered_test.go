// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"fmt"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/nodegate/nodegate/internal/gate"
)

// repetitions is how often an expression is evaluated. By chance, Go iterates so often over four
// keys in the same order in one of 10^44 cases.
const repetitions = 100

// alwaysHolds evaluates an expression repeatedly.
func alwaysHolds(t *testing.T, text string, holds func() (bool, error)) {
	t.Helper()
	for range repetitions {
		if is, err := holds(); !is || err != nil {
			t.Errorf("%s: %t, %v", text, is, err)
			return
		}
	}
}

// Loops iterate over maps in the order of the keys: the result of an expression depends only on
// facts.
func TestLoopsAreOrdered(t *testing.T) {
	n := &gate.Node{Labels: map[string]string{"a": "4", "b": "3", "c": "2", "d": "1"}}
	for _, text := range []string{
		`labels.map(k, k)[0] == "a"`,
		`labels.map(k, labels[k]).join() == "4321"`,
		`labels.filter(k, k > "b") == ["c", "d"]`,
		`labels.transformList(k, v, v) == ["4", "3", "2", "1"]`,
		`labels.transformMap(k, v, v + "x").map(k, k).join() == "abcd"`,
		`labels.transformMapEntry(k, v, {v: k}).map(k, k).join() == "1234"`,
		`labels.transformMapEntry(k, v, {v: k}).transformList(k, v, v).join() == "dcba"`,
		`{"c": labels.c, "b": labels.b, "a": labels.a}.map(k, k).join() == "abc"`,
		`{"d": 1, "c": 2, "b": 3, "a": 4}.map(k, k).join() == "abcd"`,
		`{4: "d", 10: "a", -3: "b", 0: "c"}.map(k, k) == [-3, 0, 4, 10]`,
		`{true: 1, false: 2}.map(k, k) == [false, true]`,
		`{dyn(type("")): "b", dyn(type(1)): "a", dyn(type(b"")): "c", dyn(type(1u)): "d"}.transformList(k, v, v).join() == "cabd"`,
		`url("https://example.com/?c=3&a=1&d=4&b=2").getQuery().map(k, k) == ["a", "b", "c", "d"]`,
		`url("https://example.com/?c=3&a=1&d=4&b=2").getQuery().transformList(k, v, k)[3] == "d"`,
		`optional.ofNonZeroValue(labels).hasValue() && !optional.ofNonZeroValue(labels.transformMap(k, v, k == "", v)).hasValue()`,
	} {
		e, err := Compile(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		alwaysHolds(t, text, func() (bool, error) { return e.Holds(n) })
	}
}

func TestLoopsOverObjectsAreOrdered(t *testing.T) {
	part := map[string]any{"a": "4", "b": "3", "c": "2", "d": int64(1)}
	object := map[string]any{"metadata": map[string]any{"labels": part}, "spec": map[string]any{"parts": []any{part}}}
	for _, text := range []string{
		`object.metadata.labels.map(k, k).join() == "abcd"`,
		`object.spec.parts[0].transformList(k, v, string(v)).join() == "4321"`,
		`object.spec.transformList(k, v, v)[0][0].map(k, k).join() == "abcd"`,
	} {
		e, err := CompileObject(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		alwaysHolds(t, text, func() (bool, error) { return e.Holds(object) })
	}
}

// A loop over more keys than the cost allows fails, whatever it does with the keys. It does not
// copy them, even if it ends at the first one.
func TestLoopsOverLargeMaps(t *testing.T) {
	labels := make(map[string]any)
	for i := range keysMax + 1 {
		labels[fmt.Sprint(i)] = "x"
	}
	object := map[string]any{"metadata": map[string]any{"labels": labels}}
	for text, fails := range map[string]bool{
		`object.metadata.labels.map(k, 1).size() > 0`:          true,
		`object.metadata.labels.exists(k, k == "0")`:           true,
		`object.metadata.labels.all(k, k == "0")`:              true,
		`object.metadata.labels.transformList(k, v, 1) == [1]`: true,
		`object.metadata.labels.size() > 3333`:                 false,
		`object.metadata.labels["77"] == "x"`:                  false,
	} {
		e, err := CompileObject(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if holds, err := e.Holds(object); holds == fails || (err != nil) != fails {
			t.Errorf("%s: %t, %v", text, holds, err)
		}
	}
	if id := tooManyKeys.Get(types.IntZero).(*types.Err).NodeID(); id != -1 {
		t.Errorf("an evaluation has set the ID of a shared error to %d", id)
	}
	first, err := CompileObject(`object.metadata.labels.exists(k, true)`)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(10, func() { _, _ = first.Holds(object) }); n > 100 {
		t.Errorf("reading the first of %d keys allocates %.0f objects", len(labels), n)
	}
}

// A loop that builds a map wraps it once, not again for each key.
func TestBuiltMapsAreWrappedOnce(t *testing.T) {
	env, err := boundedLanguage()
	if err != nil {
		t.Fatal(err)
	}
	bindings, err := env.Functions()[insertion].Bindings()
	if err != nil {
		t.Fatal(err)
	}
	var m ref.Val = types.NewMutableMap(types.DefaultTypeAdapter, nil)
	for i := range 3 {
		for _, b := range bindings {
			if b.Operator == "@mapInsert_map_key_value" {
				m = b.Function(m, types.Int(i), types.True)
			}
		}
	}
	built, ok := m.(orderedWhenBuilt)
	if _, again := built.MutableMapper.(orderedWhenBuilt); !ok || again || built.ToImmutableMap().Size() != types.Int(3) {
		t.Errorf("the map is %#v", m)
	}
}
