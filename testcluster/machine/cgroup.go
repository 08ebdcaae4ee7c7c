// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const cgroupRoot = "/sys/fs/cgroup"

// hierarchies returns the mount points of cgroup hierarchies: the one of version 2, and
// those of version 1.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
		return []string{cgroupRoot}, nil
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var dirs []string
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 2 && strings.HasPrefix(fields[2], "cgroup") {
			dirs = append(dirs, fields[1])
		}
	}
	if len(dirs) == 0 {
		return nil, errors.New("no cgroup hierarchy is mounted")
	}
	return dirs, nil
}

// cgroupFormat begins the names of machines' cgroups. The number is the ID of the process.
const cgroupFormat = "nodegate-%d-"

// cgroupName returns the name of the cgroup of a process's machine.
func cgroupName(pid int, machine string) string { return fmt.Sprintf(cgroupFormat, pid) + machine }

// removeAbandoned removes the cgroups of machines whose process no longer exists, because it was killed.
// One in which a process is left remains.
func removeAbandoned(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		pid := 0
		if _, err := fmt.Sscanf(e.Name(), cgroupFormat, &pid); err != nil || pid <= 0 {
			continue
		}
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = removeTree(filepath.Join(dir, e.Name())) // the next process tries again
		}
	}
}

// createCgroup creates the cgroup in which the kubelet creates those of pods. It also removes those
// that other processes have left.
func createCgroup(name string) error {
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		removeAbandoned(dir)
		cgroup := filepath.Join(dir, name)
		if err := os.MkdirAll(cgroup, 0o755); err != nil {
			return err
		}
		if dir == cgroupRoot {
			continue // version 2
		}
		// A cpuset of version 1 is empty at first, and cannot have processes then.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(cgroup, file), value, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// removePeriod limits the time that the kernel needs to clean up after processes that have
// ended.
const removePeriod = 30 * time.Second

// removeCgroup removes the cgroup, with those of pods, of which no process remains.
func removeCgroup(name string) error {
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		var last error
		err := wait.PollUntilContextTimeout(context.Background(), 10*time.Millisecond, removePeriod, true, func(context.Context) (bool, error) {
			last = removeTree(filepath.Join(dir, name))
			return !errors.Is(last, syscall.EBUSY), nil
		})
		if err := errors.Join(err, last); err != nil {
			return fmt.Errorf("removing cgroup: %w", err)
		}
	}
	return nil
}

// removeTree removes a cgroup and those in it. Their files cannot be removed.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.Remove(dir)
}
