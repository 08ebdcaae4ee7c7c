// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// readDaemon says whether a DaemonSet has its ready pod on the node.
func readDaemon(ds *gate.DaemonSet, in gate.Input) gate.Reading {
	name := ds.Namespace + "/" + ds.Name
	pods, observed := in.Pods[ds.Pods]
	if !observed {
		return gate.Reading{Reason: v1alpha1.ReadingNotObserved, Subject: name}
	}
	best := gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingPodMissing, Subject: name}
	for i := range pods {
		if pods[i].Owner != ds.UID {
			continue
		}
		if r := readPod(&pods[i], ds.Namespace, in); r.State > best.State || best.Reason == v1alpha1.ReadingPodMissing {
			best = r
		}
	}
	if best.State == gate.Holds {
		return best
	}
	if !tolerates(ds, gateTaint(in.Taint)) {
		return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingDaemonDoesNotTolerateGate, Subject: name}
	}
	best.Rollout = ds.RollingOut
	return best
}

// belongs tells whether the DaemonSet runs on the node, or will once taints
// that come and go by themselves have gone. An error of its affinity means
// that the DaemonSet controller cannot place it either.
func belongs(ds *gate.DaemonSet, in gate.Input) bool {
	n := &in.Node
	if ds.NodeName != "" && ds.NodeName != n.Name {
		return false
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
	if match, err := ds.Affinity.Match(node); err != nil || !match {
		return false
	}
	return !slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !in.Transient.Is(t.Key) && !tolerates(ds, t)
	})
}

func tolerates(ds *gate.DaemonSet, taint corev1.Taint) bool {
	if taint.Effect == corev1.TaintEffectPreferNoSchedule {
		return true
	}
	const comparisonOperators = false // alpha: Lt and Gt in tolerations
	return schedulingcorev1.TolerationsTolerateTaint(logr.Discard(), ds.Tolerations, &taint, comparisonOperators)
}

func gateTaint(t v1alpha1.Taint) corev1.Taint {
	return corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}
}

// daemonSet holds when one DaemonSet has its ready pod on the node.
type daemonSet struct{ namespace, name string }

func newDaemonSet(spec *v1alpha1.DaemonSetSignal) gate.Signal {
	return daemonSet{namespace: spec.Namespace, name: spec.Name}
}

func (s daemonSet) find(sets *gate.DaemonSets) *gate.DaemonSet {
	if sets == nil {
		return nil
	}
	i := slices.IndexFunc(sets.Items, func(ds gate.DaemonSet) bool { return ds.Namespace == s.namespace && ds.Name == s.name })
	if i < 0 {
		return nil
	}
	return &sets.Items[i]
}

// Read implements gate.Signal.
func (s daemonSet) Read(in gate.Input) gate.Reading {
	subject := s.namespace + "/" + s.name
	if in.DaemonSets == nil || !in.DaemonSets.Observed[s.namespace] {
		return gate.Reading{Reason: v1alpha1.ReadingNotObserved, Subject: "DaemonSet " + subject}
	}
	ds := s.find(in.DaemonSets)
	if ds == nil {
		return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingDaemonSetNotFound, Subject: subject}
	}
	r := readDaemon(ds, in)
	if r.State == gate.NotYet && r.Reason == v1alpha1.ReadingPodMissing && !belongs(ds, in) {
		r.Reason, r.Rollout = v1alpha1.ReadingDaemonSetNotEligible, false
	}
	return r
}

// Evidence implements gate.Signal.
func (s daemonSet) Evidence(f *gate.Facts) ([]gate.Pod, bool) {
	if f.DaemonSets == nil || !f.DaemonSets.Observed[s.namespace] {
		return nil, false
	}
	ds := s.find(f.DaemonSets)
	if ds == nil {
		return nil, true
	}
	return ownPods(ds, f)
}

// ownPods returns a DaemonSet's pods on the node.
func ownPods(ds *gate.DaemonSet, f *gate.Facts) ([]gate.Pod, bool) {
	all, observed := f.Pods[ds.Pods]
	var own []gate.Pod
	for _, p := range all {
		if p.Owner == ds.UID {
			own = append(own, p)
		}
	}
	return own, observed
}

// ProvesBoot implements gate.Signal.
func (daemonSet) ProvesBoot() bool { return true }

// Needs implements gate.Signal.
func (s daemonSet) Needs(sets *gate.DaemonSets) gate.Needs {
	n := gate.Needs{DaemonSetNamespaces: []string{s.namespace}}
	if ds := s.find(sets); ds != nil {
		n.Pods = []gate.PodQuery{ds.Pods}
	}
	return n
}

// latest returns the later of two times.
func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
