// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/writers"
)

// NodeReadinessRules of kubernetes-sigs/node-readiness-controller also manage taint keys.
// Two controllers that manage the same key would revert each other's changes on every
// node, so a gate with such a key is not accepted.

var (
	readinessRule     = writers.ReadinessRules.GroupVersion().WithKind("NodeReadinessRule")
	readinessRuleList = readinessRule.GroupVersion().WithKind(readinessRule.Kind + "List")
)

const (
	// rulesInterval is the period of listing rules while no gate changes and no change of
	// a rule is observed, and of attempts to watch rules after one has failed.
	rulesInterval = time.Minute
	rulesTimeout  = 5 * time.Second
	// rulesPatience is how long gates that have changed wait for a list, so that a rule that
	// is older than a gate is known before the gate acts.
	rulesPatience = 500 * time.Millisecond
	// rulesRetry is the period of retries until the first list succeeds. Gates wait for
	// it for at most rulesMaxWait: they must work even if the other controller's resource
	// is broken.
	rulesRetry   = time.Second
	rulesMaxWait = 30 * time.Second
)

// readinessRules determines which keys rules manage. If they cannot be listed, the
// previous result is kept. If the resource does not exist, there are none. run and watch
// have goroutines of their own. All other methods are called by Follow.
type readinessRules struct {
	client client.WithWatch
	clock  clock.Clock
	log    logr.Logger
	// changed signals that a rule may have been created, changed or deleted.
	changed chan struct{}
	// requests has at most one request for run, and listed at most one result: the names of
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

func newReadinessRules(api client.WithWatch, c clock.Clock, log logr.Logger) *readinessRules {
	return &readinessRules{
		client: api, clock: c, log: log, changed: make(chan struct{}, 1),
		requests: make(chan struct{}, 1), listed: make(chan map[string]string, 1),
	}
}

// managed returns the names of the rules by the key that they manage, and false while it
// is still unknown whether there are any.
func (r *readinessRules) managed() (map[string]string, bool) {
	return r.byKey, r.byKey != nil || r.clock.Since(r.began) >= rulesMaxWait
}

// request lists the rules, and waits for the result: until it arrives while it is unknown
// whether there are any rules, otherwise for rulesPatience. It does not wait if the
// previous list is late. Results that it does not wait for arrive in listed.
func (r *readinessRules) request(ctx context.Context) {
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
	if _, known := r.managed(); known {
		late = r.clock.After(rulesPatience)
	}
	select {
	case <-ctx.Done():
	case result := <-r.listed:
		r.take(result)
	case <-late:
		r.late = true
	}
}

// take takes a result from listed. It returns whether another list was requested while
// this one was in progress.
func (r *readinessRules) take(result map[string]string) (again bool) {
	if result != nil {
		r.byKey, r.late = result, false
	}
	again, r.again, r.listing = r.again, false, false
	return again
}

// run lists the rules whenever it is requested until the context ends.
func (r *readinessRules) run(ctx context.Context) {
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

func (r *readinessRules) list(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, rulesTimeout)
	defer cancel()
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(readinessRuleList)
	if err := client.IgnoreNotFound(r.client.List(ctx, &list)); err != nil {
		return nil, fmt.Errorf("listing NodeReadinessRules: %w", err)
	}
	return writers.ManagedKeys(list.Items), nil
}
