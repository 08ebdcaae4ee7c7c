// SPDX-License-Identifier: Apache-2.0

package gateclient

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/nodegate/nodegate/internal/crd/crdtest"
)

// Each field of the definition that accepts only certain values accepts the same ones when
// a stored gate is read.
func TestEnums(t *testing.T) {
	fields := 0
	crdtest.Walk(t, func(path string, schema *apiextensionsv1.JSONSchemaProps) {
		if len(schema.Enum) == 0 || !strings.HasPrefix(path, ".spec.") {
			return
		}
		fields++
		for _, value := range schema.Enum {
			if g := gateWith(t, path, string(value.Raw)); g.ReadError != "" {
				t.Errorf("%s: %s: %s", path, value.Raw, g.ReadError)
			}
		}
		at := strings.ReplaceAll(strings.TrimPrefix(path, "."), "[]", "[0]")
		if g := gateWith(t, path, `"Unheard"`); !strings.Contains(g.ReadError, at+`: "Unheard" is not supported`) {
			t.Errorf("%s: ReadError = %q", at, g.ReadError)
		}
	})
	if fields < len(enums) {
		t.Errorf("visited %d fields of %d types", fields, len(enums))
	}
}

// gateWith returns a gate that is stored with a value at a path, and nothing else.
func gateWith(t *testing.T, path, value string) *StoredGate {
	t.Helper()
	for _, field := range slices.Backward(strings.Split(path, ".")[1:]) {
		name, isList := strings.CutSuffix(field, "[]")
		if isList {
			value = "[" + value + "]"
		}
		value = fmt.Sprintf("{%q:%s}", name, value)
	}
	g := &StoredGate{}
	if err := json.Unmarshal([]byte(value), g); err != nil {
		t.Fatal(err)
	}
	return g
}
