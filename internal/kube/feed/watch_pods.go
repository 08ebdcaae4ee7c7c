// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// podWatchesMax is the maximum number of watches of pods in a namespace, not counting a
// shared one. If there are few queries, each has a watch of its own, so that no other
// pods are transferred. But a daemonSets signal may select hundreds. When there are more
// queries than podWatchesMax, one watch of all pods in the namespace serves all queries
// that exist then. When half as many are left, each gets a watch of its own again.
const podWatchesMax = 32

// sharingChanges returns the namespaces whose queries must share one watch from now on
// (true), or must have watches of their own again (false). Other namespaces do not
// change.
func sharingChanges(before map[gate.PodQuery]*podFeed, needed map[gate.PodQuery]bool) map[string]bool {
	own, shared := make(map[string]int), make(map[string]int)
	for query := range needed {
		if feed := before[query]; feed != nil && feed.shared {
			shared[query.Namespace]++
		} else {
			own[query.Namespace]++
		}
	}
	out := make(map[string]bool)
	for namespace, count := range own {
		if count > podWatchesMax {
			out[namespace] = true
		}
	}
	for namespace, count := range shared {
		if count+own[namespace] <= podWatchesMax/2 {
			out[namespace] = false
		}
	}
	return out
}

// startSharedPods starts one watch for all needed queries of a namespace. Queries whose
// selector cannot be parsed are left out; the API server will reject them.
func (f *Feed) startSharedPods(ctx context.Context, namespace string, needed map[gate.PodQuery]bool, into map[gate.PodQuery]*podFeed) {
	r := f.newRunning(SharedPodsName(namespace))
	r.LiveChanged = f.handler.GatesChanged
	var sets []SharedSet
	for query := range needed {
		selector, err := labels.Parse(query.Selector)
		if query.Namespace != namespace || err != nil {
			continue
		}
		pods := NewPods(f.notifier(gate.Aspect{Kind: gate.AspectPods, Pods: query}), f.nodes, query)
		sets = append(sets, SharedSet{Selector: selector, Pods: pods})
		into[query] = &podFeed{running: r, pods: pods, shared: true}
	}
	shared := NewSharedPods(sets)
	all := shared.Query()
	all.Namespace = namespace
	in := &reflector.Reflector[*corev1.Pod, *SharedPod]{Observer: r.Observer, Sink: shared, Convert: shared.Convert}
	f.start(ctx, r, func(ctx context.Context) { in.Run(ctx, f.sources.pods(all), &corev1.Pod{}) })
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

// readyPods returns the pods on a node that are known to be ready, or to have run, for all queries. It is
// called with the lock of Nodes held: Pods take no other lock while they hold theirs.
func (f *Feed) readyPods(node string) []gate.Incarnation {
	var all []gate.Incarnation
	for _, feed := range *f.podFeeds.Load() {
		for _, p := range feed.pods.On(node) {
			if p.Ready || p.Run != (gate.Run{}) {
				all = append(all, p.Incarnation)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// podFeed observes the pods of one query.
type podFeed struct {
	*running
	pods *Pods
	// shared reports whether other queries use the same watch.
	shared bool
}

func (f *Feed) adjustPods(ctx context.Context, needed map[gate.PodQuery]bool) {
	before := *f.podFeeds.Load()
	after := make(map[gate.PodQuery]*podFeed, len(needed))
	changes := sharingChanges(before, needed)
	for namespace, share := range changes {
		if share {
			f.startSharedPods(ctx, namespace, needed, after)
		}
	}
	for query := range needed {
		feed := before[query]
		if _, changes := changes[query.Namespace]; changes && feed != nil && feed.shared {
			feed = nil
		}
		switch {
		case after[query] != nil:
		case feed != nil:
			after[query] = feed
		default:
			after[query] = f.startPods(ctx, query)
		}
	}
	f.podFeeds.Store(&after)
	used := make(map[*running]bool, len(after))
	for _, feed := range after {
		used[feed.running] = true
	}
	for _, feed := range before {
		if !used[feed.running] {
			feed.stop()
		}
	}
}

func (f *Feed) startPods(ctx context.Context, query gate.PodQuery) *podFeed {
	notify := f.notifier(gate.Aspect{Kind: gate.AspectPods, Pods: query})
	feed := &podFeed{running: f.newRunning(PodsName(query)), pods: NewPods(notify, f.nodes, query)}
	feed.LiveChanged = f.handler.GatesChanged
	in := &reflector.Reflector[*corev1.Pod, Pod]{Observer: feed.Observer, Sink: feed.pods, Convert: feed.pods.Convert}
	f.start(ctx, feed.running, func(ctx context.Context) { in.Run(ctx, f.sources.pods(query), &corev1.Pod{}) })
	return feed
}
