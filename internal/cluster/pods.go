// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/internal/cluster/packed"
	"github.com/nodegate/nodegate/internal/gate"
)

// podFact is a Pod, and where it is.
type podFact struct {
	node string
	packed.Pod
}

// podSet keeps the pods of one query by node.
type podSet struct {
	// changed is called, without locks, with a node whose pods have changed.
	changed func(node string)
	nodes   *nodeStore
	// mark is the key of the annotation that marks pods as ready; empty for none.
	mark string

	mu   sync.RWMutex
	pods *packed.PodSet
}

var (
	_ sink[podFact]     = (*podSet)(nil)
	_ gatherer[podFact] = (*podSet)(nil)
)

func newPodSet(changed func(string), nodes *nodeStore, mark string) *podSet {
	return &podSet{changed: changed, nodes: nodes, mark: mark, pods: packed.NewPodSet(nodes.packer)}
}

// on returns the pods of a node, sorted by name. The slice is the caller's.
func (s *podSet) on(node string) []gate.Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.pods.On(node)
}

// put implements sink. A pod of the same name may have been deleted on another
// node unseen.
func (s *podSet) put(p podFact) {
	s.mu.Lock()
	left, changed := s.pods.Put(p.node, p.Pod)
	s.mu.Unlock()
	if left != "" {
		s.changed(left)
	}
	if changed {
		s.changed(p.node)
	}
}

// drop implements sink.
func (s *podSet) drop(p podFact) { s.dropName(p.node, p.Name()) }

// dropName drops the pod of a name.
func (s *podSet) dropName(node, name string) {
	s.mu.Lock()
	left := s.pods.Drop(node, name)
	s.mu.Unlock()
	if left != "" {
		s.changed(left)
	}
}

// replace implements sink. It tells of no node: what was known before counted
// as unknown while it was read anew, so that all nodes are looked at.
func (s *podSet) replace(pods []podFact) {
	add, done := s.gather()
	for _, p := range pods {
		add(p)
	}
	done()
}

// gather implements gatherer.
func (s *podSet) gather() (add func(podFact), done func()) {
	all := packed.NewPodSet(s.nodes.packer)
	add = func(p podFact) {
		if p.node != "" {
			all.Add(p.node, p.Pod)
		}
	}
	return add, func() {
		all.Sort()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pods = all
	}
}

// podName is what a pod is called: wherever it is told of, and by every set.
func podName(o *corev1.Pod) string { return o.Namespace + "/" + o.Name }

// convert makes a Pod into a fact to be kept.
func (s *podSet) convert(o *corev1.Pod) podFact {
	facts := s.describe(o)
	fact := podFact{Pod: s.nodes.packer.Pod(&facts)}
	if o.Spec.NodeName != "" {
		fact.node = s.nodes.nameOf(o.Spec.NodeName)
	}
	return fact
}

// describe makes a Pod into facts.
func (s *podSet) describe(o *corev1.Pod) gate.Pod {
	p := gate.Pod{
		UID:         o.UID,
		Name:        podName(o),
		Created:     instant(o.CreationTimestamp),
		Finished:    o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed,
		Incarnation: incarnation(o),
	}
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		p.Owner = owner.UID
	}
	_, p.Mirror = o.Annotations[corev1.MirrorPodAnnotationKey]
	for i := range o.Status.Conditions {
		if c := &o.Status.Conditions[i]; c.Type == corev1.PodReady {
			p.Ready, p.ReadySince = c.Status == corev1.ConditionTrue, instant(c.LastTransitionTime)
		}
	}
	if s.mark != "" {
		p.MarkedSince = markedSince(o, s.mark)
	}
	if o.DeletionTimestamp != nil {
		p.Terminating, p.TerminatingSince = true, instant(deletionAsked(o))
	}
	return p
}

// deletionAsked is when the pod's deletion was asked for. Its deletion
// timestamp is when the grace period ends.
func deletionAsked(o *corev1.Pod) metav1.Time {
	asked := o.DeletionTimestamp.Time
	if grace := o.DeletionGracePeriodSeconds; grace != nil {
		asked = asked.Add(-seconds(*grace))
	}
	return metav1.NewTime(asked)
}

// incarnation identifies the pod's present containers. The order in which the
// kubelet lists them says nothing.
func incarnation(o *corev1.Pod) gate.Incarnation {
	var few [8]string // most pods have no more; keeps them off the heap
	ids := few[:0]
	for i := range o.Status.ContainerStatuses {
		ids = append(ids, o.Status.ContainerStatuses[i].ContainerID)
	}
	slices.Sort(ids)
	return gate.NewIncarnation(o.UID, ids)
}
