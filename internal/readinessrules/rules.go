// SPDX-License-Identifier: Apache-2.0

// Package readinessrules determines which taint keys the NodeReadinessRules of
// kubernetes-sigs/node-readiness-controller manage. Two controllers that manage the same key
// would revert each other's changes on every node, so a gate with such a key is not accepted.
package readinessrules

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/writers"
)

var (
	// Kind is the kind of rules.
	Kind     = writers.ReadinessRules.GroupVersion().WithKind("NodeReadinessRule")
	listKind = Kind.GroupVersion().WithKind(Kind.Kind + "List")
)

const (
	// Interval is the period of listing rules while no gate changes and no change of
	// a rule is observed, and of attempts to watch rules after one has failed.
	Interval = time.Minute
	// Timeout limits each list.
	Timeout = 5 * time.Second
	// Patience is how long gates that have changed wait for a list, so that a rule that
	// is older than a gate is known before the gate acts.
	Patience = 500 * time.Millisecond
	// Retry is the period of retries until the first list succeeds.
	Retry = time.Second
	// MaxWait is how long gates wait for the first list: they must work even if the other
	// controller's resource is broken.
	MaxWait = 30 * time.Second
)

// Rules determines which keys rules manage. If they cannot be listed, the previous result is
// kept. If the resource does not exist, there are none. Run has a goroutine of its own. All
// other methods must be called by one goroutine.
type Rules struct {
	client client.WithWatch
	clock  clock.Clock
	log    logr.Logger
	// changed signals that a rule may have been created, changed or deleted.
	changed chan struct{}
	// requests has at most one request for serve, and listed at most one result: the names of
	// the rules by the key that they manage, or nil if they could not be listed.
	requests chan struct{}
	listed   chan map[string]string

	byKey map[string]string // the last result that is not nil
	// began is the time of the first attempt to list rules.
	began time.Time
	// listing is true from a request until its result has been taken. again is true if
	// another list was requested in the meantime.
	listing, again bool
	// late is true if the result of a list has not arrived in time, until one has arrived.
	late bool
}

// New returns Rules that are unknown until Run has listed them on Request.
func New(api client.WithWatch, c clock.Clock, log logr.Logger) *Rules {
	return &Rules{
		client: api, clock: c, log: log, changed: make(chan struct{}, 1),
		requests: make(chan struct{}, 1), listed: make(chan map[string]string, 1),
	}
}

// Managed returns the names of the rules by the key that they manage, and false while it
// is still unknown whether there are any.
func (r *Rules) Managed() (map[string]string, bool) {
	return r.byKey, r.byKey != nil || r.clock.Since(r.began) >= MaxWait
}

// Request lists the rules, and waits for the result: until it arrives while it is unknown
// whether there are any rules, otherwise for Patience. It does not wait if the
// previous list is late. Results that it does not wait for arrive in Listed.
func (r *Rules) Request(ctx context.Context) {
	if r.began.IsZero() {
		r.began = r.clock.Now()
	}
	if r.listing {
		r.again = true
		return
	}
	r.listing = true
	r.requests <- struct{}{}
	if r.late {
		return
	}
	var late <-chan time.Time
	if _, known := r.Managed(); known {
		late = r.clock.After(Patience)
	}
	select {
	case <-ctx.Done():
	case result := <-r.listed:
		r.Take(result)
	case <-late:
		r.late = true
	}
}

// Take takes a result from Listed. It returns whether another list was requested while
// this one was in progress.
func (r *Rules) Take(result map[string]string) (again bool) {
	if result != nil {
		r.byKey, r.late = result, false
	}
	again, r.again, r.listing = r.again, false, false
	return again
}

// Changed signals that a rule may have been created, changed or deleted.
func (r *Rules) Changed() <-chan struct{} { return r.changed }

// Listed has the results of requests: the names of the rules by the key that they manage, or
// nil if they could not be listed.
func (r *Rules) Listed() <-chan map[string]string { return r.listed }

// Succeed takes over the keys that another Rules, which no longer runs, has found.
func (r *Rules) Succeed(before *Rules) { r.byKey = before.byKey }

// Run watches and lists the rules until the context ends.
func (r *Rules) Run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { r.watch(ctx) })
	r.serve(ctx)
}

// serve lists the rules whenever that is requested.
func (r *Rules) serve(ctx context.Context) {
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.requests:
		}
		result, err := r.list(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			r.log.Error(err, "cannot list NodeReadinessRules, retrying")
		}
		failed = err != nil
		r.listed <- result
	}
}

func (r *Rules) list(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(listKind)
	if err := client.IgnoreNotFound(r.client.List(ctx, &list)); err != nil {
		return nil, fmt.Errorf("listing NodeReadinessRules: %w", err)
	}
	return writers.ManagedKeys(list.Items), nil
}
