// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

var options = Options{Namespace: "here", ServiceAccount: "me", AllowedTaintKeys: []string{"example.com/a", "example.com/b"}}

// written returns the objects that Write writes, in order.
func written(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, options); err != nil {
		t.Fatal(err)
	}
	var all []unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(&out, 4096)
	for {
		var object unstructured.Unstructured
		switch err := decoder.Decode(&object); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all = append(all, object)
	}
}

// What others need comes before them, and nothing is in it that only the API
// server sets, or that would fight with it.
func TestWrite(t *testing.T) {
	at := map[string]int{}
	for i, object := range written(t) {
		kind := object.GetKind()
		if _, known := at[kind]; !known {
			at[kind] = i
		}
		if _, has := object.Object["status"]; has && kind != "CustomResourceDefinition" {
			t.Errorf("%s %s has a status", kind, object.GetName())
		}
		if !object.GetCreationTimestamp().Time.IsZero() || object.GetName() == "" || object.GetAPIVersion() == "" {
			t.Errorf("%s %s is not ready to be applied: %v", kind, object.GetName(), object.Object)
		}
		if namespace := object.GetNamespace(); namespace != "" && namespace != options.Namespace {
			t.Errorf("%s %s is in namespace %s", kind, object.GetName(), namespace)
		}
	}
	for _, order := range [][2]string{
		{"CustomResourceDefinition", "Namespace"}, {"Namespace", "ServiceAccount"}, {"Namespace", "Role"},
		{"ClusterRole", "ClusterRoleBinding"}, {"Role", "RoleBinding"},
		{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}, {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"},
	} {
		first, ok := at[order[0]]
		if second, also := at[order[1]]; !ok || !also || first > second {
			t.Errorf("%s comes as number %d (there: %t), after %s (there: %t)", order[0], first, ok, order[1], also)
		}
	}
}

func TestWriteIsTheSameEveryTime(t *testing.T) {
	var first, second bytes.Buffer
	if err := errors.Join(Write(&first, options), Write(&second, options)); err != nil || first.String() != second.String() {
		t.Errorf("two outputs differ, or there is an error: %v", err)
	}
}

func TestBadOptionsWriteNothing(t *testing.T) {
	bad := Options{Namespace: "No", ServiceAccount: "", AllowedTaintKeys: []string{"a b"}}
	var out bytes.Buffer
	err := Write(&out, bad)
	if err == nil || out.Len() > 0 || bad.Validate() == nil {
		t.Fatalf("error %v, output of %d bytes", err, out.Len())
	}
	for _, want := range []string{`"No"`, `"a b"`, `service account ""`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}
