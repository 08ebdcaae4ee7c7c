// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The copy is the program itself and executable. It replaces an earlier copy, and nothing else
// remains in the directory.
func TestCopy(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		command := newRoot()
		command.SetArgs([]string{"copy", dir})
		if err := command.Execute(); err != nil {
			t.Fatal(err)
		}
	}
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "nodegate"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the copy has %d bytes, the program %d (%v)", len(got), len(want), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("the directory contains %v (%v)", entries, err)
	}
	if info, err := entries[0].Info(); err != nil || info.Mode() != 0o755 {
		t.Errorf("the copy has the mode %v (%v), want 0755", info.Mode(), err)
	}
}

func TestCopyFails(t *testing.T) {
	for _, args := range [][]string{{"copy"}, {"copy", filepath.Join(t.TempDir(), "missing")}} {
		command := newRoot()
		command.SetArgs(args)
		if err := command.Execute(); err == nil {
			t.Errorf("%q succeeds", args)
		}
	}
}
