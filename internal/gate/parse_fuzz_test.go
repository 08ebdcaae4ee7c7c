// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// FuzzParseOverride checks that an override that is parsed and written again is the
// same, and is one that the guide allows.
func FuzzParseOverride(f *testing.F) {
	for _, seed := range []string{
		`{"state":"Open","until":"2026-05-01T10:00:00Z","reason":"drill","uid":"u"}`, `{"state":"Closed","until":"2026-05-01T10:00:00.5+02:00","reason":"ß"}`,
		`{"state":"Open","until":"9999-12-31T23:59:59-23:00","reason":"a"}`, `{"state":"Open","until":"0000-01-01T00:00:00+23:00","reason":"a"}`,
		`{"STATE":"Open","until":"2026-05-01T10:00:00Z","reason":"a"}`, `{"state":"Ajar"}`, `{} {}`, `null`, "", `{"state":"Open","by":"me"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		o, err := ParseOverride(raw)
		if err != nil {
			return
		}
		if n := utf8.RuneCountInString(o.Reason); n == 0 || n > overrideReasonMax || o.Until.IsZero() || o.State != v1alpha1.StateOpen && o.State != v1alpha1.StateClosed {
			t.Errorf("%q is parsed as %+v", raw, o)
		}
		again, err := ParseOverride(o.String())
		if err != nil || again.State != o.State || again.Reason != o.Reason || again.UID != o.UID || !again.Until.Equal(o.Until) {
			t.Errorf("%q is written as %s, which is parsed as %+v, %v", raw, o, again, err)
		}
	})
}

// FuzzParseAllowedTaints checks that exactly the listed taints are allowed.
func FuzzParseAllowedTaints(f *testing.F) {
	for _, seed := range []string{"example.com/a", "a:NoSchedule,b:NoExecute", "a:", ":NoSchedule", "a:b:NoSchedule", "a=b:NoSchedule", "", "a,a:NoSchedule", "node.kubernetes.io/out-of-service:NoExecute"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		texts := strings.Split(text, ",")
		allowed, err := ParseAllowedTaints(texts)
		written := make(map[string]bool)
		for _, one := range texts {
			id, wrong := ParseTaintID(one)
			if wrong != nil {
				if err == nil {
					t.Errorf("%q is not a taint (%v), but there is no error", one, wrong)
				}
				continue
			}
			if again, err := ParseTaintID(id.String()); err != nil || again != id {
				t.Errorf("%q is parsed as %s, and that as %s, %v", one, id, again, err)
			}
			if one != id.String() && one+":NoSchedule" != id.String() {
				t.Errorf("%q is read as %s", one, id)
			}
			written[id.String()] = true
		}
		if len(allowed) != len(written) {
			t.Errorf("%q allows %s", text, allowed)
		}
		for id := range allowed {
			if !written[id.String()] || !allowed.Allows(v1alpha1.Taint{Key: id.Key, Value: "any", Effect: id.Effect}) {
				t.Errorf("%q allows %s", text, id)
			}
		}
	})
}
