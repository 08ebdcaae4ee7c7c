// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// limit is how many bytes of one output are kept at its beginning, and again at
// its end. A goroutine dump of this repository's largest test fits.
const limit = 512 << 10

// text is output whose middle is dropped when it becomes too long: the beginning
// contains the first error, and the end the final one. The complete output is in
// the file of raw events.
type text struct {
	head, tail []byte
	dropped    int
}

func (t *text) add(s string) {
	if room := limit - len(t.head); room > 0 && t.dropped == 0 && len(t.tail) == 0 {
		n := min(room, len(s))
		t.head = append(t.head, s[:n]...)
		s = s[n:]
	}
	t.tail = append(t.tail, s...)
	// Cutting at twice the limit moves each byte once.
	if len(t.tail) > 2*limit {
		t.dropped += len(t.tail) - limit
		t.tail = append(t.tail[:0], t.tail[len(t.tail)-limit:]...)
	}
}

// String ends with a newline unless the text is empty.
func (t *text) String() string {
	s := string(t.head)
	if t.dropped > 0 {
		s += fmt.Sprintf("\n... %d bytes are left out here ...\n", t.dropped)
	}
	s += string(t.tail)
	if s != "" && !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return s
}

// indented returns the text with each line moved to the right.
func (t *text) indented(depth int) string {
	return indent(t.String(), depth)
}

func indent(s string, depth int) string {
	if depth == 0 {
		return s
	}
	var b strings.Builder
	for line := range strings.Lines(s) {
		if line != "\n" {
			b.WriteString(strings.Repeat("    ", depth))
		}
		b.WriteString(line)
	}
	return b.String()
}
