// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// openEnvelope opens only envelopes as API servers write them. The general serializer
// decodes all others.
func TestEnvelopes(t *testing.T) {
	pack := func(change func(*runtime.Unknown)) string {
		u := &runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Node"}, Raw: []byte("raw")}
		change(u)
		body, err := u.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return string(prefix) + string(body)
	}
	plain := pack(func(*runtime.Unknown) {})
	for name, c := range map[string]struct {
		data string
		want bool
	}{
		"as usual":             {plain, true},
		"without an object":    {pack(func(u *runtime.Unknown) { u.Raw = nil }), true},
		"encoded":              {pack(func(u *runtime.Unknown) { u.ContentEncoding = "gzip" }), false},
		"another content type": {pack(func(u *runtime.Unknown) { u.ContentType = runtime.ContentTypeJSON }), false},
		"two kinds":            {plain + "\x0a\x04\x12\x02No", false},
		"truncated":            {plain[:len(plain)-1], false},
		"without the prefix":   {plain[len(prefix):], false},
		"JSON":                 {`{"apiVersion":"v1","kind":"Node"}`, false},
		"empty":                {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			e, opened := openEnvelope([]byte(c.data))
			if opened != c.want {
				t.Fatalf("opened: %v, want %v", opened, c.want)
			}
			if opened && (string(e.version) != "v1" || string(e.kind) != "Node") {
				t.Errorf("%s %s", e.version, e.kind)
			}
		})
	}
}
