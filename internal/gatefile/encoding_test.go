// SPDX-License-Identifier: Apache-2.0

package gatefile

import (
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"
)

const (
	utf8Mark = "\xef\xbb\xbf"
	utf16LE  = "\xff\xfe"
	utf16BE  = "\xfe\xff"
)

// asUTF16 returns text in UTF-16 without a byte order mark.
func asUTF16(order binary.AppendByteOrder, text string) string {
	var b []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, unit)
	}
	return string(b)
}

// Files may begin with a byte order mark, and be UTF-16 then, as for kubectl.
func TestByteOrderMarks(t *testing.T) {
	a, b := one("a", someTaint), one("b", someTaint)
	documents := "# größer\n---\n" + a + "---\n" + b
	objects := object(t, a) + "\n" + object(t, b)
	for name, content := range map[string]string{
		"UTF-8":                         utf8Mark + documents,
		"UTF-8, JSON objects":           utf8Mark + objects,
		"UTF-16, little-endian":         utf16LE + asUTF16(binary.LittleEndian, documents),
		"UTF-16, big-endian":            utf16BE + asUTF16(binary.BigEndian, documents),
		"UTF-16, carriage returns":      utf16LE + asUTF16(binary.LittleEndian, strings.ReplaceAll(documents, "\n", "\r\n")),
		"UTF-16, JSON objects":          utf16LE + asUTF16(binary.LittleEndian, objects),
		"UTF-16, one JSON object":       utf16LE + asUTF16(binary.LittleEndian, "{apiVersion: v1, kind: List, items: ["+a+", "+b+"]}"),
		"UTF-8, a mark within a text":   utf8Mark + documents + "# " + utf8Mark,
		"none, but an emoji in UTF-8 😀": documents + "# 😀",
	} {
		gates, err := readDirectory(directory(t, map[string]string{"x.yaml": content})).gates()
		if got := nameList(gates); err != nil || got != "a b" {
			t.Errorf("%s: gates %q, error %v", name, got, err)
		}
	}
}

// The error of a file in another encoding contains the first line that cannot be read, and what to do.
func TestOtherEncodings(t *testing.T) {
	a := "# comment\n---\n" + one("a", someTaint)
	for name, test := range map[string]struct{ content, line string }{
		"UTF-16 without a mark, little-endian": {asUTF16(binary.LittleEndian, a), "1"},
		"UTF-16 without a mark, big-endian":    {asUTF16(binary.BigEndian, a), "1"},
		"UTF-32":                               {utf16LE + "\x00\x00" + "#\x00\x00\x00\n\x00\x00\x00", "1"},
		"Latin-1":                              {a + "# gr\xf6\xdfer\n", "4"},
		"zeros of a write that was cut off":    {a + "\x00\x00\x00", "4"},
	} {
		want := "x.yaml:" + test.line + ": the line is not UTF-8 text; save the file as UTF-8"
		_, err := Declared("x.yaml", []byte(test.content))
		if err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", name, err, want)
		}
		_, err = readDirectory(directory(t, map[string]string{"x.yaml": test.content})).gates()
		if err == nil || err.Error() != want {
			t.Errorf("%s in a directory: error %v, want %s", name, err, want)
		}
	}
}
