// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"bytes"
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
	New(nil).Line("nobody listens")
}
