// SPDX-License-Identifier: Apache-2.0

package intern

import (
	"fmt"
	"testing"
)

// Texts that one node changes without end, such as the names of its devices, do not fill the
// memory.
func TestInternedTextsAreBounded(t *testing.T) {
	in := New()
	for i := range 3 * maxBytes / 8000 {
		in.Text(fmt.Sprintf("%08000d", i))
	}
	sum := 0
	for text := range in.texts {
		sum += len(text)
	}
	if sum == 0 || sum > maxBytes || in.bytes != sum {
		t.Errorf("%d bytes are interned, counted are %d, the limit is %d", sum, in.bytes, maxBytes)
	}
}
