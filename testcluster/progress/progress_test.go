// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	var output bytes.Buffer
	plain := New(&output)
	plain.Line("one")
	plain.Update("too soon")
	plain.last = time.Now().Add(-plainInterval)
	plain.Update("two")
	if got := output.String(); got != "one\ntwo\n" {
		t.Errorf("plain: %q", got)
	}
	output.Reset()
	terminal := &Progress{writer: &output, terminal: true}
	terminal.Update("one")
	terminal.Update("two")
	terminal.Line("three")
	terminal.Line("four")
	terminal.Update("five")
	terminal.Clear()
	terminal.Clear()
	if got := output.String(); got != "one\r\x1b[Ktwo\r\x1b[Kthree\nfour\nfive\r\x1b[K" {
		t.Errorf("terminal: %q", got)
	}
	output.Reset()
	terminal.Update("%s", strings.Repeat("ä", columns+1))
	terminal.Update("%s", strings.Repeat("ä", columns))
	if got, want := output.String(), strings.Repeat("ä", columns-1)+"…\r\x1b[K"+strings.Repeat("ä", columns); got != want {
		t.Errorf("a long update: %q, want %q", got, want)
	}
	New(nil).Line("ignored")
}
