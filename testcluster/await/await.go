// SPDX-License-Identifier: Apache-2.0

// Package await waits for conditions without limiting the total time: a wait
// fails when nothing has changed for a while, however long the changes before
// that took. A slow or busy machine makes a wait longer; it does not make it
// fail.
package await

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// Silence is how long a wait continues while nothing changes.
	Silence = 2 * time.Minute

	// interval is how long Until waits between two calls of its check.
	interval = 20 * time.Millisecond
)

// Until calls check until it returns nil. It returns an error, which names
// what was awaited and wraps check's last error, if check has returned no
// error with a new text for Silence, or if ctx ends.
func Until(ctx context.Context, what string, check func(context.Context) error) error {
	return UntilSilent(ctx, Silence, what, check)
}

// UntilSilent is Until with another limit than Silence.
func UntilSilent(ctx context.Context, silence time.Duration, what string, check func(context.Context) error) error {
	ctx, progress, stop := Watch(ctx, silence)
	defer stop()
	seen := map[string]bool{}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last error
	for {
		select {
		case <-ctx.Done():
			if last == nil {
				return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
			}
			return fmt.Errorf("waiting for %s: %w; last error: %w", what, context.Cause(ctx), last)
		case <-timer.C:
		}
		err := check(ctx)
		if err == nil {
			return nil
		}
		// The end of ctx interrupts check, so its error is meaningless.
		if ctx.Err() == nil || last == nil {
			last = err
		}
		// A repeated error is not progress, so that a wait for a condition that flaps
		// forever fails, too.
		if text := err.Error(); !seen[text] {
			seen[text] = true
			progress()
		}
		timer.Reset(interval)
	}
}

// Pause waits for a duration and returns nil. If ctx ends first, it returns the
// cause.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// Watch returns a context that is cancelled when progress has not been called for
// the duration silence, with a corresponding cause. It is also cancelled with the
// parent, and when stop is called, which releases its resources. Both functions
// may be called from several goroutines.
func Watch(parent context.Context, silence time.Duration) (ctx context.Context, progress, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	watchdog := time.AfterFunc(silence, func() {
		cancel(fmt.Errorf("nothing has changed for %s", silence))
	})
	var mu sync.Mutex
	progress = func() {
		mu.Lock()
		defer mu.Unlock()
		// Do not restart a timer that has fired. Stop reports whether it has not.
		if ctx.Err() == nil && watchdog.Stop() {
			watchdog.Reset(silence)
		}
	}
	stop = func() {
		mu.Lock()
		defer mu.Unlock()
		watchdog.Stop()
		cancel(context.Canceled)
	}
	return ctx, progress, stop
}
