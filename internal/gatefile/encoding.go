// SPDX-License-Identifier: Apache-2.0

package gatefile

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// decoded returns the file in UTF-8, without a byte order mark. Like kubectl, it reads UTF-16 with
// a byte order mark, which programs on Windows write. Every other encoding is an error: the YAML
// parser would detect some of them, but only after the file has been split into documents.
func (f file) decoded() (file, error) {
	text, _, err := transform.Bytes(unicode.BOMOverride(transform.Nop), f.content)
	if err != nil {
		return file{}, fmt.Errorf("%s: decoding UTF-16: %w", f.name, err)
	}
	number := 0
	for line := range bytes.Lines(text) {
		if number++; !utf8.Valid(line) || bytes.IndexByte(line, 0) >= 0 {
			return file{}, fmt.Errorf("%s:%d: the line is not UTF-8 text; save the file as UTF-8", f.name, number)
		}
	}
	return file{name: f.name, content: text}, nil
}
