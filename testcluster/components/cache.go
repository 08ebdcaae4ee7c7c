// SPDX-License-Identifier: Apache-2.0

package components

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	// cacheVariable overrides the directory for built programs.
	cacheVariable = "NODEGATE_CACHE"

	// cachePeriod is how long programs stay in the cache without being used.
	cachePeriod = 30 * 24 * time.Hour
)

// cacheRoot returns the directory below which built programs are kept.
func cacheRoot() (string, error) {
	if dir := os.Getenv(cacheVariable); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding a cache directory (set $%s to choose one): %w", cacheVariable, err)
	}
	return filepath.Join(dir, "nodegate"), nil
}

// markUsed records that the programs in a directory of the cache are in use.
func markUsed(dir string) {
	now := time.Now()
	// A process that cannot write to the cache does not prune it either.
	_ = os.Chtimes(dir, now, now)
}

// prune removes programs from the cache that have not been used for cachePeriod, such as
// those of earlier versions or built with an earlier Go. The caller must hold the cache's
// lock.
func prune(root string) {
	dirs, err := filepath.Glob(filepath.Join(root, "*-v*-*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) >= cachePeriod {
			_ = os.RemoveAll(dir)
		}
	}
}
