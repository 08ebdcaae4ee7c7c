// SPDX-License-Identifier: Apache-2.0

package gatefile

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A named pipe is an error and is not opened: that would block until something writes to it, and
// the gates would never be read again.
func TestNamedPipesAreNotRead(t *testing.T) {
	dir := directory(t, map[string]string{"a.yaml": one("a", someTaint)})
	pipe := filepath.Join(dir, "b.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	written := make(chan error)
	go func() { written <- os.WriteFile(pipe, []byte(one("b", someTaint)), 0o600) }() // blocks until something reads
	if s := readDirectory(dir); s.err == nil || !strings.Contains(s.err.Error(), pipe+" is not a regular file") {
		t.Errorf("the pipe was read: %d files, error %v", len(s.files), s.err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := <-written; err != nil {
		t.Error(err)
	}
}
