// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// The log stays within its limit, and ends with the newest lines.
func TestLogIsLimited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	const limit = 1000
	for i := range 1000 {
		line := fmt.Appendf(nil, "line %4d\n", i)
		if n, err := (logFile{path, limit}).Write(line); err != nil || n != len(line) {
			t.Fatal(n, err)
		}
	}
	before, current := read(t, path+".1"), read(t, path)
	if len(before) > limit || len(current) > limit || len(before) < limit/2 {
		t.Errorf("the files have %d and %d bytes", len(before), len(current))
	}
	lines := strings.Split(strings.TrimSuffix(before+current, "\n"), "\n")
	for i, line := range lines {
		if want := fmt.Sprintf("line %4d", 1000-len(lines)+i); line != want {
			t.Fatalf("line %d is %q, want %q", i, line, want)
		}
	}
}

// The plugin and its hooks write to the log at the same time.
func TestLogOfSeveralProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	const limit = 10_000
	line := append(bytes.Repeat([]byte("x"), 99), '\n')
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range 500 {
				if _, err := (logFile{path, limit}).Write(line); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	const concurrent = 4 * 100 // each may write after another has compared the size
	for _, name := range []string{path, path + ".1"} {
		content := read(t, name)
		if len(content) > limit+concurrent || strings.Trim(content, "x\n") != "" || len(content)%len(line) != 0 {
			t.Errorf("%s has %d bytes", filepath.Base(name), len(content))
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
