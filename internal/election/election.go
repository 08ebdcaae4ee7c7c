// SPDX-License-Identifier: Apache-2.0

// Package election elects one of several replicas as the leader, for as long as it holds a
// Lease. It adds the following to client-go's leader election:
//
//   - A replica that loses the Lease becomes a candidate again, without a restart. Leases
//     can therefore be short, although an API server that does not answer for a moment
//     may cause their loss.
//   - The Lease is released only when the work has ended.
//   - The leader renews the Lease less often than candidates read it: see Options.Duration.
//   - A candidate watches the Lease, so that it leads as soon as the leader releases it.
package election

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// DefaultDuration is the default of Election.Duration.
const DefaultDuration = 2 * time.Second

// Election is the participation of one replica in the election of a leader.
type Election struct {
	lock *lock
	// watch starts a watch of the Lease. Without it, candidates find a released Lease when
	// they read it next.
	watch func(context.Context) (watch.Interface, error)
	// name is the name of the Lease, and the label of client-go's metric.
	name     string
	duration time.Duration
	onLoss   func()
	log      logr.Logger
}

// Options are the options of an Election.
type Options struct {
	// Namespace and Name are those of the Lease. Required.
	Namespace, Name string
	// Identity is a name that is unique among the replicas. A replica that restarts with
	// the same identity gets its own Lease immediately. Required.
	Identity string
	// Duration is the time after the last renewal for which no other replica may lead. It
	// must be a whole number of seconds, at least two. The leader renews the Lease about
	// every three tenths of it. When nine tenths of it have passed since it sent the last renewal that
	// succeeded, it stops leading; renewals may therefore take four tenths each. A candidate
	// reads the Lease at intervals of one to 2.2 tenths. Defaults to DefaultDuration.
	Duration time.Duration
	// OnLoss is called when this replica has lost the Lease and its work has ended. It is not called
	// when the replica releases the Lease. Required.
	OnLoss func()
	// Log receives one line for each transition.
	Log logr.Logger
}

// New returns an Election for one replica.
func New(config *rest.Config, o Options) (*Election, error) {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return impatient{next} })
	client, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building a client for Leases: %w", err)
	}
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, o.Name).String()}
	return newElection(&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: o.Identity},
	}, func(ctx context.Context) (watch.Interface, error) {
		return client.Leases(o.Namespace).Watch(ctx, only)
	}, o)
}

// impatient removes Retry-After from answers. Otherwise client-go would wait for as long as an API server
// asks for, and the Lease would be lost meanwhile. The elector repeats its requests anyway, a tenth of
// the Lease's duration later.
type impatient struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (i impatient) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := i.next.RoundTrip(r)
	if err == nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

func newElection(lease resourcelock.Interface, watchLease func(context.Context) (watch.Interface, error), o Options) (*Election, error) {
	if o.Duration == 0 {
		o.Duration = DefaultDuration
	}
	if err := ValidateDuration(o.Duration); err != nil {
		return nil, err
	}
	return &Election{
		lock: &lock{
			Interface: lease, renewEvery: o.Duration / 4, timeout: deadline(o.Duration), leadFor: o.Duration * 9 / 10, log: o.Log,
			writing: make(chan struct{}, 1),
		},
		watch: watchLease, name: o.Name, duration: o.Duration, onLoss: o.OnLoss, log: o.Log,
	}, nil
}

// deadline returns the time for which a leader tries to renew its Lease once a renewal is
// due.
func deadline(duration time.Duration) time.Duration { return duration * 6 / 10 }

// ValidateDuration returns an error if a Lease cannot have this duration.
func ValidateDuration(d time.Duration) error {
	if d < 2*time.Second || d%time.Second != 0 {
		return fmt.Errorf("%s is invalid: must be whole seconds, at least 2s", d)
	}
	return nil
}

// Work is performed by the leader until the context ends. first is true if no process has held the
// Lease before. Otherwise, what the previous leader has just written may not be observed yet. If it
// did not release the Lease, because it was paused, killed or disconnected, it may still write.
type Work func(ctx context.Context, first bool) error

// Lead waits until this replica is elected, performs the work, and releases the Lease when
// the work has ended. It returns when the context ends, when the Lease is lost, or when the
// work returns, with its error. It must not be called concurrently.
func (e *Election) Lead(ctx context.Context, work Work) error {
	watching, elected := context.WithCancel(ctx)
	defer elected()
	released := make(chan struct{}, 1)
	go e.watchLease(watching, released)
	for {
		led, err := e.stand(ctx, released, func(ctx context.Context, first bool) error {
			elected()
			return work(ctx, first)
		})
		if led || err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// stand is one candidacy. It ends like Lead or, if this replica is not elected, when the
// Lease is released: a new elector reads the Lease immediately. It reports whether the replica led.
func (e *Election) stand(ctx context.Context, released <-chan struct{}, work Work) (led bool, err error) {
	// The Lease is held until the work has ended, which may be later than ctx.
	holding, stop := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.Discard()))
	defer stop()
	e.lock.reset(stop)
	go func() {
		select {
		case <-holding.Done():
			return
		case <-released:
		case <-ctx.Done():
		}
		e.lock.unlessElected(stop)
	}()
	ended := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: e.lock, Name: e.name,
		LeaseDuration: e.duration, RenewDeadline: deadline(e.duration), RetryPeriod: e.duration / 10,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) {
				err := e.lead(ctx, held, work)
				stop()
				ended <- err
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return false, fmt.Errorf("building leader election: %w", err)
	}
	elector.Run(holding)
	if !e.lock.elected.Load() {
		return false, nil
	}
	err = <-ended
	e.lock.release(context.WithoutCancel(ctx))
	return true, err
}

// lead performs the work until ctx ends or the Lease is lost.
func (e *Election) lead(ctx, held context.Context, work Work) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(held, cancel)()
	e.log.Info("leading", "tookOver", e.lock.tookOver)
	err := work(ctx, e.lock.first)
	if held.Err() != nil {
		e.log.Info("the lease is lost, standing by")
		e.onLoss()
	}
	return err
}
