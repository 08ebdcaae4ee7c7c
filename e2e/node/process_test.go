// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nodegate/nodegate/testcluster/await"
)

// killAll kills the processes of a program, as soon as there is one.
func killAll(t *testing.T, program string) {
	t.Helper()
	var all []int
	must(t, await.Until(t.Context(), "process of "+program, func(context.Context) error {
		if all = processes(t, program); len(all) == 0 {
			return errors.New("it does not run")
		}
		return nil
	}))
	kill(t, all)
}

// kill kills processes, and returns how many of them still ran.
func kill(t *testing.T, pids []int) (killed int) {
	t.Helper()
	for _, pid := range pids {
		switch err := syscall.Kill(pid, syscall.SIGKILL); {
		case err == nil:
			killed++
		case !errors.Is(err, syscall.ESRCH):
			t.Error(err)
		}
	}
	return killed
}

// processes returns the IDs of all processes of a program on the machines of these tests.
func processes(t *testing.T, program string) (all []int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	must(t, err)
	for _, dir := range dirs {
		command, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // it may have ended
		name, _, _ := bytes.Cut(command, []byte{0})
		if filepath.Base(string(name)) != program {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		must(t, err)
		if isOurs(pid) {
			all = append(all, pid)
		}
	}
	return all
}

// isOurs reports whether a process descends from this one: other tests may run machines, too.
func isOurs(pid int) bool {
	for pid > 1 && pid != os.Getpid() {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // it may have ended
		_, after, _ := strings.Cut(string(status), "\nPPid:")
		parent, _, _ := strings.Cut(after, "\n")
		pid, _ = strconv.Atoi(strings.TrimSpace(parent))
	}
	return pid == os.Getpid()
}

// agentLimit is the most resident memory that the node agent may use, because it runs on each
// node.
const agentLimit = 15 << 20

// assertSmall checks the resident memory of the node agent. With larger pages, more of it is
// resident than it uses.
func assertSmall(t *testing.T) {
	t.Helper()
	if used := residentMemory(t, agentName); used > agentLimit && os.Getpagesize() == 4<<10 {
		t.Errorf("the resident memory of the agent is %d KiB, want at most %d", used>>10, agentLimit>>10)
	}
}

// residentMemory returns the resident memory of one process of a program, in bytes.
func residentMemory(t *testing.T, program string) int64 {
	t.Helper()
	all := processes(t, program)
	if len(all) == 0 {
		t.Fatalf("%s does not run", program)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", all[0]))
	must(t, err)
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	size, _, found := strings.Cut(after, "kB\n")
	kilobytes, err := strconv.ParseInt(strings.TrimSpace(size), 10, 64)
	if !found || err != nil {
		t.Fatalf("the resident memory of %s is %q: %v", program, size, err)
	}
	return kilobytes << 10
}
