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

// lock is a Lease as client-go's elector sees it, which calls its methods one at a time.
type lock struct {
	resourcelock.Interface
	// renewEvery is the least time between two renewals.
	renewEvery time.Duration
	// timeout bounds a request. The elector bounds only those of a leader.
	timeout time.Duration
	log     logr.Logger
	// lost is called when another replica is found to hold the Lease that this one held.
	lost func()

	// before is the other replica that was last found to hold the Lease; empty if nobody
	// held it then.
	before string
	// renewed is when this replica began to write the Lease that it holds; zero if it
	// does not hold it, or does not know.
	renewed time.Time
	// tookOver is whether another replica held the Lease when this one got it.
	tookOver bool
	// elected is whether this replica has got the Lease.
	elected atomic.Bool
	// failing is whether the last request failed, of which the log has a line.
	failing bool
}

// begin forgets what was, for another candidacy.
func (l *lock) begin(lost func()) {
	l.lost, l.before, l.renewed, l.tookOver, l.failing = lost, "", time.Time{}, false, false
	l.elected.Store(false)
}

// Get implements resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	record, raw, err := l.Interface.Get(ctx)
	if l.told(err); err != nil {
		return nil, nil, err
	}
	if record.HolderIdentity != l.Identity() {
		l.before = record.HolderIdentity
		if l.elected.Load() {
			l.lost() // at once: the elector would try to get it back for some time
		}
	}
	return record, raw, nil
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	l.before = ""
	return l.write(ctx, r, l.Interface.Create)
}

// Update implements resourcelock.Interface. It leaves out renewals that follow the last
// one too soon, of which the elector makes one whenever a candidate would look.
func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if !l.renewed.IsZero() && time.Since(l.renewed) < l.renewEvery {
		return nil
	}
	return l.write(ctx, r, l.Interface.Update)
}

func (l *lock) write(ctx context.Context, r resourcelock.LeaderElectionRecord,
	send func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	began := time.Now()
	err := send(ctx, r)
	if l.told(err); err != nil {
		l.renewed = time.Time{}
		return err
	}
	if l.renewed = began; !l.elected.Load() {
		l.tookOver = l.before != ""
		l.elected.Store(true)
	}
	return nil
}

// told logs the first failure of a row. Conflicts are no failures: another replica was
// faster.
func (l *lock) told(err error) {
	failing := err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) &&
		!errors.Is(err, context.Canceled)
	if failing && !l.failing {
		l.log.Error(err, "cannot read or renew the lease, retrying", "lease", l.Describe())
	}
	l.failing = failing
}

// release gives the Lease back, if this replica holds it. What client-go offers for it
// has the leader go on working meanwhile, and releases also what another one holds by now.
func (l *lock) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	// The last renewal may still be carried out, although its request was cancelled.
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		record, _, err := l.Interface.Get(ctx)
		if err != nil || record.HolderIdentity != l.Identity() {
			return err
		}
		record.HolderIdentity, record.LeaseDurationSeconds = "", 1
		return l.Interface.Update(ctx, *record)
	})
	if err != nil {
		l.log.Error(err, "cannot release the lease, it expires", "lease", l.Describe())
	}
}
