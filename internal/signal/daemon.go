// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"cmp"
	"slices"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// readDaemon reads whether a DaemonSet has a pod on the node that has been ready for
// long enough. If its rollout surges, one of its pods is sufficient. Otherwise, only
// the pod that the DaemonSet controller keeps counts.
func readDaemon(ds *gate.DaemonSet, minReady time.Duration, in gate.Input) gate.Reading {
	pods, observed := in.Pods[ds.Pods]
	if !observed {
		return gate.Reading{Reason: v1alpha1.ReadingNotObserved, Subject: ds.String()}
	}
	best := gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingPodMissing, Rollout: ds.RollingOut}
	notByDaemonSet := ""
	for i := range pods {
		switch p := &pods[i]; {
		case p.Owner != ds.UID || !counts(p):
		case p.Unlabelled:
			notByDaemonSet = p.Name
		case ds.Surges || !excess(p, pods, in.Node.Created):
			best = either(best, readOwnPod(ds, p, minReady, in))
		}
	}
	best.Alternative = ds.Surges
	if best.State == gate.Holds {
		return best
	}
	return explainDaemon(ds, best, notByDaemonSet, in)
}

// explainDaemon returns the best reading of a DaemonSet's pods with the reason why the
// DaemonSet controller does not create the pod that is missing, if that is known.
// notByDaemonSet is a pod that the DaemonSet owns although its controller did not create it.
func explainDaemon(ds *gate.DaemonSet, best gate.Reading, notByDaemonSet string, in gate.Input) gate.Reading {
	missing := best.Reason == v1alpha1.ReadingPodMissing
	awaitsPod := missing || best.Reason == v1alpha1.ReadingPodTerminating
	switch deadlock := deadlocked(ds, in.Taint); {
	case awaitsPod && ds.Deleting:
		best.Reason, best.Subject = v1alpha1.ReadingDaemonSetBeingDeleted, ds.String()
	case awaitsPod && deadlock.Reason != "":
		best.Reason, best.Subject = deadlock.Reason, deadlock.Subject
	case missing && notByDaemonSet != "":
		best.Reason, best.Subject = v1alpha1.ReadingPodNotByDaemonSet, notByDaemonSet
	case missing:
		best.Subject = ds.String()
	}
	return best
}

// readOwnPod reads whether a pod of the DaemonSet has been ready for long enough.
func readOwnPod(ds *gate.DaemonSet, p *gate.Pod, minReady time.Duration, in gate.Input) gate.Reading {
	r := requireReadyFor(readPod(p, in), p, minReady, in.Now)
	r.Rollout = ds.RollingOut && replaced(r.Reason, p)
	return r
}

// excess reports whether the DaemonSet controller will delete a pod because its
// DaemonSet has an older one on the node. The DaemonSet controller uses the same order.
// Pods of a former Node of the same name do not count, because they are being deleted
// and replace no pod.
func excess(p *gate.Pod, pods []gate.Pod, node time.Time) bool {
	return !p.Terminating && slices.ContainsFunc(pods, func(other gate.Pod) bool {
		return other.Owner == p.Owner && counts(&other) && !other.Unlabelled && !other.Terminating && !other.Created.Before(node) &&
			cmp.Or(other.Created.Compare(p.Created), cmp.Compare(other.Name, p.Name)) < 0
	})
}

// placement returns the parts of a node on which the DaemonSet controller bases the
// placement of pods.
func placement(in gate.Input) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: in.Node.Name, Labels: in.Node.Labels}}
}

// Belongs reports whether the DaemonSet should run on the node, now or when transient
// taints have been removed. It reads only the node's name and labels, the gate's taints, and
// the lasting taints.
func Belongs(ds *gate.DaemonSet, in gate.Input) bool { return belongs(ds, placement(in), in) }

