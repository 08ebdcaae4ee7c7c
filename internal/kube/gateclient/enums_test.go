// SPDX-License-Identifier: Apache-2.0

package gateclient

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/nodegate/nodegate/internal/crd"
)

// Each field of the definition that accepts only certain values accepts the same ones when
// a stored gate is read.
func TestEnums(t *testing.T) {
	definition, err := crd.Definition()
	if err != nil {
		t.Fatal(err)
	}
	fields := 0
	visit := func(path []string, schema *apiextensionsv1.JSONSchemaProps) {
		if len(schema.Enum) == 0 {
			return
		}
		fields++
		for _, value := range schema.Enum {
			if g := gateWith(t, path, value.Raw); g.ReadError != "" {
				t.Errorf("%s: %s: %s", path, value.Raw, g.ReadError)
			}
		}
		at := strings.ReplaceAll(strings.Join(path, "."), ".[]", "[0]")
		if g := gateWith(t, path, []byte(`"Unheard"`)); !strings.Contains(g.ReadError, at+`: "Unheard" is not supported`) {
			t.Errorf("%s: ReadError = %q", at, g.ReadError)
		}
	}
	spec := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	walk([]string{"spec"}, &spec, visit)
	if fields < len(enums) {
		t.Errorf("visited %d fields of %d types", fields, len(enums))
	}
}

// walk calls visit for a schema and those below it. Elements of lists have the name [].
func walk(path []string, schema *apiextensionsv1.JSONSchemaProps, visit func([]string, *apiextensionsv1.JSONSchemaProps)) {
	visit(path, schema)
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property := schema.Properties[name]
		walk(append(slices.Clone(path), name), &property, visit)
	}
	if schema.Items != nil {
		walk(append(slices.Clone(path), "[]"), schema.Items.Schema, visit)
	}
}

// gateWith returns a gate that is stored with a value at a path, and nothing else.
func gateWith(t *testing.T, path []string, value []byte) *StoredGate {
	t.Helper()
	raw := string(value)
	for _, name := range slices.Backward(path) {
		if name == "[]" {
			raw = "[" + raw + "]"
		} else {
			raw = fmt.Sprintf("{%q:%s}", name, raw)
		}
	}
	g := &StoredGate{}
	if err := json.Unmarshal([]byte(raw), g); err != nil {
		t.Fatal(err)
	}
	return g
}
