// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// A process that was killed leaves its machines' cgroups. The next process removes them, and keeps
// those of processes that run.
func TestAbandonedCgroupsAreRemoved(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	left, others := cgroupName(ended.Process.Pid, "m-1"), []string{cgroupName(os.Getpid(), "m-1"), "nodegate", "nodegate-x-m1", "nodegate--1-m1", "system.slice"}
	slices.Sort(others)
	for _, name := range append(others, left) {
		if err := os.MkdirAll(filepath.Join(root, name, "kubepods", "pod1"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	removeAbandoned(root)
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, others) {
		t.Errorf("cgroups are %q, want %q", names, others)
	}
}
