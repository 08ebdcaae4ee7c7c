// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nodegate/nodegate/testcluster/filelock"
)

const (
	tempPrefix = "nodegate-cluster-"

	// keepFile marks a temporary directory that is kept for keepPeriod, so that
	// its logs can be read.
	keepFile   = "keep"
	keepPeriod = 24 * time.Hour

	// sweepAge is how old a directory must be to be swept.
	sweepAge = time.Minute
)

// A stateDir is a cluster's directory, locked against other clusters.
type stateDir struct {
	path string
	temp bool
	lock *os.File
}

// openStateDir creates and locks the directory, or a temporary one if path is
// empty.
func openStateDir(path string) (*stateDir, error) {
	dir := &stateDir{path: path, temp: path == ""}
	var err error
	if dir.temp {
		sweep(os.TempDir())
		dir.path, err = os.MkdirTemp("", tempPrefix)
	} else if dir.path, err = filepath.Abs(path); err == nil {
		err = os.MkdirAll(dir.path, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("creating the cluster's directory: %w", err)
	}
	dir.lock, err = filelock.TryLock(filepath.Join(dir.path, "lock"))
	if errors.Is(err, filelock.ErrLocked) {
		return nil, fmt.Errorf("directory %s is in use by another cluster", dir.path)
	}
	if err != nil {
		return nil, fmt.Errorf("locking the cluster's directory: %w", err)
	}
	for _, sub := range []string{"pki", "logs"} {
		if err := os.MkdirAll(filepath.Join(dir.path, sub), 0o700); err != nil {
			dir.lock.Close()
			return nil, fmt.Errorf("creating the cluster's directory: %w", err)
		}
	}
	return dir, nil
}

// close unlocks the directory. It removes a temporary directory, unless its logs
// are to be kept.
func (d *stateDir) close(keep bool) error {
	defer d.lock.Close()
	if !d.temp {
		return nil
	}
	if keep {
		// Only the logs are needed, and etcd's data is most of the size.
		_ = os.RemoveAll(filepath.Join(d.path, "etcd"))
		return os.WriteFile(filepath.Join(d.path, keepFile), nil, 0o600)
	}
	return os.RemoveAll(d.path)
}

// sweep removes temporary directories that earlier processes left in parent. It ignores
// those that it cannot remove, such as other users' directories.
func sweep(parent string) {
	dirs, err := filepath.Glob(filepath.Join(parent, tempPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		if !stale(dir) {
			continue
		}
		lock, err := filelock.TryLock(filepath.Join(dir, "lock"))
		if err != nil {
			continue // its cluster is running
		}
		_ = os.RemoveAll(dir)
		lock.Close()
	}
}

// stale reports whether a directory is no longer needed, provided that its lock is free.
// A new directory may not have been locked by its cluster yet.
func stale(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() || time.Since(info.ModTime()) < sweepAge {
		return false
	}
	info, err = os.Stat(filepath.Join(dir, keepFile))
	return err != nil || time.Since(info.ModTime()) > keepPeriod
}
