// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const pollEvery = 100 * time.Millisecond

// ReadyLimit is how long anything that takes a moment may take.
const ReadyLimit = 30 * time.Second

// Await asks again and again until there is no error any more. When the time
// is up, the last error says what was still missing.
func Await(ctx context.Context, what string, limit time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	var last error
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err // an answer cut off by the end of ctx says nothing
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w (%w)", what, context.Cause(ctx), last)
		case <-ticker.C:
		}
	}
}

// ErrNotYet is for what only has to be waited for.
var ErrNotYet = errors.New("not yet")
