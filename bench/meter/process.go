// SPDX-License-Identifier: Apache-2.0

// Package meter reads measurements from the operating system and the API server,
// so that the results do not rely on what the measured processes report about
// themselves.
package meter

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc, which is the same on all Linux machines
// that Go runs on.
const tick = 10 * time.Millisecond

// CPU returns the CPU time of a process since its start: of all its threads, in
// user and in kernel mode.
func CPU(pid int) (time.Duration, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading CPU time: %w", err)
	}
	return parseStat(content)
}

// parseStat reads fields 14 and 15 of proc_pid_stat(5). The second one is the
// program's name, in parentheses, and may hold anything.
func parseStat(content []byte) (time.Duration, error) {
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("reading CPU time: %q", content)
	}
	user, badUser := strconv.ParseInt(fields[11], 10, 64)
	system, badSystem := strconv.ParseInt(fields[12], 10, 64)
	if err := errors.Join(badUser, badSystem); err != nil {
		return 0, fmt.Errorf("reading CPU time: %w", err)
	}
	return time.Duration(user+system) * tick, nil
}

// A Memory is the resident memory of a process, in bytes.
type Memory struct {
	Peak      int64 // the most that was resident so far (VmHWM)
	Resident  int64 // that is now (VmRSS)
	Anonymous int64 // of that, without the program itself and other files (RssAnon)
}

// MemoryOf returns the resident memory of a process.
func MemoryOf(pid int) (Memory, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, fmt.Errorf("reading memory: %w", err)
	}
	return parseStatus(content)
}

func parseStatus(content []byte) (Memory, error) {
	var m Memory
	wanted := map[string]*int64{"VmHWM": &m.Peak, "VmRSS": &m.Resident, "RssAnon": &m.Anonymous}
	found := 0
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		target, ok := wanted[name]
		if !ok {
			continue
		}
		kilobytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
		if err != nil {
			return Memory{}, fmt.Errorf("reading memory: %w", err)
		}
		*target = kilobytes << 10
		found++
	}
	if found != len(wanted) {
		return Memory{}, errors.New("reading memory: the system does not tell all of it")
	}
	return m, nil
}

const (
	// A process that uses less than quietShare of quietPeriod is idle.
	quietPeriod = 250 * time.Millisecond
	quietShare  = 2 * tick
)

// AwaitQuiet waits until processes are idle, that is, have done their work,
// however slow the machine is. It has no limit, because a process that is busy
// does not show whether it makes progress.
func AwaitQuiet(ctx context.Context, pids ...int) error {
	last, err := sum(pids)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(quietPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for processes to come to rest: %w", context.Cause(ctx))
		case <-ticker.C:
		}
		now, err := sum(pids)
		if err != nil {
			return err
		}
		if now-last <= quietShare {
			return nil
		}
		last = now
	}
}

func sum(pids []int) (time.Duration, error) {
	var total time.Duration
	for _, pid := range pids {
		cpu, err := CPU(pid)
		if err != nil {
			return 0, err
		}
		total += cpu
	}
	return total, nil
}
