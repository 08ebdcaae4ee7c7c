// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	utiljson "k8s.io/apimachinery/pkg/util/json" // field names are case-sensitive, as in the API server
)

var errNoObject = errors.New("it is not a JSON object")

// decodeFields decodes the fields of a JSON object for which there is a target. A
// json.RawMessage becomes a part of raw. The other fields may be nested to any depth.
//
// Decoders of the libraries count the nesting of the whole text, or copy each value, which
// would multiply the memory that a large request needs (see limit.go).
func decodeFields(raw []byte, targets map[string]any) error {
	return fields(raw, func(name, value []byte) error {
		switch target := targets[string(name)].(type) {
		case nil:
			return nil
		case *json.RawMessage:
			*target = value
			return nil
		default:
			if err := utiljson.Unmarshal(value, target); err != nil {
				return fmt.Errorf("reading field %s: %w", name, err)
			}
			return nil
		}
	})
}

// fields calls field for each field of a JSON object, in order. It allocates no memory,
// unless a name contains escapes.
func fields(raw []byte, field func(name, value []byte) error) error {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '{' {
		return errNoObject
	}
	var failed error
	length := items(raw, func(item []byte) bool {
		if item = bytes.TrimSpace(item); len(item) == 0 {
			return true // the object is empty
		}
		name, value, err := cutName(item)
		if err == nil {
			err = field(name, value)
		}
		failed = err
		return err == nil
	})
	if failed == nil && length != len(raw) {
		return errNoObject
	}
	return failed
}

// cutName returns the name and the value of a field.
func cutName(item []byte) (name, value []byte, err error) {
	end := 1
	for end < len(item) && item[end] != '"' {
		if item[end] == '\\' {
			end++
		}
		end++
	}
	if item[0] != '"' || end >= len(item) {
		return nil, nil, errNoObject
	}
	value, found := bytes.CutPrefix(bytes.TrimSpace(item[end+1:]), []byte(":"))
	if !found {
		return nil, nil, errNoObject
	}
	if name = item[1:end]; bytes.IndexByte(name, '\\') >= 0 {
		var unescaped string
		if err := utiljson.Unmarshal(item[:end+1], &unescaped); err != nil {
			return nil, nil, fmt.Errorf("reading a field's name: %w", err)
		}
		name = []byte(unescaped)
	}
	return name, bytes.TrimSpace(value), nil
}

// entries returns the number of entries of a JSON array or object.
func entries(raw []byte) int {
	n := 0
	items(raw, func([]byte) bool {
		n++
		return true
	})
	return n
}

// items calls item with the text of each entry of a JSON array or object, until it
// returns false. It returns the length of the array or object.
func items(raw []byte, item func([]byte) bool) int {
	depth, quoted, start := 0, false, 0
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth == 1 {
				start = i + 1
			}
		case c == '}' || c == ']':
			if depth--; depth <= 0 {
				item(raw[start:i])
				return i + 1
			}
		case c == ',' && depth == 1:
			if !item(raw[start:i]) {
				return i + 1
			}
			start = i + 1
		}
	}
	return 0
}
