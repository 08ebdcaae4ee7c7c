// SPDX-License-Identifier: Apache-2.0

package testbed_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodegate/nodegate/internal/testbed"
)

// accessLog is set in the child process, whose test builds the program.
const accessLog = "NODEGATE_TEST_ACCESS_LOG"

// A test that builds the program is not cached beyond a change of the program's sources. The go command
// lists the files that a test depends on with -test.testlogfile, as this test does.
func TestBuiltProgramIsInTheTestCache(t *testing.T) {
	if testing.Short() {
		t.Skip("links nodegate: run without -short")
	}
	if os.Getenv(accessLog) != "" {
		if _, err := testbed.BuildProgram(t.Context(), t.TempDir()); err != nil {
			t.Fatal(err)
		}
		return
	}
	log := filepath.Join(t.TempDir(), "log")
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.testlogfile="+log)
	child.Env = append(os.Environ(), accessLog+"="+log)
	if output, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"go.mod", "cmd/nodegate", "cmd/nodegate/main.go", "internal/gate/decide.go", "internal/admission/birth.yaml"} {
		if !strings.Contains(string(text), "stat "+filepath.Join(root, path)+"\n") {
			t.Errorf("the test does not depend on %s", path)
		}
	}
	if path := "internal/gate/decide_test.go"; strings.Contains(string(text), path) {
		t.Errorf("the test depends on %s, which is not part of the program", path)
	}
}
