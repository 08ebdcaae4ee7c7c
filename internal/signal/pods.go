// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// counts reports whether the pod can be evidence. A kubelet can create mirror pods with
// any labels and any owner.
func counts(p *gate.Pod) bool { return !p.Mirror && !p.Finished }

// notCounted returns the reason why a pod cannot be evidence.
func notCounted(p *gate.Pod) v1alpha1.ReadingReason {
	if p.Mirror {
		return v1alpha1.ReadingPodStatic
	}
	return v1alpha1.ReadingPodFinished
}

// readPod reads whether a pod is ready and that is evidence of the current boot and
// Node.
func readPod(p *gate.Pod, in gate.Input) gate.Reading {
	r := gate.Reading{State: gate.NotYet, Subject: p.Name}
	switch {
	case p.Terminating:
		r.Reason, r.Since = v1alpha1.ReadingPodTerminating, p.TerminatingSince
	case !p.Ready:
		r.Reason, r.Since = v1alpha1.ReadingPodNotReady, p.ReadySince
	default:
		believed, from := in.Trust.Believes(p, in.Now)
		if !believed {
			r.Reason, r.Recheck = v1alpha1.ReadingStaleEvidence, from
			return r
		}
		r.State, r.Reason, r.Since = gate.Holds, v1alpha1.ReadingReady, gate.Latest(p.ReadySince, from)
	}
	return r
}

// requireReadyFor returns the reading of a pod that must have been ready for minReady.
// Time before the pod's creation does not count, even if the node's clock is slow and
// reports such a time.
func requireReadyFor(r gate.Reading, p *gate.Pod, minReady time.Duration, now time.Time) gate.Reading {
	if minReady == 0 || r.State != gate.Holds {
		return r
	}
	due := gate.Latest(r.Since, p.Created).Add(minReady)
	if now.Before(due) {
		return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingPodReadyTooBriefly, Subject: r.Subject, Recheck: due}
	}
	r.Since = due
	return r
}

// startTime is how long after a pod's creation its kubelet may report for the first time
// whether the pod is ready.
const startTime = time.Minute

// replaced reports whether a rollout may be the reason why a pod does not count as ready:
// it is being deleted, or its readiness has not changed since it started. If a pod fails
// later, that has nothing to do with a rollout, which may be in progress on other nodes.
func replaced(reason v1alpha1.ReadingReason, p *gate.Pod) bool {
	switch reason {
	case v1alpha1.ReadingPodTerminating:
		return true
	case v1alpha1.ReadingPodNotReady, v1alpha1.ReadingPodReadyTooBriefly:
		return !p.ReadySince.After(p.Created.Add(startTime))
	}
	return false
}

// pods holds when the matching pods on the node are ready, regardless of their owner. If a
// DaemonSet's own rollout replaces a pod, the rollout excuses the reading as it does
// for the signals that name DaemonSets.
type pods struct {
	query    gate.PodQuery
	selector labels.Selector
	readyBy  v1alpha1.ReadyBy
	require  v1alpha1.Require
	// minReady is how long a pod must have been ready.
	minReady time.Duration
	// subject is the subject of readings.
	subject string
}

func newPods(spec *v1alpha1.PodsSignal) (gate.Signal, error) {
	selector, err := spec.Selector.AsSelector()
	if err != nil {
		return nil, fmt.Errorf("compiling selector: %w", err)
	}
	query := gate.PodQuery{Namespace: spec.Namespace, Selector: selector.String()}
	marks := spec.ReadyBy == v1alpha1.ReadyByAnnotation || spec.ReadyBy == v1alpha1.ReadyByEither
	if marks {
		query.Annotation = spec.ReadyAnnotation
	}
	if marks != (spec.ReadyAnnotation != "") {
		return nil, fmt.Errorf("compiling readyBy %s: it cannot be combined with readyAnnotation %q", spec.ReadyBy, spec.ReadyAnnotation)
	}
	return pods{
		query: query, selector: selector, readyBy: spec.ReadyBy, require: spec.Require,
		minReady: time.Duration(spec.MinReadySeconds) * time.Second,
		subject:  query.Namespace + "/(" + query.Selector + ")",
	}, nil
}

// read reads whether a pod is ready, by its Ready condition or the annotation, and has
// been ready for long enough.
func (s pods) read(p *gate.Pod, in gate.Input) gate.Reading {
	var marked gate.Reading
	if s.readyBy == v1alpha1.ReadyByAnnotation || s.readyBy == v1alpha1.ReadyByEither {
		marked = requireReadyFor(readAnnotated(p, in), p, s.minReady, in.Now)
	}
	if s.readyBy == v1alpha1.ReadyByAnnotation {
		return marked
	}
	ready := requireReadyFor(readPod(p, in), p, s.minReady, in.Now)
	if s.readyBy == v1alpha1.ReadyByEither {
		ready = either(ready, marked)
		ready.Alternative = true
	}
	return ready
}

// Read implements gate.Signal.
func (s pods) Read(in gate.Input) gate.Reading {
	found, observed := in.Pods[s.query]
	if !observed {
		return gate.Reading{Reason: v1alpha1.ReadingNotObserved, Subject: s.subject}
	}
	all := gate.Reading{State: gate.Holds, Reason: v1alpha1.ReadingReady, Subject: s.subject}
	best := gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingPodMissing, Subject: s.subject}
	best.Rollout = s.rolledOut(in, "")
	var skipped *gate.Pod
	some := false
	for i := range found {
		p := &found[i]
		if !counts(p) {
			skipped = p
			continue
		}
		r := s.read(p, in)
		r.Rollout = replaced(r.Reason, p) && s.rolledOut(in, p.Owner)
		all, best, some = both(all, r), either(best, r), true
	}
	switch {
	case some && s.require == v1alpha1.RequireAll:
		return all
	case !some && skipped != nil:
		best.Reason, best.Subject = notCounted(skipped), skipped.Name
	}
	best.Alternative = s.require != v1alpha1.RequireAll
	return best
}

// Evidence implements gate.Signal.
func (s pods) Evidence(f *gate.Facts) ([]gate.Pod, bool) {
	found, observed := f.Pods[s.query]
	return found, observed
}

// ProvesBoot implements gate.Signal.
func (pods) ProvesBoot() bool { return true }

// Needs implements gate.Signal.
func (s pods) Needs(*gate.DaemonSets) gate.Needs {
	return gate.Needs{Pods: []gate.PodQuery{s.query}, DaemonSetNamespaces: []string{s.query.Namespace}}
}

// rolledOut reports whether the DaemonSet with this UID is being rolled out or, if the
// pod is missing, any DaemonSet whose pods the signal selects and that should run on
// the node.
func (s pods) rolledOut(in gate.Input, owner types.UID) bool {
	if in.DaemonSets == nil {
		return false
	}
	for i := range in.DaemonSets.Items {
		ds := &in.DaemonSets.Items[i]
		switch {
		case !ds.RollingOut, ds.Namespace != s.query.Namespace, owner != "" && ds.UID != owner:
		case s.selector.Matches(ds.PodLabels) && belongs(ds, placement(in), in):
			return true
		}
	}
	return false
}
