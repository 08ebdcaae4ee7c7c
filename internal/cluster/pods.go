// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/internal/gate"
)

// podFact is a Pod, and where it is.
type podFact struct {
	node string
	gate.Pod
}

// podSet keeps the pods of one query by node.
type podSet struct {
	// changed is called, without locks, with a node whose pods have changed.
	changed func(node string)
	intern  *interner
	// mark is the key of the annotation that marks pods as ready; empty for none.
	mark string

	mu sync.RWMutex
	// byNode has the pods of each node, sorted by name. The slices are
	// immutable: decisions share them.
	byNode map[string][]gate.Pod
	// nodeOf has the node of each pod, by the pod's name.
	nodeOf map[string]string
}

var _ sink[*podFact] = (*podSet)(nil)

func newPodSet(changed func(string), intern *interner, mark string) *podSet {
	return &podSet{changed: changed, intern: intern, mark: mark, byNode: make(map[string][]gate.Pod), nodeOf: make(map[string]string)}
}

// on returns the pods of a node.
func (s *podSet) on(node string) []gate.Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byNode[node]
}

// put implements sink. A pod of the same name may have been deleted on another
// node unseen.
func (s *podSet) put(p *podFact) {
	s.mu.Lock()
	before, known := s.nodeOf[p.Name]
	left := known && before != p.node && s.take(before, p.Name)
	changed := p.node != "" && s.add(p)
	s.mu.Unlock()
	if left {
		s.changed(before)
	}
	if changed {
		s.changed(p.node)
	}
}

// drop implements sink.
func (s *podSet) drop(p *podFact) {
	s.mu.Lock()
	node, known := s.nodeOf[p.Name]
	changed := known && s.take(node, p.Name)
	s.mu.Unlock()
	if changed {
		s.changed(node)
	}
}

// replace implements sink. It tells of no node: what was known before counted
// as unknown while it was read anew, so that all nodes are looked at.
func (s *podSet) replace(pods []*podFact) {
	byNode := make(map[string][]gate.Pod)
	nodeOf := make(map[string]string, len(pods))
	for _, p := range pods {
		if p.node != "" {
			byNode[p.node] = append(byNode[p.node], p.Pod)
			nodeOf[p.Name] = p.node
		}
	}
	for _, pods := range byNode {
		slices.SortFunc(pods, byPodName)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byNode, s.nodeOf = byNode, nodeOf
}

// add puts a pod on its node. It is false if it was there already, the same.
func (s *podSet) add(p *podFact) bool {
	pods := s.byNode[p.node]
	i, there := slices.BinarySearchFunc(pods, p.Pod, byPodName)
	if there && pods[i] == p.Pod {
		return false
	}
	changed := make([]gate.Pod, 0, len(pods)+1)
	changed = append(changed, pods[:i]...)
	changed = append(changed, p.Pod)
	if there {
		i++
	}
	s.byNode[p.node] = append(changed, pods[i:]...)
	s.nodeOf[p.Name] = p.node
	return true
}

// take takes a pod off a node. It is false if it was not there.
func (s *podSet) take(node, name string) bool {
	pods := s.byNode[node]
	i, there := slices.BinarySearchFunc(pods, gate.Pod{Name: name}, byPodName)
	delete(s.nodeOf, name)
	switch {
	case !there:
		return false
	case len(pods) == 1:
		delete(s.byNode, node)
	default:
		s.byNode[node] = slices.Concat(pods[:i], pods[i+1:])
	}
	return true
}

// podName is what a pod is called: wherever it is told of, and by every set.
func podName(o *corev1.Pod) string { return o.Namespace + "/" + o.Name }

func byPodName(a, b gate.Pod) int { return cmp.Compare(a.Name, b.Name) }

// convert makes a Pod into a fact.
func (s *podSet) convert(o *corev1.Pod) *podFact {
	p := &podFact{node: s.intern.text(o.Spec.NodeName), Pod: gate.Pod{
		UID:         o.UID,
		Name:        podName(o),
		Created:     instant(o.CreationTimestamp),
		Finished:    o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed,
		Incarnation: incarnation(o),
	}}
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		p.Owner = internUID(s.intern, owner.UID)
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
