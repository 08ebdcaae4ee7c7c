// SPDX-License-Identifier: Apache-2.0

package election

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
)

// lock is the Lease that client-go's elector uses. The elector does not call its methods
// concurrently.
type lock struct {
	resourcelock.Interface
	// renewEvery is the minimum time between two renewals.
	renewEvery time.Duration
	// timeout limits each request. The elector limits only requests of a leader.
	timeout time.Duration
	// leadFor is the time after the beginning of the last renewal for which this replica leads.
	// The elector's own limit begins with each attempt to renew the Lease, so it is later if the
	// last renewal was slow.
	leadFor time.Duration
	log     logr.Logger
	// lost is called when another replica is found to hold the Lease that this one held, and by
	// expiry, when leadFor has passed.
	lost   func()
	expiry *time.Timer

	// existed reports whether the Lease has ever been read, so that a process has held it before. It may
	// have been deleted since.
	existed bool
	// before is the other replica that last held the Lease, or "" if it was released.
	before string
	// renewed is the time at which the last successful write of the Lease began. It is zero
	// if this replica does not hold the Lease, or may not hold it.
	renewed time.Time
	// tookOver reports whether another replica held the Lease when this one acquired it.
	tookOver bool
	// first reports whether the Lease did not exist when this replica acquired it.
	first bool
	// elected reports whether this replica has acquired the Lease.
	elected atomic.Bool
	// writing contains an element while the Lease is written. In tests, no time would pass while a
	// mutex is awaited.
	writing chan struct{}
	// failing reports whether the last request failed, which has been logged.
	failing bool
}

// reset prepares the lock for another candidacy.
func (l *lock) reset(lost func()) {
	l.lost, l.before, l.renewed = lost, "", time.Time{}
	l.first, l.tookOver, l.failing = false, false, false
	l.elected.Store(false)
}

// Get implements resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	record, raw, err := l.Interface.Get(ctx)
	if l.logFailure(err); err != nil {
		return nil, nil, err
	}
	if l.existed = true; record.HolderIdentity != l.Identity() {
		l.before = record.HolderIdentity
		if l.elected.Load() {
			l.lost() // immediately: the elector would try to reacquire it for some time
		}
	}
	return record, raw, nil
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	l.before = ""
	return l.write(ctx, r, l.Interface.Create)
}

// Update implements resourcelock.Interface. It skips renewals that follow the last one too
// soon: the elector renews the Lease as often as candidates read it.
func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if !l.renewed.IsZero() && time.Since(l.renewed) < l.renewEvery {
		return nil
	}
	return l.write(ctx, r, l.Interface.Update)
}

func (l *lock) write(ctx context.Context, r resourcelock.LeaderElectionRecord,
	send func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	l.writing <- struct{}{}
	defer func() { <-l.writing }()
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	began := time.Now()
	err := send(ctx, r)
	if l.logFailure(err); err != nil {
		l.renewed = time.Time{}
		return err
	}
	l.extend(began)
	if l.renewed = began; !l.elected.Load() {
		l.first, l.tookOver = !l.existed, l.before != ""
		l.elected.Store(true)
	}
	return nil
}

// unlessElected calls stop if this replica has not acquired the Lease. It waits for a write that may
// acquire it.
func (l *lock) unlessElected(stop func()) {
	l.writing <- struct{}{}
	defer func() { <-l.writing }()
	if !l.elected.Load() {
		stop()
	}
}

// extend records that a renewal that began at a time has succeeded.
func (l *lock) extend(began time.Time) {
	if l.expiry != nil {
		l.expiry.Stop()
	}
	l.expiry = time.AfterFunc(time.Until(began.Add(l.leadFor)), l.lost)
}

// logFailure logs the first of consecutive failures. Conflicts are no failures: another
// replica was faster.
func (l *lock) logFailure(err error) {
	failing := err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) &&
		!errors.Is(err, context.Canceled)
	if failing && !l.failing {
		l.log.Error(err, "cannot read or renew the lease, retrying", "lease", l.Describe())
	}
	l.failing = failing
}

// release releases the Lease if this replica holds it. client-go's ReleaseOnCancel would
// release it while the leader is still working, and even if another replica holds it.
func (l *lock) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	// The last renewal may still take effect, although its request was cancelled.
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		record, _, err := l.Interface.Get(ctx)
		if err != nil || record.HolderIdentity != l.Identity() {
			return err
		}
		record.HolderIdentity, record.LeaseDurationSeconds = "", 1
		return l.Interface.Update(ctx, *record)
	})
	if err != nil {
		l.log.Error(err, "cannot release the lease, which will expire", "lease", l.Describe())
	}
}
