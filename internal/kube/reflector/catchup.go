// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// CatchUpTimeout is how long CatchUp waits. A leader that waited longer for a late watch would leave
// nodes as they are for too long.
const CatchUpTimeout = 15 * time.Second

const catchUpInterval = 250 * time.Millisecond

// CatchUp waits until check returns nil, which reports whether a watch has delivered the present state of
// the API server. Nothing else shows how late a watch is. It returns the last error of check after
// CatchUpTimeout or when the context ends, or immediately if the API server forbids to read that state.
func CatchUp(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, CatchUpTimeout)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil || apierrors.IsForbidden(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(catchUpInterval):
		}
	}
}
