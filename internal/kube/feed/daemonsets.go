// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// DaemonSet contains the facts about a DaemonSet, and what is needed to detect changes.
type DaemonSet struct {
	// generation changes with the spec and everything that is derived from it.
	generation int64
	gate.DaemonSet
}

// same reports whether two states differ at most in RollingOut.
func (f *DaemonSet) same(other *DaemonSet) bool {
	return f.UID == other.UID && f.generation == other.generation && f.Deleting == other.Deleting && maps.Equal(f.Labels, other.Labels)
}

// daemonSets stores the DaemonSets of the needed namespaces, as an immutable snapshot.
type daemonSets struct {
	// changed is called, without locks, when the snapshot has changed.
	changed  func()
	snapshot atomic.Pointer[gate.DaemonSets]

	mu         sync.Mutex
	namespaces map[string]*daemonSetNamespace
}

// daemonSetNamespace stores the DaemonSets of one namespace.
type daemonSetNamespace struct {
	// live reports whether the DaemonSets are being kept up to date.
	live  func() bool
	store *daemonSets
	name  string
	// byName is guarded by store.mu.
	byName map[string]*DaemonSet
}

var _ reflector.Sink[*DaemonSet] = (*daemonSetNamespace)(nil)

// newDaemonSets returns DaemonSets without namespaces.
func newDaemonSets(changed func()) *daemonSets {
	s := &daemonSets{changed: changed, namespaces: make(map[string]*daemonSetNamespace)}
	s.snapshot.Store(&gate.DaemonSets{Observed: make(map[string]bool)})
	return s
}

// newDaemonSetNamespace returns the store of a namespace. live reports whether its feed
// is live.
func newDaemonSetNamespace(name string, s *daemonSets, live func() bool) *daemonSetNamespace {
	return &daemonSetNamespace{live: live, store: s, name: name, byName: make(map[string]*DaemonSet)}
}

// add adds a namespace to the snapshot, or replaces it.
func (s *daemonSets) add(f *daemonSetNamespace) {
	s.update(func() effect { s.namespaces[f.name] = f; return noEffect })
}

// remove removes namespaces from the snapshot, unless they have been replaced.
func (s *daemonSets) remove(all []*daemonSetNamespace) {
	s.update(func() effect {
		for _, f := range all {
			if s.namespaces[f.name] == f {
				delete(s.namespaces, f.name)
			}
		}
		if len(all) == 0 {
			return noEffect
		}
		return announce
	})
}

// effect is the effect of a change on the snapshot and on those who use it.
type effect int

const (
	noEffect effect = iota
	// updateSnapshot takes a new snapshot without announcing it. It is the effect of the
	// beginning and the end of a rollout, which only matter for changes of pods, and
	// these announce themselves. A DaemonSet also seems to roll out briefly when a node
	// joins, for which all nodes would be evaluated.
	updateSnapshot
	announce
)

// update applies a change, and takes and announces a new snapshot if the change requires
// it.
func (s *daemonSets) update(change func() effect) {
	s.mu.Lock()
	n := change()
	if n != noEffect {
		s.snapshot.Store(s.take())
	}
	s.mu.Unlock()
	if n == announce {
		s.changed()
	}
}

// take returns a new snapshot. The DaemonSets of a namespace that is not live are listed,
// because they determine which pods must be observed, but count as unobserved.
func (s *daemonSets) take() *gate.DaemonSets {
	sets := &gate.DaemonSets{Observed: make(map[string]bool, len(s.namespaces))}
	for name, n := range s.namespaces {
		if n.live() {
			sets.Observed[name] = true
		}
		for _, f := range n.byName {
			sets.Items = append(sets.Items, f.DaemonSet)
		}
	}
	slices.SortFunc(sets.Items, ByNamespaceAndName)
	return sets
}

