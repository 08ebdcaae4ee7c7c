// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"testing"
)

// Progress is one line of a terminal, which is cleared at the end. Elsewhere there is no
// progress line.
func TestProgressLine(t *testing.T) {
	var out bytes.Buffer
	if line := newProgressLine(&out); line.out != nil {
		t.Error("a buffer is treated as a terminal")
	}
	for _, line := range []*progressLine{{}, {out: &out}} {
		line.show("1 of 2")
		line.show("1 of 2")
		line.show("2 of 2")
		line.clear()
		line.clear()
	}
	if want := "\r\x1b[K1 of 2\r\x1b[K2 of 2\r\x1b[K"; out.String() != want {
		t.Errorf("output %q, want %q", out.String(), want)
	}
}
