// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"encoding/binary"
	"testing"
	"unicode/utf16"
)

// Editors and shells on Windows write byte order marks, and PowerShell writes UTF-16.
func TestEncodings(t *testing.T) {
	const configuration = "[[reconciler.matchers]]\r\ntaint = {effect = 'NoSchedule', key = 'a', value = 'b'}\r\nconditions = [{type = 'Ready', status = 'False'}]\r\n"
	utf16LE := binary.LittleEndian.AppendUint16(nil, 0xfeff)
	for _, unit := range utf16.Encode([]rune(configuration)) {
		utf16LE = binary.LittleEndian.AppendUint16(utf16LE, unit)
	}
	convert := func(input []byte) string {
		var out, findings bytes.Buffer
		command := NewCommand("nodegate")
		command.SetIn(bytes.NewReader(input))
		command.SetOut(&out)
		command.SetErr(&findings)
		command.SetArgs([]string{"tainter", "-"})
		if err := command.Execute(); err != nil {
			t.Errorf("%v\n%s", err, findings.String())
		}
		return out.String()
	}
	want := convert([]byte(configuration))
	for name, input := range map[string][]byte{
		"UTF-8 with a byte order mark": append([]byte("\ufeff"), configuration...),
		"UTF-16":                       utf16LE,
	} {
		if got := convert(input); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}
