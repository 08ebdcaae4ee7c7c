// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nodegate/nodegate/internal/hold/plugin"
)

// The program can be installed by any name, also by that of the hook, such as when it is found in
// PATH.
func TestInstall(t *testing.T) {
	for _, name := range []string{plugin.HookName, "/nodegate-hold", "./" + plugin.Name} {
		t.Run(filepath.Base(name), func(t *testing.T) {
			dir := t.TempDir()
			if err := run(t.Context(), []string{name, "install", dir}); err != nil {
				t.Fatal(err)
			}
			files, err := os.ReadDir(dir)
			if err != nil || len(files) != 1 || files[0].Name() != plugin.Name {
				t.Fatalf("the directory contains %v, want only %s (%v)", files, plugin.Name, err)
			}
			if info, err := files[0].Info(); err != nil || info.Mode().Perm()&0o111 == 0 || info.Size() == 0 {
				t.Errorf("the program has mode %s and size %d (%v)", info.Mode(), info.Size(), err)
			}
		})
	}
}

// What an interrupted installation has left is removed, also if the program is installed already.
func TestInterruptedInstallLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	for _, before := range []string{"nothing", "the program"} {
		temporary := filepath.Join(dir, "nodegate-hold.tmp")
		if err := os.MkdirAll(temporary, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(temporary, plugin.Name), []byte("a part"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context(), []string{"nodegate-hold", "install", dir}); err != nil {
			t.Fatal(err)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 1 || !isThisProgram(filepath.Join(dir, plugin.Name)) {
			t.Errorf("with %s installed before, the directory contains %v (%v)", before, files, err)
		}
	}
}

// A program that is installed already is left alone, so that an agent also starts when the disk is
// full. Anything else is replaced.
func TestInstallAgain(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, plugin.Name)
	installed := func() os.FileInfo {
		t.Helper()
		if err := run(t.Context(), []string{"nodegate-hold", "install", dir}); err != nil {
			t.Fatal(err)
		}
		if !isThisProgram(path) {
			t.Error("the program is not installed")
		}
		file, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	before := installed()
	if !os.SameFile(before, installed()) {
		t.Error("an identical program was replaced")
	}
	content := read(t, path)
	for name, damage := range map[string]func() error{
		"shorter":        func() error { return os.Truncate(path, before.Size()-1) },
		"longer":         func() error { return os.WriteFile(path, []byte(content+"x"), 0o755) },
		"different":      func() error { return os.WriteFile(path, []byte(content[:len(content)-1]+"x"), 0o755) },
		"empty":          func() error { return os.Truncate(path, 0) },
		"not executable": func() error { return os.Chmod(path, 0o644) },
		"a link": func() error {
			return errors.Join(os.Rename(path, filepath.Join(t.TempDir(), "moved")), os.Symlink("/proc/self/exe", path))
		},
		"missing": func() error { return os.Remove(path) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if file := installed(); !file.Mode().IsRegular() || file.Mode().Perm() != before.Mode().Perm() {
			t.Errorf("%s: the program has mode %s", name, file.Mode())
		}
	}
}
