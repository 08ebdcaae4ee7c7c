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
