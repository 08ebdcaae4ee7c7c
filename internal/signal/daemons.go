// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// daemonSets holds when every selected DaemonSet that should run on the node has a
// ready pod there.
type daemonSets struct {
	namespaces []string
	selector   labels.Selector
	// minReady is how long each pod must have been ready.
	minReady time.Duration
	// last caches the last selection. There are many decisions about many nodes between
	// two snapshots.
	last *atomic.Pointer[selection]
}

// selection contains the DaemonSets of a snapshot that a signal selects.
type selection struct {
	of   *gate.DaemonSets
	sets []*gate.DaemonSet
}

func newDaemonSets(spec *v1alpha1.DaemonSetsSignal) (gate.Signal, error) {
	selector, err := spec.Selector.AsSelector()
	if err != nil {
		return nil, fmt.Errorf("compiling selector: %w", err)
	}
	minReady := time.Duration(spec.MinReadySeconds) * time.Second
	return daemonSets{namespaces: spec.Namespaces, selector: selector, minReady: minReady, last: new(atomic.Pointer[selection])}, nil
}

// selected returns the DaemonSets that the signal selects. One that is being deleted does not
// count, as if it no longer existed: a pod on a dead node can delay the deletion for hours, in
// which no node gets a pod.
func (s daemonSets) selected(of *gate.DaemonSets) []*gate.DaemonSet {
	if last := s.last.Load(); last != nil && last.of == of {
		return last.sets
	}
	now := &selection{of: of}
	for i := range of.Items {
		if ds := &of.Items[i]; !ds.Deleting && slices.Contains(s.namespaces, ds.Namespace) && s.selector.Matches(ds.Labels) {
			now.sets = append(now.sets, ds)
		}
	}
	s.last.Store(now)
	return now.sets
}

// unobserved returns the first namespace whose DaemonSets have not been observed.
func (s daemonSets) unobserved(sets *gate.DaemonSets) (string, bool) {
	for _, ns := range s.namespaces {
		if sets == nil || !sets.Observed[ns] {
			return ns, true
		}
	}
	return "", false
}

// Read implements gate.Signal. A single daemon that is not ready determines the result,
// even if others are unknown.
func (s daemonSets) Read(in gate.Input) gate.Reading {
	if ns, missing := s.unobserved(in.DaemonSets); missing {
		return gate.Reading{Reason: v1alpha1.ReadingNotObserved, Subject: "namespace " + ns}
	}
	all := gate.Reading{State: gate.Holds, Reason: v1alpha1.ReadingDaemonsReady}
	found, node := false, placement(in)
	for _, ds := range s.selected(in.DaemonSets) {
		if belongs(ds, node, in) {
			found = true
			all = both(all, readDaemon(ds, s.minReady, in))
		}
	}
	if found {
		return all
	}
	if taint := in.Transient.Foreign(in.Node.Taints); taint != nil && !in.Open {
		return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingNodeBeingSetUp, Subject: taint.ToString()}
	}
	return gate.Reading{State: gate.Holds, Reason: v1alpha1.ReadingNoDaemonSetBelongs}
}

// both combines two readings that must both hold. NotYet takes precedence over Unknown,
// and Unknown over Holds. If both have the same state, the result has the reason of the
// first, with the exceptions below.
func both(a, b gate.Reading) gate.Reading {
	rank := func(s gate.State) int { return []int{gate.Holds: 0, gate.Unknown: 1, gate.NotYet: 2}[s] }
	switch {
	case a.State == gate.Holds && b.State == gate.Holds:
		a.Since, a.Alternative = gate.Latest(a.Since, b.Since), a.Alternative || b.Alternative
		return a
	case rank(b.State) > rank(a.State):
		a, b = b, a
	}
	a.Alternative = true // one that does not hold is sufficient
	if a.State != b.State {
		return a
	}
	// Neither holds. The relevant one is the one that no rollout excuses or, failing
	// that, the one that has not held for longer.
	if a.Rollout && !b.Rollout || a.Rollout == b.Rollout && !a.Since.Equal(gate.Earliest(a.Since, b.Since)) {
		a, b = b, a
	}
	a.Recheck = gate.Earliest(a.Recheck, b.Recheck)
	a.Lacks = a.LacksPod() || b.LacksPod()
	return a
}

// either combines two readings; one of them must hold. It returns the one that has held
// longer or, if neither holds, preferably one whose reason is not a missing pod.
func either(a, b gate.Reading) gate.Reading {
	longer := a.State == gate.Holds && !b.Since.IsZero() && (a.Since.IsZero() || b.Since.Before(a.Since))
	if b.State > a.State || b.State == a.State && (a.Reason == v1alpha1.ReadingPodMissing || longer) {
		a, b = b, a
	}
	if a.State != gate.Holds { // either may start to hold when time passes
		a.Recheck = gate.Earliest(a.Recheck, b.Recheck)
	}
	if a.State == gate.NotYet && b.State == gate.NotYet && a.Reason != v1alpha1.ReadingPodMissing && b.Reason != v1alpha1.ReadingPodMissing {
		a.Since, a.Rollout = neitherSince(a.Since, b.Since), a.Rollout || b.Rollout
	}
	return a
}

// neitherSince returns since when neither of two has held; zero if that is not known.
func neitherSince(a, b time.Time) time.Time {
	if a.IsZero() || b.IsZero() {
		return time.Time{}
	}
	return gate.Latest(a, b)
}

// Evidence implements gate.Signal.
func (s daemonSets) Evidence(f *gate.Facts) ([]gate.Pod, bool) {
	if _, missing := s.unobserved(f.DaemonSets); missing {
		return nil, false
	}
	var all []gate.Pod
	for _, ds := range s.selected(f.DaemonSets) {
		pods, observed := ownPods(ds, f)
		if !observed {
			return nil, false
		}
		all = append(all, pods...)
	}
	return all, true
}

// ProvesBoot implements gate.Signal.
func (daemonSets) ProvesBoot() bool { return true }

// Needs implements gate.Signal.
func (s daemonSets) Needs(sets *gate.DaemonSets) gate.Needs {
	n := gate.Needs{DaemonSetNamespaces: s.namespaces}
	if sets == nil {
		return n
	}
	for _, ds := range s.selected(sets) {
		n.Pods = append(n.Pods, ds.Pods)
	}
	return n
}
