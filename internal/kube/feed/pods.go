// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/clients"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
	"github.com/nodegate/nodegate/internal/kube/packed"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// Pod contains the packed facts about a Pod, and its node.
type Pod struct {
	node string
	packed.Pod
}

// Pods stores the pods of one query by node.
type Pods struct {
	// changed is called, without locks, with the name of a node whose pods have changed.
	changed func(node string)
	nodes   *nodestore.Store
	// query determines which facts about the pods are stored.
	query gate.PodQuery

	mu   sync.RWMutex
	pods *packed.PodSet
}

var (
	_ reflector.Sink[Pod]     = (*Pods)(nil)
	_ reflector.Gatherer[Pod] = (*Pods)(nil)
)

// NewPods returns an empty Pods for the pods of a query.
func NewPods(changed func(string), nodes *nodestore.Store, query gate.PodQuery) *Pods {
	return &Pods{changed: changed, nodes: nodes, query: query, pods: packed.NewPodSet(nodes.Packer)}
}

// On returns the pods of a node, sorted by name. The caller may modify the slice.
func (s *Pods) On(node string) []gate.Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.pods.On(node)
}

// Put implements reflector.Sink. A pod of the same name on another node, whose deletion
// was missed, is removed.
func (s *Pods) Put(p Pod) {
	s.mu.Lock()
	movedFrom, changed := s.pods.Put(p.node, p.Pod)
	s.mu.Unlock()
	if movedFrom != "" {
		s.changed(movedFrom)
	}
	if changed {
		s.changed(p.node)
	}
}

// Drop implements reflector.Sink.
func (s *Pods) Drop(p Pod) { s.dropName(p.node, p.Name()) }

// dropName drops the pod with a name.
func (s *Pods) dropName(node, name string) {
	s.mu.Lock()
	from := s.pods.Drop(node, name)
	s.mu.Unlock()
	if from != "" {
		s.changed(from)
	}
}

// Replace implements reflector.Sink. It does not call changed: while the pods are listed
// they count as unknown, and afterwards all nodes are evaluated.
func (s *Pods) Replace(pods []Pod) {
	add, done := s.Gather()
	for _, p := range pods {
		add(p)
	}
	done()
}

// Gather implements reflector.Gatherer.
func (s *Pods) Gather() (add func(Pod), done func()) {
	all := packed.NewPodSet(s.nodes.Packer)
	add = func(p Pod) {
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

// podName returns the name of a pod in all sets and events.
func podName(o *corev1.Pod) string { return o.Namespace + "/" + o.Name }

// Convert returns the packed facts about a Pod.
func (s *Pods) Convert(o *corev1.Pod) Pod {
	facts := s.describe(o)
	fact := Pod{Pod: s.nodes.Packer.Pod(&facts)}
	if o.Spec.NodeName != "" {
		fact.node = s.nodes.NameOf(o.Spec.NodeName)
	}
	return fact
}

// describe returns the facts about a Pod.
func (s *Pods) describe(o *corev1.Pod) gate.Pod {
	p := gate.Pod{
		UID:         o.UID,
		Name:        podName(o),
		Created:     clients.Instant(o.CreationTimestamp),
		Finished:    o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed,
		Incarnation: incarnation(o),
	}
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		p.Owner = owner.UID
	}
	_, p.Mirror = o.Annotations[corev1.MirrorPodAnnotationKey]
	p.Unlabelled = o.Labels[appsv1.ControllerRevisionHashLabelKey] == "" || o.Labels[v1alpha1.DaemonPodLabel] == ""
	for i := range o.Status.Conditions {
		if c := &o.Status.Conditions[i]; c.Type == corev1.PodReady {
			p.Ready, p.ReadySince = c.Status == corev1.ConditionTrue, clients.Instant(c.LastTransitionTime)
		}
	}
	if s.query.Annotation != "" {
		p.MarkedSince = markedSince(o, s.query.Annotation)
	}
	if s.query.Runs {
		p.Run = run(o)
	}
	if o.DeletionTimestamp != nil {
		p.Terminating, p.TerminatingSince = true, clients.Instant(deletionRequested(o))
	}
	return p
}

// deletionRequested returns when the pod's deletion was requested. Its deletion timestamp
// is the end of the grace period.
func deletionRequested(o *corev1.Pod) metav1.Time {
	requested := o.DeletionTimestamp.Time
	if grace := o.DeletionGracePeriodSeconds; grace != nil {
		requested = requested.Add(-time.Duration(*grace) * time.Second)
	}
	return metav1.NewTime(requested)
}

// incarnation identifies the pod's current containers. It does not depend on the order in
// which the kubelet lists them.
func incarnation(o *corev1.Pod) gate.Incarnation {
	var few [8]string // enough for most pods; keeps ids off the heap
	ids := few[:0]
	for i := range o.Status.ContainerStatuses {
		ids = append(ids, o.Status.ContainerStatuses[i].ContainerID)
	}
	slices.Sort(ids)
	return gate.NewIncarnation(o.UID, ids)
}
