// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"fmt"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// counts tells whether the pod can be evidence at all. A kubelet may make mirror
// pods with any label and any owner it likes.
func counts(p *gate.Pod) bool { return !p.Mirror && !p.Finished }

// readPod says whether one pod that counts is ready, and may be believed to be.
func readPod(p *gate.Pod, namespace string, in gate.Input) gate.Reading {
	r := gate.Reading{State: gate.NotYet, Subject: namespace + "/" + p.Name}
	switch {
	case p.Terminating:
		r.Reason, r.Since = v1alpha1.ReadingPodTerminating, p.TerminatingSince
	case !p.Ready:
		r.Reason, r.Since = v1alpha1.ReadingPodNotReady, p.ReadySince
	default:
		believed, recheck := in.Trust.Believes(p, in.Now)
		if !believed {
			r.Reason, r.Recheck = v1alpha1.ReadingStaleEvidence, recheck
			return r
		}
		r.State, r.Reason, r.Since = gate.Holds, v1alpha1.ReadingReady, p.ReadySince
	}
	return r
}

// pods holds when the matching pods on the node are ready.
type pods struct {
	query   gate.PodQuery
	require v1alpha1.Require
}

func newPods(spec *v1alpha1.PodsSignal) (gate.Signal, error) {
	selector, err := spec.Selector.AsSelector()
	if err != nil {
		return nil, fmt.Errorf("compiling selector: %w", err)
	}
	query := gate.PodQuery{Namespace: spec.Namespace, Selector: selector.String()}
	return pods{query: query, require: spec.Require}, nil
}

func (s pods) subject() string { return s.query.Namespace + "/(" + s.query.Selector + ")" }

// Read implements gate.Signal.
func (s pods) Read(in gate.Input) gate.Reading {
	found, observed := in.Pods[s.query]
	if !observed {
		return gate.Reading{Reason: v1alpha1.ReadingNotObserved, Subject: s.subject()}
	}
	all := gate.Reading{State: gate.Holds, Reason: v1alpha1.ReadingReady, Subject: s.subject()}
	best := gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingPodMissing, Subject: s.subject()}
	some := false
	for i := range found {
		if counts(&found[i]) {
			r := readPod(&found[i], s.query.Namespace, in)
			all, best, some = both(all, r), either(best, r), true
		}
	}
	if s.require == v1alpha1.RequireAll && some {
		return all
	}
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
	return gate.Needs{Pods: []gate.PodQuery{s.query}}
}
