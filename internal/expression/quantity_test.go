// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
)

func TestCheckQuantity(t *testing.T) {
	for text, inRange := range map[string]bool{
		"0": true, "8": true, "-1": true, "1n": true, "1500m": true, "80Gi": true, "8Ei": true, "123456789E": true, "1e99": true, "-1e99": true,
		"123456789012345678901234567890": true, "1e200": true, strings.Repeat("9", 199): true, "0." + strings.Repeat("1", 10000): true,
		"2e200": false, "-2e200": false, "1e400": false, "1e2147483647": false, "-1e2147483647": false, "0e400": false,
		strings.Repeat("9", 201): false, "-" + strings.Repeat("9", 100000): false,
	} {
		q := resource.MustParse(text)
		before := q
		err := CheckQuantity(q)
		if (err == nil) != inRange || err != nil && err.Error() != "quantity out of range: more than 1e+200" {
			t.Errorf("%.40s: %v", text, err)
		}
		if q != before {
			t.Errorf("%.40s: the check changes the quantity", text)
		}
	}
}

// A text that quantity accepts results in a quantity that is in range as a field, too.
func TestAcceptedTextsAreInRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`-?([0-9]{1,70}|9{55,63})(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,3}|e\+?99|[nukMGTPE]|[KMGTPE]i)?`).Draw(t, "text")
		q, err := parseQuantity(types.String(text))
		if err != nil {
			return
		}
		if err := CheckQuantity(q); err != nil {
			t.Errorf("%s is accepted as a text: %v", text, err)
		}
	})
}
