// SPDX-License-Identifier: Apache-2.0

package nodegate_test

import (
	"os"
	"os/exec"
	"path/filepath"
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

// A go.work file of the user, in a directory above, does not contain the modules of tools.
func TestMakefileIgnoresWorkspaces(t *testing.T) {
	rule := filepath.Join(t.TempDir(), "print.mk")
	if err := os.WriteFile(rule, []byte("print:\n\t@echo $$GOWORK\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "make", "-s", "-f", "Makefile", "-f", rule, "print")
	command.Env = append(os.Environ(), "GOWORK="+filepath.Join(t.TempDir(), "go.work"))
	output, err := command.CombinedOutput()
	if got := strings.TrimSpace(string(output)); err != nil || got != "off" {
		t.Errorf("GOWORK is %q (%v), want off", got, err)
	}
}
