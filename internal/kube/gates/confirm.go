// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A NodeGate that is no longer visible may not have been deleted.
//
// A user who deletes a NodeGate wants it open everywhere. But gates also disappear with
// their CustomResourceDefinition, whose deletion deletes them one by one, as a user
// would. They disappear during a restore, too, which creates the definition first and the
// gates a moment later. Therefore the store keeps a gate that disappears until it has
// read the definition afterwards, as it is at that moment, and found that it exists and
// is not being deleted. In addition, the gate must have been created under this
// definition, or the definition must be older than settleAfter.
//
// The same applies to gates that are known only from their records on nodes: the list of
// gates is complete only while the gates can be read and the definition is older than
// settleAfter.

// settleAfter is how long after the creation of the definition missing gates may still be
// created.
const settleAfter = 2 * time.Minute

// Timeout and backoff of reading the definition.
const (
	definitionTimeout  = 10 * time.Second
	definitionRetryMin = time.Second
	definitionRetryMax = 15 * time.Second
)

// confirm reads the definition whenever the list of gates is unconfirmed, and retries
// until it is confirmed or the context ends.
func (s *store) confirm(ctx context.Context) {
	retryTimer := time.NewTimer(0)
	defer retryTimer.Stop()
	retry := definitionRetryMin
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-retryTimer.C:
		}
		wait, err := s.confirmOnce(ctx)
		switch {
		case wait > 0:
			retryTimer.Reset(wait)
		case err != nil:
			retryTimer.Reset(retry)
			retry = min(2*retry, definitionRetryMax)
		default:
			retry = definitionRetryMin
		}
	}
}

// confirmOnce determines whether gates that have disappeared were deleted, and whether
// the list of gates is complete. It returns an error if it must be retried, and the time
// after which to retry if that is known.
func (s *store) confirmOnce(ctx context.Context) (time.Duration, error) {
	s.mu.Lock()
	unconfirmed := s.feed.IsLive() && (s.err != nil || len(s.vanished) > 0)
	requests := s.requests
	s.mu.Unlock()
	if !unconfirmed {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, definitionTimeout)
	defer cancel()
	definition, err := s.definition(ctx)

	s.mu.Lock()
	if s.requests != requests {
		// Something has changed since the definition was read, and has requested another
		// confirmation.
		s.mu.Unlock()
		return 0, nil
	}
	var wait time.Duration
	if wait, s.err = s.judge(definition, err, s.clock.Now()); s.err == nil || errors.Is(s.err, errSettling) {
		s.dropDeleted(definition.CreationTimestamp)
	}
	err = s.err
	notify := s.publish()
	s.mu.Unlock()
	if notify {
		s.changed()
	}
	return wait, err
}

// judge returns why missing gates cannot be assumed to be deleted, given the current
// definition, and the time after which they can be, if that is known.
func (s *store) judge(definition *metav1.PartialObjectMetadata, err error, now time.Time) (time.Duration, error) {
	switch {
	case apierrors.IsNotFound(err):
		return 0, errDefinitionDeleted
	case err != nil:
		return 0, fmt.Errorf("reading the CustomResourceDefinition %s: %w", DefinitionName, err)
	case definition.DeletionTimestamp != nil:
		return 0, errDefinitionDeleted
	}
	switch {
	case s.definitionUID == "":
		s.definitionSince = definition.CreationTimestamp.Time
		if s.definitionSince.After(now) { // the API server's clock is ahead
			s.definitionSince = now
		}
	case s.definitionUID != definition.UID:
		s.definitionSince = now
	}
	s.definitionUID = definition.UID
	if wait := settleAfter - now.Sub(s.definitionSince); wait > 0 {
		return wait, errSettling
	}
	return 0, nil
}

// dropDeleted removes those gates that are certain to have been deleted. defined is the
// creation time of the definition, which was read after the gates had disappeared.
func (s *store) dropDeleted(defined metav1.Time) {
	settling := s.err != nil
	if !settling {
		clear(s.deleted) // the list is complete: what is not in it does not exist
	}
	for name := range s.vanished {
		if settling {
			// A gate that is older than the definition may have been deleted with the
			// previous definition, and may be restored.
			if s.byName[name].CreationTimestamp.Before(&defined) {
				continue
			}
			s.deleted[name] = true
		}
		delete(s.vanished, name)
		delete(s.byName, name)
	}
}
