// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
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
