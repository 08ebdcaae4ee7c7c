// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Deleted is not the same as invisible.
//
// Whoever deletes a NodeGate wants it open everywhere. But gates also vanish
// with their CustomResourceDefinition, whose deletion deletes them one by one
// as if somebody had, or during a restore, which puts the definition back
// first and the gates a moment later. So a gate that vanishes stays known
// until the definition, read after the fact and as it is at that moment, turns
// out to be there and to stay; and to be the one under which the gate was
// created, or else to have been there for a while.
//
// The same holds for gates that are known only from what they left on nodes:
// the gates are complete only while they can be read and the definition has
// been there for a while.

// settleAfter is how long after the definition came into being a gate that is
// missing may be on its way still.
const settleAfter = 2 * time.Minute

// How the definition is read again when it could not be, or was not as it
// should be.
const (
	definitionTimeout  = 10 * time.Second
	definitionRetryMin = time.Second
	definitionRetryMax = 15 * time.Second
)

// confirm looks at the definition whenever something comes to be in doubt, and
// again when it is time for as long as it is, until the context ends.
func (s *gateStore) confirm(ctx context.Context) {
	again := time.NewTimer(0)
	defer again.Stop()
	retry := definitionRetryMin
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-again.C:
		}
		wait, err := s.confirmOnce(ctx)
		switch {
		case wait > 0:
			again.Reset(wait)
		case err != nil:
			again.Reset(retry)
			retry = min(2*retry, definitionRetryMax)
		default:
			retry = definitionRetryMin
		}
	}
}

// confirmOnce finds out whether gates that have vanished were deleted, and
// whether the gates are complete. It returns an error if that is to be tried
// again, and after how long if that is known.
func (s *gateStore) confirmOnce(ctx context.Context) (time.Duration, error) {
	s.mu.Lock()
	doubt := s.feed.isLive() && (s.err != nil || len(s.vanished) > 0)
	doubts := s.doubts
	s.mu.Unlock()
	if !doubt {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, definitionTimeout)
	defer cancel()
	definition, err := s.definition(ctx)

	s.mu.Lock()
	if s.doubts != doubts {
		// More has happened since the definition was read. Whatever it was has
		// asked for another look.
		s.mu.Unlock()
		return 0, nil
	}
	var wait time.Duration
	if wait, s.err = s.judge(definition, err, s.clock.Now()); s.err == nil || errors.Is(s.err, errSettling) {
		s.settle(definition.CreationTimestamp)
	}
	err = s.err
	news := s.publish()
	s.mu.Unlock()
	if news {
		s.changed()
	}
	return wait, err
}

// judge says why gates that are missing cannot be taken to be deleted, given
// the definition as it is now; and after how long they can, if that is known.
func (s *gateStore) judge(definition *metav1.PartialObjectMetadata, err error, now time.Time) (time.Duration, error) {
	switch {
	case apierrors.IsNotFound(err):
		return 0, errDefinitionDeleted
	case err != nil:
		return 0, fmt.Errorf("reading the CustomResourceDefinition %s: %w", definitionName, err)
	case definition.DeletionTimestamp != nil:
		return 0, errDefinitionDeleted
	}
	switch {
	case s.definitionUID == "":
		s.definitionSince = definition.CreationTimestamp.Time
		if s.definitionSince.After(now) { // by a clock that is ahead of ours
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

// settle lets go of those gates that were deleted beyond doubt, given when the
// definition was created, which was read after they had vanished.
func (s *gateStore) settle(defined metav1.Time) {
	settling := s.err != nil
	if !settling {
		clear(s.deleted) // by now what is not there does not exist
	}
	for name := range s.vanished {
		if settling {
			// A gate that is older than the definition may have gone with the one
			// before, and be on its way back.
			if s.byName[name].CreationTimestamp.Before(&defined) {
				continue
			}
			s.deleted[name] = true
		}
		delete(s.vanished, name)
		delete(s.byName, name)
	}
}
