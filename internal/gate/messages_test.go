// SPDX-License-Identifier: Apache-2.0

package gate

import "testing"

func TestFirstNames(t *testing.T) {
	for length, want := range map[int]string{2: "a, b", 5: "a, b and 3 more"} {
		if got := FirstNames([]string{"a", "b"}, length); got != want {
			t.Errorf("of %d: %q, want %q", length, got, want)
		}
	}
}