// ByNamespaceAndName compares DaemonSets by namespace and name.
func ByNamespaceAndName(a, b gate.DaemonSet) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Put implements reflector.Sink.
func (f *daemonSetNamespace) Put(ds *DaemonSet) {
	f.store.update(func() effect {
		old, known := f.byName[ds.Name]
		f.byName[ds.Name] = ds
		switch {
		case !known || !old.same(ds):
			return announce
		case old.RollingOut != ds.RollingOut:
			return updateSnapshot
		}
		return noEffect
	})
}

// Drop implements reflector.Sink.
func (f *daemonSetNamespace) Drop(ds *DaemonSet) {
	f.store.update(func() effect {
		if _, known := f.byName[ds.Name]; !known {
			return noEffect
		}
		delete(f.byName, ds.Name)
		return announce
	})
}

// Replace implements reflector.Sink. It does not announce the change, because liveChanged
// will be called next.
func (f *daemonSetNamespace) Replace(all []*DaemonSet) {
	f.store.update(func() effect {
		f.byName = make(map[string]*DaemonSet, len(all))
		for _, ds := range all {
			f.byName[ds.Name] = ds
		}
		return noEffect
	})
}

// liveChanged is called when the feed has become live or has ceased to be.
func (f *daemonSetNamespace) liveChanged() {
	f.store.update(func() effect {
		if f.store.namespaces[f.name] != f {
			return noEffect // the feed has been stopped
		}
		return announce
	})
}

// NewDaemonSet returns the facts about a DaemonSet.
func NewDaemonSet(o *appsv1.DaemonSet) *DaemonSet {
	template := &o.Spec.Template.Spec
	return &DaemonSet{generation: o.Generation, DaemonSet: gate.DaemonSet{
		Namespace:   o.Namespace,
		Name:        o.Name,
		UID:         o.UID,
		Labels:      o.Labels,
		Pods:        podQuery(o),
		PodLabels:   o.Spec.Template.Labels,
		NodeName:    template.NodeName,
		Affinity:    nodeaffinity.NewRequiredNodeAffinity(template.NodeSelector, template.Affinity),
		Tolerations: tolerations(template),
		Unprobed:    unprobed(template),
		RollingOut:  rollingOut(o),
		Deleting:    o.DeletionTimestamp != nil,
		Surges:      surges(o),
	}}
}

// unprobed reports whether the pods are ready as soon as their containers run.
func unprobed(template *corev1.PodSpec) bool {
	probed := func(c corev1.Container) bool { return c.ReadinessProbe != nil || c.StartupProbe != nil }
	// Only init containers that are sidecars may have these probes.
	return len(template.ReadinessGates) == 0 && !slices.ContainsFunc(template.Containers, probed) && !slices.ContainsFunc(template.InitContainers, probed)
}

// rollingOut reports whether the DaemonSet controller is replacing pods. With OnDelete it
// never does so by itself, and not at all if the DaemonSet is being deleted.
func rollingOut(o *appsv1.DaemonSet) bool {
	return o.DeletionTimestamp == nil && o.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType &&
		(o.Generation != o.Status.ObservedGeneration || o.Status.UpdatedNumberScheduled < o.Status.DesiredNumberScheduled)
}

// surges reports whether the DaemonSet controller may run two pods on a node while it
// replaces one by the other.
func surges(o *appsv1.DaemonSet) bool {
	rolling := o.Spec.UpdateStrategy.RollingUpdate
	if o.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType || rolling == nil || rolling.MaxSurge == nil {
		return false
	}
	count, err := intstr.GetScaledValueFromIntOrPercent(rolling.MaxSurge, 1, true)
	return err == nil && count > 0
}

// podQuery returns the query for a DaemonSet's pods. The API server does not accept an
// empty or invalid selector. As text, such a selector would select every pod, so it is
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

// daemonTolerations are the tolerations that the DaemonSet controller adds to every pod
// (AddOrUpdateDaemonPodTolerations in its util package).
var daemonTolerations = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodePIDPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
}

// hostNetworkToleration is the toleration that it adds to pods on the host's network.
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
