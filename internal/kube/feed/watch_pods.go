// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// startSharedPods starts one watch for all needed queries of a namespace, or of all
// namespaces. Queries whose selector cannot be parsed are left out; the API server will
// reject them.
func (f *Feed) startSharedPods(ctx context.Context, namespace string, needed map[gate.PodQuery]bool, into map[gate.PodQuery]*podFeed) {
	r := f.newRunning(SharedPodsName(namespace))
	r.Shared, r.Group = true, namespace
	sets := make(map[string][]SharedSet)
	all := gate.PodQuery{Namespace: namespace}
	for query := range needed {
		selector, err := labels.Parse(query.Selector)
		if f.podGroup(query) != namespace || err != nil {
			continue
		}
		pods := NewPods(f.notifier(gate.Aspect{Kind: gate.AspectPods, Pods: query}), f.nodes, query)
		sets[query.Namespace] = append(sets[query.Namespace], SharedSet{Selector: selector, Pods: pods})
		into[query] = &podFeed{running: r, pods: pods}
		// One query that needs more of the pods is enough (see clients.FactClients).
		all.Annotation, all.Runs = cmp.Or(query.Annotation, all.Annotation), all.Runs || query.Runs
	}
	if len(sets) == 0 {
		return // no feed would use the watch, so nothing would stop it
	}
	sinks := make(reflector.ByOrigin[*SharedPod, *SharedPods], len(sets))
	for of, sets := range sets {
		sinks[of] = NewSharedPods(sets)
	}
	start(ctx, f, r, f.sources.pods(all), &corev1.Pod{}, sinks, reflector.Converter(sinks, (*corev1.Pod).GetNamespace, (*SharedPods).Convert))
}

// fill adds the query's pods on a node to its facts, if the feed is live.
func (f *podFeed) fill(facts *gate.Facts, query gate.PodQuery) {
	if !f.IsLive() {
		return
	}
	if at := f.KnownAt(); facts.PodsAt.IsZero() || at.Before(facts.PodsAt) {
		facts.PodsAt = at
	}
	facts.Pods[query] = f.pods.On(facts.Node.Name)
}

// knownPods returns what is known of the pods on a node, for all queries (see gate.Boot). It is called
// with the lock of Nodes held: Pods take no other lock while they hold theirs.
func (f *Feed) knownPods(node string) []gate.Incarnation {
	var all []gate.Incarnation
	for _, feed := range *f.podFeeds.Load() {
		pods := feed.pods.On(node)
		for i := range pods {
			all = pods[i].AppendKnown(all)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// podFeed observes the pods of one query.
type podFeed struct {
	*running
	pods *Pods
}

func (f *Feed) adjustPods(ctx context.Context, needed map[gate.PodQuery]bool) {
	namespaces := make(map[string]bool)
	for query := range needed {
		namespaces[query.Namespace] = true
	}
	f.manyNamespaces = len(namespaces) > reflector.WatchesMax || f.manyNamespaces && len(namespaces) > reflector.WatchesMax/2
	before := *f.podFeeds.Load()
	after := reflector.AdjustFeeds(before, needed, f.podGroup,
		func(query gate.PodQuery) *podFeed { return f.startPods(ctx, query) },
		func(namespace string, into map[gate.PodQuery]*podFeed) {
			f.startSharedPods(ctx, namespace, needed, into)
		})
	f.podFeeds.Store(&after)
	reflector.StopUnused(before, after)
}

// podGroup returns the namespace whose queries may share a watch.
func (f *Feed) podGroup(q gate.PodQuery) string {
	if f.manyNamespaces {
		return metav1.NamespaceAll
	}
	return q.Namespace
}

func (f *Feed) startPods(ctx context.Context, query gate.PodQuery) *podFeed {
	notify := f.notifier(gate.Aspect{Kind: gate.AspectPods, Pods: query})
	feed := &podFeed{running: f.newRunning(PodsName(query)), pods: NewPods(notify, f.nodes, query)}
	start(ctx, f, feed.running, f.sources.pods(query), &corev1.Pod{}, feed.pods, feed.pods.Convert)
	return feed
}
