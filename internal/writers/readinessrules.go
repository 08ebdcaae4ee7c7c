// SPDX-License-Identifier: Apache-2.0

package writers

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ReadinessRules is the resource of kubernetes-sigs/node-readiness-controller, which adds and
// removes the taints that its objects specify.
var ReadinessRules = schema.GroupVersionResource{Group: "readiness.node.x-k8s.io", Version: "v1alpha1", Resource: "nodereadinessrules"}

// ManagedKeys returns the names of NodeReadinessRules by the taint key that they manage.
func ManagedKeys(rules []unstructured.Unstructured) map[string]string {
	byKey := make(map[string]string, len(rules))
	for i := range rules {
		if key, _, _ := unstructured.NestedString(rules[i].Object, "spec", "taint", "key"); key != "" {
			byKey[key] = rules[i].GetName()
		}
	}
	return byKey
}
