// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"os"
	"time"
)

// lockInterval is how often a lock that others hold is tried again.
const lockInterval = 200 * time.Millisecond

// lockFile takes the exclusive lock on a file, which it creates if need be.
// Closing the file releases the lock, and so does the end of the process. If
// it has to wait, it calls waiting once.
func lockFile(ctx context.Context, name string, waiting func()) (*os.File, error) {
	for attempt := 0; ; attempt++ {
		file, err := tryLockFile(name)
		if !errors.Is(err, errLocked) {
			return file, err
		}
		if attempt == 0 {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lockInterval):
		}
	}
}
