// SPDX-License-Identifier: Apache-2.0

package printer_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/internal/printer"
)

// hidden are characters that are not visible: they change the direction or the
// appearance of adjacent text, or control a terminal.
const hidden = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\u200b\u2028\u2029\u00ad\ufeff\u0085\u009b\u007f\x1b\x07\U000e0041"

// formats are the formats, and parsers for them.
var formats = map[string]struct {
	print func(any) ([]byte, error)
	parse func([]byte, any) error
}{
	"json": {printer.JSON, json.Unmarshal},
	"yaml": {printer.YAML, func(text []byte, into any) error { return yaml.Unmarshal(text, into) }},
}

// For any value, the output contains visible characters only, and parsing it returns
// the same value.
func TestEscapesKeepTheValue(t *testing.T) {
	runes := rapid.OneOf(rapid.SampledFrom([]rune(hidden)), rapid.SampledFrom([]rune("\\\\\\\"'u2028e:;#|>-\n hidden0AFn1")), rapid.Rune())
	texts := rapid.StringOf(runes)
	rapid.Check(t, func(t *rapid.T) {
		value := map[string]any{}
		for range rapid.IntRange(1, 4).Draw(t, "fields") {
			value[texts.Draw(t, "name")] = []any{texts.Draw(t, "text"), true, 1.5, nil}
		}
		for name, format := range formats {
			out, err := format.print(value)
			if err != nil {
				t.Fatal(err)
			}
			if strings.ContainsFunc(string(out), func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }) {
				t.Fatalf("%s has hidden characters: %q", name, out)
			}
			var got map[string]any
			if err := format.parse(out, &got); err != nil || !reflect.DeepEqual(got, value) {
				t.Fatalf("%s %q is read as %q (%v), want %q", name, out, got, err, value)
			}
		}
	})
}

// Joined errors are printed as one line, separated by semicolons.
func TestOneLine(t *testing.T) {
	err := errors.Join(errors.New("one:\n  two"), errors.New("a \x1b[2J"))
	if got, want := printer.OneLine(err), `one: two; a \x1b[2J`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
