// SPDX-License-Identifier: Apache-2.0

// Package meter measures processes and servers by what the operating system, the
// audit log and the servers' own metrics report, so that no result relies on the
// measured process.
package meter

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/prometheus/procfs"
)

// Memory returns the memory of a process. The fields VmHWM (the peak of resident
// memory), VmRSS (resident memory) and RssAnon (its anonymous part) are set.
func Memory(pid int) (procfs.ProcStatus, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStatus{}, fmt.Errorf("reading memory: %w", err)
	}
	status, err := process.NewStatus()
	switch {
	case err != nil:
		return status, fmt.Errorf("reading memory: %w", err)
	case status.VmHWM == 0 || status.VmRSS == 0 || status.RssAnon == 0:
		return status, errors.New("reading memory: /proc does not contain all of VmHWM, VmRSS and RssAnon")
	}
	return status, nil
}

// Transferred returns the bytes that a process has received and sent since it started. Most
// of them are those of its connections; its log is included.
func Transferred(pid int) (received, sent float64, err error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, fmt.Errorf("reading transferred bytes: %w", err)
	}
	io, err := process.IO()
	if err != nil {
		return 0, 0, fmt.Errorf("reading transferred bytes: %w", err)
	}
	return float64(io.RChar), float64(io.WChar), nil
}

// Load returns the load averages of the last 1, 5 and 15 minutes.
func Load() string {
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if load, err := fs.LoadAvg(); err == nil {
			return fmt.Sprintf("%.2f %.2f %.2f", load.Load1, load.Load5, load.Load15)
		}
	}
	return "unknown"
}

// Machine returns a short description of the machine.
func Machine() string {
	model := "unknown processor"
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
			model = cpus[0].ModelName
		}
	}
	return fmt.Sprintf("%s, %d CPUs", model, runtime.NumCPU())
}

const (
	// Processes that use at most quietShare of CPU time in quietPeriod are idle.
	quietPeriod = 250 * time.Millisecond
	quietShare  = 20 * time.Millisecond
)

// AwaitQuiet waits until processes are idle. It has no time limit, because CPU
// time does not show whether a busy process makes progress.
func AwaitQuiet(ctx context.Context, pids ...int) error {
	last, err := CPU(pids...)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(quietPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for processes to become idle: %w", context.Cause(ctx))
		case <-ticker.C:
		}
		now, err := CPU(pids...)
		if err != nil {
			return err
		}
		if now-last <= quietShare {
			return nil
		}
		last = now
	}
}
