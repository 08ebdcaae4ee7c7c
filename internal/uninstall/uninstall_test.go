// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"strings"
	"testing"
)

// Names of roles and role bindings may contain control characters, which must not control a
// terminal.
func TestReportIsEscaped(t *testing.T) {
	var out strings.Builder
	u := &uninstaller{Options: Options{Out: &out}}
	u.report("namespace/%s kept, because it contains %s\nwaiting", "here", "role/\x1b[2J")
	if got, want := out.String(), "namespace/here kept, because it contains role/\\x1b[2J\nwaiting\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
