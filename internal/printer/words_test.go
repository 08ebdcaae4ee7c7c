// SPDX-License-Identifier: Apache-2.0

package printer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nodegate/nodegate/internal/printer"
)

func TestWords(t *testing.T) {
	at := time.Date(2026, 3, 1, 3, 0, 0, 0, time.FixedZone("", 3600))
	for _, c := range []struct{ got, want string }{
		{printer.Count(0, "node"), "0 nodes"},
		{printer.Count(1, "node"), "1 node"},
		{printer.Enumerate(nil, "or"), ""},
		{printer.Enumerate([]string{"a"}, "or"), "a"},
		{printer.Enumerate([]string{"a", "b"}, "or"), "a or b"},
		{printer.Enumerate([]string{"a", "b", "c"}, "and"), "a, b and c"},
		{printer.Some([]string{"a", "b", "c"}, 2), "a, b and 1 more"},
		{printer.Some([]string{"a"}, 2), "a"},
		{printer.Time(at), "2026-03-01T02:00:00Z"},
		{printer.Elapsed(" for ", at, at.Add(time.Minute)), " for 60s"},
		{printer.Elapsed(" for ", at, at.Add(-time.Minute)), " for 0s"},
		{printer.Elapsed(" for ", time.Time{}, at), ""},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// Text escapes control characters, which could come from the cluster.
func TestText(t *testing.T) {
	if got, want := printer.Text("a \"b\" ✓\n\x1b[2Jc\r\n"), "a \"b\" ✓\n\\x1b[2Jc\\r\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Columns are as wide as their content.
func TestTable(t *testing.T) {
	var b strings.Builder
	rows := printer.NewTable(&b, "NODE", "STATE")
	rows.Add("a-long-name", "open")
	rows.Flush()
	if got, want := b.String(), "\nNODE         STATE\na-long-name  open\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
