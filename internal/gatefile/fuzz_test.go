// SPDX-License-Identifier: Apache-2.0

package gatefile

import (
	"encoding/binary"
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/nodegate/nodegate/internal/crd"
)

// FuzzDeclared checks that declared gates are valid, and stay the same when they are written
// and read again.
func FuzzDeclared(f *testing.F) {
	const one = "apiVersion: nodegate.dev/v1alpha1\nkind: NodeGate\nmetadata: {name: a}\nspec: {nodeSelector: {}, taint: {key: example.com/a, effect: NoSchedule}, openWhen: [{name: l, label: {key: l}}]}\n"
	// Compile the API's rules now, because an input that takes 10 seconds counts as hanging.
	if _, err := Declared("one", []byte(one)); err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		one, one + "---\n" + one, one + "...\n" + one, `{"a":1}{"a":2} # b`, "apiVersion: v1\nkind: List\nitems: []\nitems: []\n", "--- # nothing\n", "apiVersion: v1\nkind: List\nitems: []\n", "apiVersion: v1\nkind: List\nitems: [7]\n",
		"apiVersion: v1\nkind: ConfigMap\n", "kind: NodeGate\n", "{}", "\t", "a: &a [*a, *a]\n", "apiVersion: nodegate.dev/v1alpha1\nkind: NodeGateList\n",
		utf8Mark + "# a\n---\n" + one, utf16LE + asUTF16(binary.LittleEndian, one), utf16BE + "\xd8", utf16LE + "\x00\x00", "\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		gates, _ := Declared("fuzz", content)
		for _, g := range gates {
			if err := crd.Validate(g); err != nil {
				t.Errorf("an invalid gate was accepted: %v", err)
			}
			text, err := json.Marshal(g)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Declared("again", text)
			if err != nil || len(again) != 1 {
				t.Fatalf("%s: reading it again returned %d gates, %v", text, len(again), err)
			}
			if again[0].Name != g.Name || !equality.Semantic.DeepEqual(again[0].Spec, g.Spec) {
				t.Errorf("%s: reading it again returned %+v", text, again[0].Spec)
			}
		}
	})
}
