// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/internal/gate"
)

// JSON returns a value as indented JSON. Characters that are not printable are escaped.
func JSON(value any) ([]byte, error) {
	raw, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(visibleJSON(raw), '\n'), nil
}

// Text returns human-readable text with all characters escaped that could control a
// terminal, except line breaks.
func Text(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = gate.Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

// OneLine returns the message of an error as one line, also for joined errors, with all
// characters escaped that could control a terminal.
func OneLine(err error) string {
	text := ""
	for line := range strings.Lines(err.Error()) {
		line = strings.Join(strings.Fields(line), " ")
		switch {
		case text == "", line == "":
		case strings.HasSuffix(text, ":"), strings.HasSuffix(text, "?"):
			text += " "
		default:
			text += "; "
		}
		text += line
	}
	return gate.Printable(text)
}

// visibleJSON escapes all characters of a JSON text that are not printable, such as
// those that change the direction of text or control a terminal. In the output of
// json.Marshal, these occur in strings only, except for line breaks.
func visibleJSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for _, r := range string(text) {
		if r == '\n' || strconv.IsPrint(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}

// escapeOrRune matches one escape sequence or character of a JSON text.
var escapeOrRune = regexp.MustCompile(`\\u202[89]|\\.|[^\\]`)

// YAML returns a value as YAML. Characters that are not printable are escaped.
//
// The YAML library escapes control characters, but prints other unprintable
// characters as they are. Only double-quoted strings can contain escapes. So each
// such character is first replaced by a control character and a marker that does not
// occur in the value. The control character makes the library quote the string, and
// afterwards the marker is replaced by an escape.
func YAML(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	marker := "hidden"
	for bytes.Contains(text, []byte(marker)) {
		marker += "n"
	}
	text = escapeOrRune.ReplaceAllFunc(text, func(part []byte) []byte {
		r, _ := utf8.DecodeRune(part)
		switch {
		case len(part) > 2 && part[0] == '\\': // json.Marshal escapes these two
			r = '\u2020' + rune(part[5]-'0')
		case strconv.IsPrint(r):
			return part
		}
		return fmt.Appendf(nil, `\u001b%s%08X`, marker, r)
	})
	if text, err = yaml.JSONToYAML(text); err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(text, []byte(`\e`+marker), []byte(`\U`)), nil
}
