// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"strings"
	"testing"
)

// anObject returns an object with many elements.
func anObject(elements int) map[string]any {
	list := make([]any, elements)
	for i := range list {
		list[i] = map[string]any{"type": "Ready", "status": "True", "index": int64(i)}
	}
	return map[string]any{
		"metadata": map[string]any{"name": "n1", "labels": map[string]any{"a": "b"}, "generation": int64(2)},
		"spec":     map[string]any{"size": "4Gi", "ratio": 0.5},
		"status":   map[string]any{"conditions": list, "observedGeneration": int64(2)},
	}
}

func TestObjectExpressions(t *testing.T) {
	object := anObject(3)
	for text, want := range map[string]string{
		`object.metadata.name == "n1"`: "true",
		`object.status.conditions.exists(c, c.type == "Ready" && c.status == "True")`: "true",
		`object.status.observedGeneration == object.metadata.generation`:              "true",
		`quantity(object.spec.size).isGreaterThan(quantity("1Gi"))`:                   "true",
		`object.spec.ratio > 1`:                   "false",
		`has(object.status.phase)`:                "false",
		`object.?status.?phase.orValue("") == ""`: "true",
		`object.status.phase == "Ready"`:          "no such key: phase",
		`object.spec.size`:                        "it returned string instead of bool",
		`object.spec.size > 3`:                    "no such overload",
	} {
		e, err := CompileObject(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := "false"
		switch holds, err := e.Holds(object); {
		case err != nil:
			got = err.Error()
		case holds:
			got = "true"
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// The cost of an evaluation is limited whatever the size of the object.
func TestLargeObjectsAreBounded(t *testing.T) {
	e, err := CompileObject(`object.status.conditions.all(c, c.type == "Ready")`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Holds(anObject(10)); err != nil {
		t.Error(err)
	}
	if _, err := e.Holds(anObject(10_000)); err == nil || !strings.Contains(err.Error(), "cost") {
		t.Errorf("evaluating ten thousand elements: %v", err)
	}
}

func TestMetadataOnly(t *testing.T) {
	for text, want := range map[string]bool{
		`object.metadata.labels["a"] == "b"`:                           true,
		`object.metadata.?annotations["a"].hasValue()`:                 true,
		`has(object.metadata.labels) && "a" in object.metadata.labels`: true,
		`true`:                 true,
		`has(object.metadata)`: true,
		`object.metadata.name == object.spec.name`:  false,
		`has(object.status)`:                        false,
		`object["metadata"]["name"] == "a"`:         false,
		`object.all(field, field != "status")`:      false,
		`[object].exists(o, o.status.phase == "a")`: false,
		`[1].all(object, .object.spec.a == 1)`:      false,
		`[1].all(object, has(.object.metadata))`:    true,
	} {
		e, err := CompileObject(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if e.MetadataOnly() != want {
			t.Errorf("%s: metadata only: %t", text, !want)
		}
	}
}

// A compiled expression is shared as long as it is in use, and not confused with an
// expression over nodes that has the same text.
func TestObjectExpressionsAreCached(t *testing.T) {
	const text = `"cached" == "cached"`
	a, err := CompileObject(text)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := CompileObject(text); a != b || !IsObjectCompiled(text) || IsCompiled(text) {
		t.Error("the expression is not cached, or in the wrong cache")
	}
}
