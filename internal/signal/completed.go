// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// completed holds when a pod that runs once has succeeded on the node in the current
// boot. The record remembers the success, because such pods are deleted afterwards.
type completed struct {
	query gate.PodQuery
	// maxAge is how long a success counts. Zero means as long as the boot.
	maxAge time.Duration
	// id identifies the success in records. It depends on which pods are selected, so
	// that the success of a former check does not count for another one.
	id string
	// subject is the subject of readings.
	subject string
}

var _ gate.Remembering = completed{}

func newCompleted(spec *v1alpha1.CompletedSignal) (gate.Signal, error) {
	selector, err := spec.Selector.AsSelector()
	if err != nil {
		return nil, fmt.Errorf("compiling selector: %w", err)
	}
	s := completed{
		query:  gate.PodQuery{Namespace: spec.Namespace, Selector: selector.String(), Runs: true},
		maxAge: time.Duration(ptr.Deref(spec.MaxAgeSeconds, 0)) * time.Second,
	}
	s.id = gate.NewIncarnation(types.UID(s.query.Namespace), []string{s.query.Selector}).String()
	s.subject = s.query.Namespace + "/(" + s.query.Selector + ")"
	return s, nil
}

// remembers reports whether a signal is, or contains, one that remembers.
func remembers(s gate.Signal) bool {
	if alternatives, ok := s.(anyOf); ok {
		for i := range alternatives {
			if remembers(alternatives[i].Signal) {
				return true
			}
		}
		return false
	}
	_, ok := s.(gate.Remembering)
	return ok
}

// runs are the pods of a signal on a node, as far as they matter.
type runs struct {
	// last is the pod of the current boot that decides: of those that have finished, the
	// one that was created last.
	last *gate.Pod
	// unfinished is a pod that has not finished, and stale one that has, but in another
	// boot or in an unknown one. skipped is a pod that proves nothing in any boot.
	unfinished, stale, skipped *gate.Pod
}

// runs returns the relevant pods. A pod that is being deleted proves nothing: it may have
// been killed, and many programs exit with success then.
func (s completed) runs(in gate.Input) (runs, bool) {
	pods, observed := in.Pods[s.query]
	var r runs
	for i := range pods {
		switch p := &pods[i]; {
		case p.Mirror, p.Terminating:
			r.skipped = p
		case !p.Finished:
			r.unfinished = p
		case !in.Trust.BelievesRun(p):
			r.stale = p
		case r.last == nil, decidesAfter(p, r.last, in.Now):
			r.last = p
		}
	}
	return r, observed
}

// decidesAfter reports whether a finished pod decides instead of another one: it was
// created later, by the API server's clock, because the node's may have been wrong. Of pods
// that were created in the same second, the one that finished last does, or one that
// succeeded.
func decidesAfter(p, other *gate.Pod, now time.Time) bool {
	if !p.Created.Equal(other.Created) {
		return p.Created.After(other.Created)
	}
	a, b := endOf(p, now), endOf(other, now)
	return a.After(b) || a.Equal(b) && p.Run.Succeeded
}

// endOf returns when a pod finished. The node's clock may be wrong: a time before the pod's
// creation or after the current time is replaced by that of the creation.
func endOf(p *gate.Pod, now time.Time) time.Time {
	if p.Run.Ended.Before(p.Created) || p.Run.Ended.After(now) {
		return p.Created
	}
	return p.Run.Ended
}

// success returns the last success, or zero if there is none, or if a pod that was created
// since has failed. The record contains when the pod of a success was created, so that the
// result does not depend on whether that pod still exists.
func (s completed) success(r runs, in gate.Input) gate.Success {
	known := in.Completed.Of(s.id)
	if r.last == nil {
		return known
	}
	switch end := endOf(r.last, in.Now); {
	case r.last.Run.Succeeded:
		return known.Latest(gate.Success{Ended: end, Created: r.last.Created})
	case known.Created.After(r.last.Created), known.Created.Equal(r.last.Created) && !known.Ended.Before(end):
		return known
	}
	return gate.Success{}
}

// Read implements gate.Signal.
func (s completed) Read(in gate.Input) gate.Reading {
	r, observed := s.runs(in)
	if !observed {
		return gate.Reading{Reason: v1alpha1.ReadingNotObserved, Subject: s.subject}
	}
	at := s.success(r, in).Ended
	expires := at.Add(s.maxAge)
	switch {
	case !at.IsZero() && (s.maxAge == 0 || in.Now.Before(expires)):
		held := gate.Reading{State: gate.Holds, Reason: v1alpha1.ReadingCompletedEarlier, Subject: s.subject, Since: at}
		// A success that renews one that still counts interrupts nothing.
		known := in.Completed.Of(s.id).Ended
		held.Longer = !known.IsZero() && (s.maxAge == 0 || !known.Add(s.maxAge).Before(at))
		if r.last != nil && r.last.Run.Succeeded {
			held.Reason, held.Subject = v1alpha1.ReadingCompleted, r.last.Name
		}
		if s.maxAge > 0 {
			held.Recheck = expires
		}
		return held
	case r.unfinished != nil:
		return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingPodNotCompleted, Subject: r.unfinished.Name}
	case !at.IsZero():
		return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingCompletionExpired, Subject: s.subject, Since: expires}
	case r.last != nil:
		return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingPodFailed, Subject: r.last.Name, Since: endOf(r.last, in.Now)}
	}
	return s.missing(r)
}

// missing returns the reading without a pod of the current boot.
func (s completed) missing(r runs) gate.Reading {
	switch {
	case r.stale != nil:
		return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingStaleRun, Subject: r.stale.Name}
	case r.skipped != nil && r.skipped.Mirror:
		return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingPodStatic, Subject: r.skipped.Name}
	case r.skipped != nil: // the pod that must succeed is still missing
		return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingPodTerminating, Subject: r.skipped.Name, Lacks: true}
	}
	return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingPodMissing, Subject: s.subject}
}

// Completions implements gate.Remembering.
func (s completed) Completions(in gate.Input, into *gate.Completions) {
	if success := s.remembered(in); !success.IsZero() {
		into.Add(s.id, success)
	}
}

// Remembers implements gate.Remembering.
func (s completed) Remembers(in gate.Input) bool {
	return s.remembered(in).Equal(in.Completed.Of(s.id))
}

// remembered returns the success that the record must contain, or zero. Each update of the
// record is a write. Without a maximum age, a remembered success is therefore updated only
// if a pod was created before the new one that may fail, or has failed, and would otherwise
// decide after the deletion of the new one.
func (s completed) remembered(in gate.Input) gate.Success {
	known := in.Completed.Of(s.id)
	r, observed := s.runs(in)
	if !observed {
		return known
	}
	last := s.success(r, in)
	between := func(p gate.Pod) bool {
		return !p.Run.Succeeded && p.Created.After(known.Created) && !p.Created.After(last.Created)
	}
	if s.maxAge == 0 && !last.IsZero() && !known.IsZero() && !slices.ContainsFunc(in.Pods[s.query], between) {
		return known
	}
	return last
}

// Evidence implements gate.Signal.
func (s completed) Evidence(f *gate.Facts) ([]gate.Pod, bool) {
	found, observed := f.Pods[s.query]
	return found, observed
}

// ProvesBoot implements gate.Signal.
func (completed) ProvesBoot() bool { return true }

// Needs implements gate.Signal.
func (s completed) Needs(*gate.DaemonSets) gate.Needs {
	return gate.Needs{Pods: []gate.PodQuery{s.query}}
}
