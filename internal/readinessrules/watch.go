// SPDX-License-Identifier: Apache-2.0

package readinessrules

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

var errWatchFailed = errors.New("the API server ended the watch with an error")

// watch signals changes of rules until the context ends. Rules are only listed if their
// watch signals a change, so a watch that fails, or that is not permitted, delays the
// next list by at most Interval.
func (r *Rules) watch(ctx context.Context) {
	for ctx.Err() == nil {
		pause := Retry
		if err := r.watchOnce(ctx); err != nil {
			r.log.V(1).Info("not watching NodeReadinessRules", "reason", err.Error())
			pause = Interval // usually, the resource does not exist
		}
		select {
		case <-ctx.Done():
		case <-r.clock.After(pause):
		}
	}
}

// watchOnce signals changes of rules until the watch ends. It receives metadata only,
// because the status of a rule may list all nodes and changes with each of them.
func (r *Rules) watchOnce(ctx context.Context) error {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(listKind)
	w, err := r.client.Watch(ctx, &list)
	if err != nil {
		return fmt.Errorf("starting a watch: %w", err)
	}
	defer w.Stop()
	r.signal() // rules may have been deleted before the watch began
	generations := map[types.UID]int64{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			if event.Type == watch.Error {
				return errWatchFailed
			}
			r.observe(event, generations)
		}
	}
}

// observe signals an event unless it is about a rule's status only, which does not change
// the generation.
func (r *Rules) observe(event watch.Event, generations map[types.UID]int64) {
	rule, ok := event.Object.(metav1.Object)
	if !ok {
		return
	}
	known, found := generations[rule.GetUID()]
	if event.Type == watch.Deleted {
		delete(generations, rule.GetUID())
	} else {
		generations[rule.GetUID()] = rule.GetGeneration()
		if found && known == rule.GetGeneration() {
			return
		}
	}
	r.signal()
}

func (r *Rules) signal() {
	select {
	case r.changed <- struct{}{}:
	default: // already signaled
	}
}
