// SPDX-License-Identifier: Apache-2.0

//go:build unix

package filelock

import (
	"errors"
	"os"
	"syscall"
)

// ErrLocked is returned when another process, or another open file of this
// one, holds a lock.
var ErrLocked = errors.New("locked")

// TryLock takes the exclusive lock on a file, which it creates if necessary, or
// fails with ErrLocked. Closing the file releases the lock.
func TryLock(name string) (*os.File, error) {
	// Go opens files close-on-exec: a child process cannot keep the lock.
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return file, nil
	}
	file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, ErrLocked
	}
	return nil, &os.PathError{Op: "flock", Path: name, Err: err}
}
