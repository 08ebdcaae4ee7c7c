// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// A watch that delivers nothing is indistinguishable from a watch of objects that do not
// change. HTTP/2 detects a lost connection, but not an API server whose watch cache has
// stopped, or a proxy that keeps a stream open and forwards nothing. Bookmarks make the
// difference: API servers send one about once a minute on each idle watch, the first
// after up to two minutes.

// SilentAfter is the time without any response to a feed's request after which the feed
// lists everything again. By then one bookmark is missing, usually two. If an API server
// sends no bookmarks (--watch-cache=false), objects that do not change are listed at this
// interval. The node agent's watches use the same time (silentAfter in internal/kube/jsonclient).
const SilentAfter = 3 * time.Minute

// ErrSilent is the error of a feed whose watch has delivered nothing for SilentAfter.
var ErrSilent = fmt.Errorf("the watch delivered nothing for %s, not even a bookmark", SilentAfter)

// BurstWindow is the time within which a burst of delayed events is assumed to arrive,
// counted from its first event.
const BurstWindow = time.Second

// freshness tracks when a feed last received anything from the API server. Times keep the reading
// of the monotonic clock, because the wall clock may be set. Nil means never.
type freshness struct {
	clock clock.PassiveClock
	// recent is the time of the last receipt, up to BurstWindow early. settled is the time of
	// the last receipt before recent, and at least BurstWindow before it. At the end of a list,
	// both are the time at which the list began.
	recent, settled atomic.Pointer[time.Time]
	// last is the time of the last receipt, up to BurstWindow early, including the end of a list.
	last atomic.Pointer[time.Time]
}

// received records that something has arrived now. It must not be called concurrently.
func (h *freshness) received() {
	now := h.clock.Now()
	if recent := h.recent.Load(); recent == nil || now.Sub(*recent) >= BurstWindow {
		at := new(now) // which other receipts do not allocate
		h.settled.Store(recent)
		h.recent.Store(at)
		h.last.Store(at)
	}
}

// lastReceived returns the time of the last receipt, up to BurstWindow early, or zero.
func (h *freshness) lastReceived() time.Time { return ptr.Deref(h.last.Load(), time.Time{}) }

// begin records that everything has now been read by a list that began at a time. That may be long
// ago, if the list was large.
func (h *freshness) begin(at time.Time) {
	h.settled.Store(&at)
	h.recent.Store(&at)
	h.last.Store(new(h.clock.Now()))
}

// KnownAt returns the latest time for which everything that the API server had sent by
// then has arrived. It is zero until everything has been read.
func (h *freshness) KnownAt() time.Time {
	// Load settled first: if recent changes in between, the result is the older time.
	settled, recent := h.settled.Load(), h.recent.Load()
	if recent != nil && h.clock.Since(*recent) >= BurstWindow {
		settled = recent
	}
	return ptr.Deref(settled, time.Time{})
}

// untilSilent returns a context that is canceled with ErrSilent as its cause when nothing
// has been received for SilentAfter.
func (h *freshness) untilSilent(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	begun := h.clock.Now()
	go func() {
		for {
			last := begun
			if recent := h.lastReceived(); recent.After(last) {
				last = recent
			}
			left := SilentAfter - h.clock.Since(last)
			if left <= 0 {
				cancel(ErrSilent)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(left):
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}
