// SPDX-License-Identifier: Apache-2.0

package nodegate_test

import (
	"regexp"
	"strings"
	"testing"
)

// unquoted matches the path of the checkout outside of quotes.
var unquoted = regexp.MustCompile(`[^']\$\((CURDIR|abspath )`)

// A checkout may be in a directory whose path contains a space.
func TestMakefileQuotesPaths(t *testing.T) {
	for line := range strings.Lines(read(t, "Makefile")) {
		if unquoted.MatchString(line) {
			t.Errorf("quote the path: %s", line)
		}
	}
}
