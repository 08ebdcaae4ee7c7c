// SPDX-License-Identifier: Apache-2.0

package election

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

// watchLease watches the Lease until ctx ends, and sends to released when no replica holds
// it. A watch that fails or ends is started again after the Lease's duration. In between,
// candidates find a released Lease when they read it next.
func (e *Election) watchLease(ctx context.Context, released chan<- struct{}) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		w, err := e.watch(ctx)
		if err != nil {
			e.log.V(1).Info("cannot watch the lease, polling it", "error", err.Error())
			return
		}
		defer w.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case event, open := <-w.ResultChan():
				if !open {
					return
				}
				if isReleased(event) {
					select {
					case released <- struct{}{}:
					default: // a candidacy is about to begin anyway
					}
				}
			}
		}
	}, e.duration)
}

// isReleased reports whether no replica holds the Lease after the event.
func isReleased(event watch.Event) bool {
	lease, ok := event.Object.(*coordinationv1.Lease)
	if !ok {
		return false
	}
	return event.Type == watch.Deleted || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == ""
}
