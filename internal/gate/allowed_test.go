// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"strings"
	"testing"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// allowed parses taints as the administrator specifies them.
func allowed(texts ...string) AllowedTaints {
	a, err := ParseAllowedTaints(texts)
	if err != nil {
		panic(err)
	}
	return a
}

func TestParseAllowedTaints(t *testing.T) {
	for text, want := range map[string]string{
		"example.com/a":                  "example.com/a:NoSchedule",
		"a":                              "a:NoSchedule",
		"example.com/a:NoSchedule":       "example.com/a:NoSchedule",
		"example.com/a:PreferNoSchedule": "example.com/a:PreferNoSchedule",
		"example.com/a:NoExecute":        "example.com/a:NoExecute",
		"":                               `key ""`,
		":NoExecute":                     `key ""`,
		"a b":                            `key "a b"`,
		"a=b:NoExecute":                  `key "a=b"`,
		"a:":                             `effect ""`,
		"a:noexecute":                    `effect "noexecute": choose one of [NoSchedule PreferNoSchedule NoExecute]`,
		"a:NoExecute:NoSchedule":         `effect "NoExecute:NoSchedule"`,
	} {
		got, err := ParseAllowedTaints([]string{"first", text})
		if strings.Contains(want, `"`) {
			if err == nil || !strings.Contains(err.Error(), want) || got.String() != "first:NoSchedule" {
				t.Errorf("%q: %v and error %v, want one with %s", text, got, err, want)
			}
			continue
		}
		if err != nil || len(got) != 2 || !strings.Contains(got.String(), want) {
			t.Errorf("%q: %v and error %v, want %s", text, got, err, want)
		}
	}
}

func TestAllows(t *testing.T) {
	some := allowed("a", "b:NoExecute")
	for text, want := range map[string]bool{
		"a:NoSchedule": true, "a=x:NoSchedule": true, "a:NoExecute": false, "a:PreferNoSchedule": false,
		"b:NoExecute": true, "b:NoSchedule": false, "c:NoSchedule": false,
	} {
		taint, _ := parseTaint(text)
		if got := some.Allows(taint); got != want {
			t.Errorf("%s: %t", text, got)
		}
		if !AllowedTaints(nil).Allows(taint) || (AllowedTaints{}).Allows(taint) {
			t.Errorf("%s: nil must allow every taint, and an empty list none", text)
		}
	}
	if got := allowed("b", "a:NoExecute").String(); got != "a:NoExecute, b:NoSchedule" {
		t.Error(got)
	}
	if id := IDOf(v1alpha1.Taint{Key: "a", Value: "x", Effect: "NoExecute"}); id.String() != "a:NoExecute" {
		t.Error(id)
	}
}
