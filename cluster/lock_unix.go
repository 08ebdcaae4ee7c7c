// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cluster

import (
	"errors"
	"os"
	"syscall"
)

// errLocked says that another process, or another open file of this one,
// holds a lock.
var errLocked = errors.New("locked")

// tryLockFile takes the exclusive lock on a file, which it creates if need
// be, or fails with errLocked. Closing the file releases the lock.
func tryLockFile(name string) (*os.File, error) {
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
		return nil, errLocked
	}
	return nil, &os.PathError{Op: "flock", Path: name, Err: err}
}
