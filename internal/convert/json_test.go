// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"strings"
	"testing"
)

// jsonRule is a NodeReadinessRule in JSON. Its effect is in line 7 of 9.
const jsonRule = `{
	"apiVersion": "readiness.node.x-k8s.io/v1alpha1",
	"kind": "NodeReadinessRule",
	"metadata": {"name": "NAME"},
	"spec": {
		"conditions": [{"type": "NetworkReady", "requiredStatus": "True"}], "enforcementMode": "bootstrap-only",
		"taint": {"key": "readiness.k8s.io/NAME", "effect": "NoSchedule"}, "nodeSelector": {"matchLabels": {"a": "b"}}
	}
}`

// JSON objects need no separator: jq, for example, writes them one after the other.
func TestJSONObjectsInSequence(t *testing.T) {
	a, b := strings.ReplaceAll(jsonRule, "NAME", "a"), strings.ReplaceAll(jsonRule, "NAME", "b")
	for name, text := range map[string]string{
		"lines": a + "\n" + b + "\n", "empty lines": "\n" + a + "\n\n\n" + b, "adjacent": a + b,
		"separated": a + "\n---\n" + b, "a list": `{"kind": "List", "items": [` + a + "," + b + "]}",
	} {
		if r := NodeReadinessRules(Source{Name: name, Data: []byte(text)}); r.Errors() > 0 || len(r.Gates) != 2 {
			t.Errorf("%s: %d gates\n%s", name, len(r.Gates), findingsText(r))
		}
	}
	wrong := strings.Replace(b, "NoSchedule", "Never", 1)
	checkRejections(t, NodeReadinessRules, ".json", map[string]rejection{
		"an error in the second object": {a + "\n\n" + wrong, 17, "Never"},
		"an adjacent second object":     {a + wrong, 15, "Never"},
		"other text after an object":    {a + "\nb: c\n", 9, "reading YAML"},
		"an object that does not end":   {a + "\n" + strings.TrimSuffix(b, "}"), 9, "reading YAML"},
	})
	checkRejections(t, tainterFile, ".json", map[string]rejection{"a second configuration": {"{}\n\n{}\n", 3, "one document only"}})
}

// A note gives the reason why a gate does not have the name of its rule.
func TestReasonOfANewName(t *testing.T) {
	for names, want := range map[string]string{
		"a.b": `the rule "a.b" becomes the gate "a-b", because a gate's name must be a DNS label`,
		"a a": `the rule "a" becomes the gate "a-2", because another gate has the name`,
	} {
		var text strings.Builder
		for name := range strings.FieldsSeq(names) {
			text.WriteString(strings.ReplaceAll(jsonRule, "NAME", name))
		}
		r := NodeReadinessRules(Source{Name: "rules", Data: []byte(text.String())})
		if found := findingsText(r); strings.Count(found, "becomes the gate") != 1 || !strings.Contains(found, want) {
			t.Errorf("%s: %s", names, found)
		}
	}
}