// belongs is Belongs with the placement of the node. If the DaemonSet's affinity is invalid,
// the DaemonSet controller cannot place it either.
func belongs(ds *gate.DaemonSet, node *corev1.Node, in gate.Input) bool {
	if ds.NodeName != "" && ds.NodeName != node.Name {
		return false
	}
	if match, err := ds.Affinity.Match(node); err != nil || !match {
		return false
	}
	for _, t := range in.Lasting {
		own := t.Key == in.Taint.Key || t.Key == in.OtherTaint.Key
		if !own && !tolerates(ds, t) {
			return false
		}
	}
	return true
}

func tolerates(ds *gate.DaemonSet, taint corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectPreferNoSchedule || gate.Tolerates(ds.Tolerations, taint)
}

// deadlocked returns a reading that the DaemonSet does not tolerate one of these taints
// of the gate that waits for it, or Holds without a reason.
func deadlocked(ds *gate.DaemonSet, taints ...v1alpha1.Taint) gate.Reading {
	for _, t := range taints {
		if !tolerates(ds, t.Core()) {
			subject := ds.String() + " does not tolerate " + gate.TaintText(t)
			return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingDaemonDoesNotTolerateGate, Subject: subject}
		}
	}
	return gate.Reading{State: gate.Holds}
}

// daemonSet holds when one DaemonSet has a ready pod on the node.
type daemonSet struct {
	namespace, name string
	// subject is the subject of readings.
	subject string
	// minReady is how long the pod must have been ready.
	minReady time.Duration
}

func newDaemonSet(spec *v1alpha1.DaemonSetSignal) gate.Signal {
	return daemonSet{
		namespace: spec.Namespace, name: spec.Name, subject: spec.Namespace + "/" + spec.Name,
		minReady: time.Duration(spec.MinReadySeconds) * time.Second,
	}
}

func (s daemonSet) find(sets *gate.DaemonSets) *gate.DaemonSet {
	if sets == nil {
		return nil
	}
	i, found := sort.Find(len(sets.Items), func(i int) int {
		ds := &sets.Items[i]
		return cmp.Or(cmp.Compare(s.namespace, ds.Namespace), cmp.Compare(s.name, ds.Name))
	})
	if !found {
		return nil
	}
	return &sets.Items[i]
}

// Read implements gate.Signal.
func (s daemonSet) Read(in gate.Input) gate.Reading {
	if in.DaemonSets == nil || !in.DaemonSets.Observed[s.namespace] {
		return gate.Reading{Reason: v1alpha1.ReadingNotObserved, Subject: "DaemonSet " + s.subject}
	}
	ds := s.find(in.DaemonSets)
	if ds == nil {
		return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingDaemonSetNotFound, Subject: s.subject}
	}
	r := readDaemon(ds, s.minReady, in)
	// A toleration of the gate's taint would not help a DaemonSet that does not run on the node.
	if (r.Reason == v1alpha1.ReadingPodMissing || r.Reason == v1alpha1.ReadingDaemonDoesNotTolerateGate) && !Belongs(ds, in) {
		r.Reason, r.Subject, r.Rollout = v1alpha1.ReadingDaemonSetNotEligible, ds.String(), false
	}
	return r
}

// Evidence implements gate.Signal. While the DaemonSet does not exist, its pods are not observed: a
// DaemonSet that is deleted without its pods and created again adopts them.
func (s daemonSet) Evidence(f *gate.Facts) ([]gate.Pod, bool) {
	ds := s.find(f.DaemonSets)
	if ds == nil || !f.DaemonSets.Observed[s.namespace] {
		return nil, false
	}
	return ownPods(ds, f)
}

// missing reports whether the signal's DaemonSet is known not to exist.
func (s daemonSet) missing(sets *gate.DaemonSets) bool {
	return sets != nil && sets.Observed[s.namespace] && s.find(sets) == nil
}

// ownPods returns the pods on the node that a DaemonSet owns and that its controller
// created.
func ownPods(ds *gate.DaemonSet, f *gate.Facts) ([]gate.Pod, bool) {
	all, observed := f.Pods[ds.Pods]
	var own []gate.Pod
	for _, p := range all {
		if p.Owner == ds.UID && !p.Unlabelled {
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
