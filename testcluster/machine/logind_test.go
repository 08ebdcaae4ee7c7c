// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A shutdown fails if a lock is still held when its delay is over.
func TestAwaitRelease(t *testing.T) {
	l := &logind{}
	inhibit := func(who string) *os.File {
		t.Helper()
		fd, failure := l.Inhibit("shutdown", who, "a test", "delay")
		if failure != nil {
			t.Fatal(failure)
		}
		held, err := unix.Dup(int(fd)) // as the bus does
		if err != nil {
			t.Fatal(err)
		}
		return os.NewFile(uintptr(held), who)
	}
	release := func(held *os.File) {
		if err := held.Close(); err != nil {
			t.Error(err)
		}
	}
	release(inhibit("released"))
	held := inhibit("holder")
	if err := l.awaitRelease(time.Millisecond); err == nil || !strings.Contains(err.Error(), "holder") || strings.Contains(err.Error(), "released") {
		t.Errorf("with a lock that is held, the error is %v", err)
	}
	release(held)

	held = inhibit("holder")
	time.AfterFunc(time.Millisecond, func() { release(held) })
	if err := l.awaitRelease(time.Hour); err != nil {
		t.Errorf("with a lock that is released, the error is %v", err)
	}
}
