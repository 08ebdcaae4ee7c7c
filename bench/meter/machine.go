// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// Usage is what the CPUs of the machine have been used for, up to one moment. Times are
// CPU times since the machine started.
type Usage struct {
	At   time.Time
	CPUs int
	// Idle includes the time in which a CPU waits for the disk.
	Idle time.Duration
	// Stolen is the time that the hypervisor gave to other machines.
	Stolen time.Duration
	// Own is the CPU time of this process, of its descendants, and of the kernel's threads,
	// which mainly write the benchmark's data to the disk.
	Own time.Duration
	// Throttled is how often this process's control group has exceeded its CPU quota.
	Throttled uint64
}

// A Disturbance is what the machine did besides the benchmark. Shares are of the CPU time of
// all its CPUs.
type Disturbance struct {
	// Others is the share of other processes, also of those in other containers.
	Others float64
	// Stolen is the share that the hypervisor gave to other machines.
	Stolen    float64
	Throttled uint64
}

// Since returns the disturbance between an earlier moment and this one.
func (u Usage) Since(before Usage) Disturbance {
	capacity := u.At.Sub(before.At) * time.Duration(u.CPUs)
	if capacity <= 0 {
		return Disturbance{}
	}
	// Idle time is exact, unlike busy times in /proc/stat, which are sampled.
	stolen := u.Stolen - before.Stolen
	others := capacity - (u.Idle - before.Idle) - stolen - (u.Own - before.Own)
	share := func(d time.Duration) float64 { return max(0, float64(d)/float64(capacity)) }
	return Disturbance{share(others), share(stolen), u.Throttled - before.Throttled}
}

// ReadUsage returns the machine's usage up to now.
func ReadUsage() (Usage, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return Usage{}, fmt.Errorf("reading CPU times: %w", err)
	}
	u := Usage{At: time.Now()}
	stat, err := proc.Stat()
	if err != nil {
		return u, fmt.Errorf("reading CPU times: %w", err)
	}
	u.CPUs, u.Idle, u.Stolen = len(stat.CPU), seconds(stat.CPUTotal.Idle+stat.CPUTotal.Iowait), seconds(stat.CPUTotal.Steal)
	all, err := processes(proc)
	if err != nil {
		return u, fmt.Errorf("reading CPU times of processes: %w", err)
	}
	u.Own = ownTime(all, os.Getpid())
	u.Throttled, err = throttled(proc)
	return u, err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// processes returns all processes that exist.
func processes(proc procfs.FS) (all []procfs.ProcStat, err error) {
	found, err := proc.AllProcs()
	if err != nil {
		return nil, err
	}
	for _, p := range found {
		if stat, err := p.Stat(); err == nil { // it may have ended
			all = append(all, stat)
		}
	}
	return all, nil
}

// tick is the unit of CPU times in /proc on all Linux machines that Go supports.
const tick = 10 * time.Millisecond

// kernelThread is the flag of the kernel's threads in /proc/PID/stat.
const kernelThread = 0x00200000

// ownTime returns the CPU time of a process and its descendants, including those that have
// ended, and of the kernel's threads.
func ownTime(all []procfs.ProcStat, root int) time.Duration {
	children := map[int][]int{}
	ticks := map[int]int{}
	kernel := 0
	for i := range all {
		p := &all[i]
		used := int(p.UTime+p.STime) + p.CUTime + p.CSTime
		if p.Flags&kernelThread != 0 {
			kernel += used
			continue
		}
		ticks[p.PID] = used
		children[p.PPID] = append(children[p.PPID], p.PID)
	}
	total := kernel
	for pending := []int{root}; len(pending) > 0; {
		pid := pending[0]
		total += ticks[pid]
		pending = append(pending[1:], children[pid]...)
	}
	return time.Duration(total) * tick
}

// throttled returns how often the control group of this process has exceeded its CPU
// quota, which is 0 without control groups.
func throttled(proc procfs.FS) (uint64, error) {
	self, err := proc.Self()
	if err != nil {
		return 0, fmt.Errorf("reading control groups: %w", err)
	}
	groups, err := self.Cgroups()
	if err != nil {
		return 0, fmt.Errorf("reading control groups: %w", err)
	}
	for _, group := range groups {
		for _, dir := range cpuDirectories(group) {
			content, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return 0, fmt.Errorf("reading throttling: %w", err)
			}
			if count, ok := periodsThrottled(content); ok {
				return count, nil
			}
		}
	}
	return 0, nil
}

// cpuDirectories returns the directories that may contain the CPU statistics of a control
// group: in version 2 of the hierarchy, or in that of the controller "cpu" in version 1. In
// a container, the path may be that on the host, and the root is the container's.
func cpuDirectories(group procfs.Cgroup) []string {
	const root = "/sys/fs/cgroup"
	if group.HierarchyID == 0 {
		return []string{filepath.Join(root, group.Path), root}
	}
	if slices.Contains(group.Controllers, "cpu") {
		mount := filepath.Join(root, strings.Join(group.Controllers, ","))
		return []string{filepath.Join(mount, group.Path), mount}
	}
	return nil
}

// periodsThrottled returns the value of nr_throttled in the file cpu.stat.
func periodsThrottled(content []byte) (uint64, bool) {
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "nr_throttled "); ok {
			count, err := strconv.ParseUint(value, 10, 64)
			return count, err == nil
		}
	}
	return 0, false
}
