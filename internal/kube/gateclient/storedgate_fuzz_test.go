// SPDX-License-Identifier: Apache-2.0

package gateclient

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// FuzzStoredGate checks that a readable gate is decoded completely, and that an
// unreadable one keeps its identity and has a ReadError.
func FuzzStoredGate(f *testing.F) {
	for _, seed := range []string{
		`{"apiVersion":"nodegate.dev/v1alpha1","kind":"NodeGate","metadata":{"name":"a"},"spec":{"taint":{"key":"example.com/a","effect":"NoSchedule"},"openWhen":[{"name":"l","label":{"key":"l"}}]}}`,
		`{"metadata":{"name":"a"},"spec":{"taint":{"key":"k"},"timing":[]},"status":7}`,
		`{"metadata":{"name":"a"},"spec":{"taint":7}}`, `{"metadata":{"name":"a"},"status":{"nodes":[]}}`, `{"metadata":7}`, `[]`, `null`, `{`, `{"spec":{"openWhen":[{"expression":7}]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var g StoredGate
		if err := json.Unmarshal(raw, &g); err != nil {
			return
		}
		text, err := json.Marshal(&g.NodeGate)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		var again StoredGate
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatalf("%s cannot be read again: %v", text, err)
		}
		if again.Name != g.Name || again.UID != g.UID {
			t.Errorf("%s is another gate", text)
		}
		if g.ReadError != "" {
			if len(g.Spec.OpenWhen)+len(g.Spec.CloseWhen) > 0 || g.Status.Conditions != nil {
				t.Errorf("a gate that cannot be read has signals or a status: %+v", g.NodeGate)
			}
			return
		}
		if !equality.Semantic.DeepEqual(again.Spec, g.Spec) {
			t.Errorf("read as %+v, and again as %+v", g.Spec, again.Spec)
		}
		var plain v1alpha1.NodeGate
		if utiljson.Unmarshal(raw, &plain) == nil && !equality.Semantic.DeepEqual(plain.Spec, g.Spec) {
			t.Errorf("read as %+v, by the API machinery's decoder as %+v", g.Spec, plain.Spec)
		}
	})
}
