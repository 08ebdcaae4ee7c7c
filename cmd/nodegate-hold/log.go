// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"os"
)

const (
	// logPath is the log. The runtime discards the output of its plugins. /run is empty after each
	// boot, and is in memory.
	logPath = "/run/nodegate-hold.log"
	// logLimit is the size at which the log is renamed. One renamed log is kept.
	logLimit = 512 << 10
)

// logFile writes to a log of limited size. It opens the file for each write: the plugin and its
// hooks are processes that write to the same log, and each of them may rename it.
type logFile struct {
	path  string
	limit int64
}

// Write implements io.Writer.
func (l logFile) Write(line []byte) (int, error) {
	if file, err := os.Lstat(l.path); err == nil && file.Size()+int64(len(line)) > l.limit {
		if err := os.Rename(l.path, l.path+".1"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return 0, err // rather than growing further
		}
	}
	out, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := out.Write(line)
	return n, errors.Join(err, out.Close())
}
