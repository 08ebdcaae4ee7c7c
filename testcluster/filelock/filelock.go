// SPDX-License-Identifier: Apache-2.0

// Package filelock locks files against other processes.
package filelock

import (
	"context"
	"errors"
	"os"
	"time"
)

// interval is the time between attempts to take a lock that another process holds.
const interval = 200 * time.Millisecond

// Lock takes the exclusive lock on a file, which it creates if necessary.
// Closing the file releases the lock, and so does the end of the process. If
// another process holds the lock, Lock calls waiting once and waits.
func Lock(ctx context.Context, name string, waiting func()) (*os.File, error) {
	for attempt := 0; ; attempt++ {
		file, err := TryLock(name)
		if !errors.Is(err, ErrLocked) {
			return file, err
		}
		if attempt == 0 {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(interval):
		}
	}
}
