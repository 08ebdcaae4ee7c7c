// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/nodegate/nodegate/internal/gate"
)

// daemonSetFact is a DaemonSet, and what tells whether it is still the same.
type daemonSetFact struct {
	// generation changes with the spec, and with everything that is made of it.
	generation int64
	gate.DaemonSet
}

// same tells whether two states differ in RollingOut at most.
func (f *daemonSetFact) same(other *daemonSetFact) bool {
	return f.UID == other.UID && f.generation == other.generation && maps.Equal(f.Labels, other.Labels)
}

// daemonSetStore keeps the DaemonSets of the needed namespaces, as an
// immutable snapshot.
type daemonSetStore struct {
	// changed is called, without locks, when the snapshot has changed.
	changed  func()
	snapshot atomic.Pointer[gate.DaemonSets]

	mu    sync.Mutex
	feeds map[string]*daemonSetFeed
}

// daemonSetFeed observes one namespace.
type daemonSetFeed struct {
	*running
	store     *daemonSetStore
	namespace string
	// byName is guarded by the store's lock.
	byName map[string]*daemonSetFact
}

var _ sink[*daemonSetFact] = (*daemonSetFeed)(nil)

func newDaemonSetStore(changed func()) *daemonSetStore {
	s := &daemonSetStore{changed: changed, feeds: make(map[string]*daemonSetFeed)}
	s.snapshot.Store(&gate.DaemonSets{Observed: make(map[string]bool)})
	return s
}

// enter makes a feed part of the snapshot; leave takes it out.
func (s *daemonSetStore) enter(f *daemonSetFeed) {
	s.update(func() novelty { s.feeds[f.namespace] = f; return nothing })
}

func (s *daemonSetStore) leave(f *daemonSetFeed) {
	s.update(func() novelty { delete(s.feeds, f.namespace); return news })
}

// novelty says what a change means.
type novelty int

const (
	nothing novelty = iota
	// quiet news is not announced. That a rollout begins or ends is such: it
	// bears on what becomes of pods, and these announce themselves; while with
	// every node that joins a DaemonSet looks unfinished for a moment, and all
	// nodes would be looked at for that.
	quiet
	news
)

// update changes what is known, and takes a new snapshot if there is news.
func (s *daemonSetStore) update(change func() novelty) {
	s.mu.Lock()
	n := change()
	if n != nothing {
		s.snapshot.Store(s.take())
	}
	s.mu.Unlock()
	if n == news {
		s.changed()
	}
}

// take takes a snapshot. While a namespace's feed is not live, its DaemonSets
// count as unobserved, but are there still: they say which pods are needed,
// and these feeds must not be torn down with it.
func (s *daemonSetStore) take() *gate.DaemonSets {
	sets := &gate.DaemonSets{Observed: make(map[string]bool, len(s.feeds))}
	for namespace, feed := range s.feeds {
		if feed.isLive() {
			sets.Observed[namespace] = true
		}
		for _, f := range feed.byName {
			sets.Items = append(sets.Items, f.DaemonSet)
		}
	}
	slices.SortFunc(sets.Items, byNamespaceAndName)
	return sets
}

func byNamespaceAndName(a, b gate.DaemonSet) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// put implements sink.
func (f *daemonSetFeed) put(ds *daemonSetFact) {
	f.store.update(func() novelty {
		old, known := f.byName[ds.Name]
		f.byName[ds.Name] = ds
		switch {
		case !known || !old.same(ds):
			return news
		case old.RollingOut != ds.RollingOut:
			return quiet
		}
		return nothing
	})
}

// drop implements sink.
func (f *daemonSetFeed) drop(ds *daemonSetFact) {
	f.store.update(func() novelty {
		if _, known := f.byName[ds.Name]; !known {
			return nothing
		}
		delete(f.byName, ds.Name)
		return news
	})
}

// replace implements sink. It is no news yet: the feed becomes live next.
func (f *daemonSetFeed) replace(all []*daemonSetFact) {
	f.store.update(func() novelty {
		f.byName = make(map[string]*daemonSetFact, len(all))
		for _, ds := range all {
			f.byName[ds.Name] = ds
		}
		return nothing
	})
}

// liveChanged takes in that the feed has become live, or has ceased to be.
func (f *daemonSetFeed) liveChanged() {
	f.store.update(func() novelty {
		if f.store.feeds[f.namespace] != f {
			return nothing // it has been stopped
		}
		return news
	})
}

// newDaemonSet makes a DaemonSet into a fact.
func newDaemonSet(o *appsv1.DaemonSet) *daemonSetFact {
	template := &o.Spec.Template.Spec
	return &daemonSetFact{generation: o.Generation, DaemonSet: gate.DaemonSet{
		Namespace:   o.Namespace,
		Name:        o.Name,
		UID:         o.UID,
		Labels:      o.Labels,
		Pods:        podQuery(o),
		PodLabels:   o.Spec.Template.Labels,
		NodeName:    template.NodeName,
		Affinity:    nodeaffinity.NewRequiredNodeAffinity(template.NodeSelector, template.Affinity),
		Tolerations: tolerations(template),
		Unprobed:    !slices.ContainsFunc(template.Containers, func(c corev1.Container) bool { return c.ReadinessProbe != nil }),
		RollingOut:  rollingOut(o),
	}}
}

// rollingOut tells whether the DaemonSet controller is replacing pods. With
// OnDelete it never does by itself.
func rollingOut(o *appsv1.DaemonSet) bool {
	return o.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType &&
		(o.Generation != o.Status.ObservedGeneration || o.Status.UpdatedNumberScheduled < o.Status.DesiredNumberScheduled)
}

// podQuery finds a DaemonSet's pods. The API server lets no selector be empty
// or invalid; as text, such a selector would select every pod, so that it is
// replaced by one that selects none.
func podQuery(o *appsv1.DaemonSet) gate.PodQuery {
	q := gate.PodQuery{Namespace: o.Namespace}
	selector, err := metav1.LabelSelectorAsSelector(o.Spec.Selector)
	if err == nil {
		q.Selector = selector.String()
	}
	if q.Selector == "" {
		q.Selector = "none,!none"
	}
	return q
}

// daemonTolerations are what the DaemonSet controller adds to every pod
// (AddOrUpdateDaemonPodTolerations in its util package).
var daemonTolerations = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodePIDPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
}

// hostNetworkToleration is what it adds to those on the host's network.
var hostNetworkToleration = corev1.Toleration{
	Key: corev1.TaintNodeNetworkUnavailable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
}

func tolerations(template *corev1.PodSpec) []corev1.Toleration {
	all := slices.Concat(template.Tolerations, daemonTolerations)
	if template.HostNetwork {
		all = append(all, hostNetworkToleration)
	}
	return all
}
