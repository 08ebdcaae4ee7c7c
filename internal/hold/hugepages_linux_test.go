// SPDX-License-Identifier: Apache-2.0

package hold_test

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodegate/nodegate/internal/hold"
)

// A program that disables huge pages starts again once: with the same arguments, environment and
// process ID, and without huge pages.
func TestWithoutHugePages(t *testing.T) {
	const startedAgain = "NODEGATE_WITHOUT_HUGE_PAGES"
	if os.Getenv("HUGE_PAGES_TEST") != "" {
		if os.Getenv(startedAgain) == "" {
			_ = unix.Prctl(unix.PR_SET_THP_DISABLE, 0, 0, 0, 0) // the tests may run without huge pages
		}
		hold.WithoutHugePages()
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString(strings.Join([]string{strings.Join(os.Args, " "), os.Getenv(startedAgain), strconv.Itoa(os.Getpid()), string(status)}, "\n"))
		return
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), program, "-test.run=^TestWithoutHugePages$")
	command.Args[0] = "another-name"
	command.Env = append(os.Environ(), "HUGE_PAGES_TEST=1")
	output, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(output), "\n")
	if lines[0] != "another-name -test.run=^TestWithoutHugePages$" {
		t.Errorf("the arguments are %q", lines[0])
	}
	enabled := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "THP_enabled:") })
	if enabled < 0 {
		t.Skip("the kernel does not show whether a process has huge pages")
	}
	if fields := strings.Fields(lines[enabled]); fields[1] != "0" {
		t.Errorf("%s", lines[enabled])
	}
	if again, pid := lines[1], strconv.Itoa(command.Process.Pid); again != "1" || lines[2] != pid {
		t.Errorf("%s is %q in process %s, want 1 in process %s", startedAgain, again, lines[2], pid)
	}
}
