// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

const (
	// leaseGrace is added to the duration of a lease, because the clock of this machine may
	// differ from that of the holder.
	leaseGrace = 15 * time.Second
	// leaseInterval is the interval at which a Lease is read to find out whether it changes. It is
	// that of renewals, if the Lease lasts for two seconds.
	leaseInterval = 500 * time.Millisecond
)

// Running reports whether a controller is running, that is, renews its Lease.
//
// It does not use this machine's clock, which may be wrong by any time: like the replicas, it
// observes whether the Lease changes. If it does not, this takes a second longer than a Lease lasts.
// observing is called before with the holder of the Lease, and how long the Lease lasts.
func Running(ctx context.Context, core kubernetes.Interface, namespace string, observing func(holder string, lasts time.Duration)) (bool, error) {
	_, running, err := observeLease(ctx, core, namespace, func(l *coordinationv1.Lease) bool {
		observing(*l.Spec.HolderIdentity, duration(l))
		return false
	})
	return running, err
}

// observeLease reads the controller's Lease until it changes, which proves that the controller is
// running, or has no holder, or has not changed for longer than it lasts. It does not wait if the
// first Lease is sufficient. It returns the first Lease, or nil if there is none.
func observeLease(ctx context.Context, core kubernetes.Interface, namespace string, sufficient func(*coordinationv1.Lease) bool) (first *coordinationv1.Lease, running bool, err error) {
	first, err = readLease(ctx, core, namespace)
	if err != nil || !hasHolder(first) {
		return first, false, err
	}
	if sufficient(first) {
		return first, true, nil
	}
	expires := time.Now().Add(observation(first))
	for {
		select {
		case <-ctx.Done():
			return first, false, ctx.Err()
		case <-time.After(leaseInterval):
		}
		expired := !time.Now().Before(expires) // before the Lease is read, which takes any time
		switch lease, err := readLease(ctx, core, namespace); {
		case err != nil || !hasHolder(lease):
			return first, false, err
		case lease.ResourceVersion != first.ResourceVersion:
			return first, true, nil
		case expired:
			return first, false, nil
		}
	}
}

// readLease returns the controller's lease, or nil if it does not exist.
func readLease(ctx context.Context, core kubernetes.Interface, namespace string) (*coordinationv1.Lease, error) {
	lease, err := core.CoordinationV1().Leases(namespace).Get(ctx, v1alpha1.LeaseName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the Lease %s/%s: %w", namespace, v1alpha1.LeaseName, err)
	}
	return lease, nil
}

// hasHolder reports whether a Lease exists, and has a holder that may have renewed it.
func hasHolder(l *coordinationv1.Lease) bool {
	return l != nil && ptr.Deref(l.Spec.HolderIdentity, "") != "" && l.Spec.RenewTime != nil
}

// duration returns how long a Lease lasts.
func duration(l *coordinationv1.Lease) time.Duration {
	return time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second
}

// observation returns how long a Lease is observed that does not change.
func observation(l *coordinationv1.Lease) time.Duration { return duration(l) + time.Second }

// recentlyRenewed reports whether the holder of a Lease has renewed it recently by this machine's
// clock. If the time of the renewal is in the future, the clock is wrong, and shows nothing.
func recentlyRenewed(l *coordinationv1.Lease) bool {
	now := time.Now()
	return Held(l, now) && l.Spec.RenewTime.Time.Before(now.Add(leaseGrace))
}

// Held reports whether a controller's lease exists, and is held and renewed at a time. This is
// sufficient only for what is displayed: Running does not depend on any clock.
func Held(l *coordinationv1.Lease, now time.Time) bool {
	return hasHolder(l) && now.Before(l.Spec.RenewTime.Add(duration(l)+leaseGrace))
}
