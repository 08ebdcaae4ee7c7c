// SPDX-License-Identifier: Apache-2.0

package nodegate_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Continuous integration installs only the packages of programs that are missing, and none that
// removes another one: Debian's runc conflicts with Docker's.
func TestMissingPackagesAreInstalled(t *testing.T) {
	for name, test := range map[string]struct {
		uid  string
		want string
	}{
		"root":  {"0", "-qq update\n-qq install -y --no-install-recommends --no-remove net-a net-b other\n"},
		"other": {"1000", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			log := filepath.Join(dir, "log")
			for program, script := range map[string]string{"id": "echo " + test.uid, "apt-get": `echo "$@" >> '` + log + `'`, "present": ""} {
				if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			install := exec.CommandContext(t.Context(), "/bin/sh", ".ci/install", "present=conflicting", filepath.Join(dir, "net")+"=net-a,net-b", "absent=other")
			install.Env = []string{"PATH=" + dir}
			if output, err := install.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
			got, err := os.ReadFile(log)
			if err != nil && test.want != "" {
				t.Fatal(err)
			}
			if string(got) != test.want {
				t.Errorf("got %q, want %q", strings.TrimSpace(string(got)), test.want)
			}
			if _, err := os.Stat(".ci/install"); err != nil { // for the cache of test results
				t.Fatal(err)
			}
		})
	}
}
