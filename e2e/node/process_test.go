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
	for _, pid := range all {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Error(err)
		}
	}
}

// processes returns the IDs of all processes of a program.
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
		all = append(all, pid)
	}
	return all
}

// residentMemory returns the resident memory of one process of each program.
func residentMemory(t *testing.T, programs ...string) (all []string) {
	t.Helper()
	for _, program := range programs {
		for _, pid := range processes(t, program)[:1] {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			must(t, err)
			_, after, _ := strings.Cut(string(status), "VmRSS:")
			size, _, _ := strings.Cut(after, "\n")
			all = append(all, program+" "+strings.TrimSpace(size))
		}
	}
	return all
}
