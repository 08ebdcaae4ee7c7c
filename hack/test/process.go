// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// inGroup makes the command the leader of a process group, so that a signal
// reaches all processes that it starts.
func inGroup(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// send sends a signal to a process, or to a group. It ignores processes that have
// ended.
func send(pid int, s syscall.Signal) {
	_ = syscall.Kill(pid, s)
}

// testBinaries returns the processes that run the package's tests: children of the
// go command with the name of a test binary, started in the package's directory.
// Without /proc, ps provides the same information except for the directory.
func testBinaries(parent int, pkg, dir string) []int {
	var found []int
	for _, p := range children(parent) {
		if path.Base(p.command) != path.Base(pkg)+".test" {
			continue
		}
		cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(p.pid), "cwd"))
		if err == nil && dir != "" && cwd != dir {
			continue
		}
		found = append(found, p.pid)
	}
	return found
}

// process is a running program.
type process struct {
	pid     int
	command string
}

func children(parent int) []process {
	if list, err := filepath.Glob("/proc/[0-9]*/stat"); err == nil && len(list) > 0 {
		return childrenByProc(parent, list)
	}
	output, err := exec.Command("ps", "-A", "-o", "pid=", "-o", "ppid=", "-o", "comm=").Output()
	if err != nil {
		return nil // then the whole group is ended
	}
	var found []process
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(fields[0]); err == nil {
			found = append(found, process{pid: pid, command: fields[2]})
		}
	}
	return found
}

// childrenByProc reads Linux' list of processes.
func childrenByProc(parent int, stats []string) []process {
	var found []process
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended by now
		}
		// pid (name) state ppid; the name may have spaces and brackets.
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if len(fields) < 2 || string(fields[1]) != strconv.Itoa(parent) {
			continue
		}
		dir := filepath.Dir(stat)
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		name, _, _ := strings.Cut(string(line), "\x00")
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			found = append(found, process{pid: pid, command: name})
		}
	}
	return found
}
