// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/internal/cluster/packed"
	"github.com/nodegate/nodegate/internal/gate"
)

// What feeds are called, for people.
const (
	nodesName    = "nodes"
	gatesName    = "nodegates"
	csiNodesName = "csinodes"
)

func slicesName(driver string) string { return "resourceslices of " + driver }

func daemonSetsName(namespace string) string { return "daemonsets in " + namespace }

func podsName(q gate.PodQuery) string {
	name := "pods in " + q.Namespace + " (" + q.Selector + ")"
	if q.Annotation != "" {
		name += " with annotation " + q.Annotation
	}
	return name
}

func sharedPodsName(namespace string) string { return "pods in " + namespace }

// running is a feed that has been started.
type running struct {
	*observer
	// stop has the feed end soon. It does not wait.
	stop context.CancelFunc
}

// nodeFeed observes all Nodes, with the annotations and resources that were
// needed when it started.
type nodeFeed struct {
	*running
	count int
}

// podFeed observes the pods of one query.
type podFeed struct {
	*running
	pods *podSet
	// shared tells whether its watch is that of others, too.
	shared bool
}

// adjustFeeds starts the feeds that are needed and stops those that are not.
func (f *Feed) adjustFeeds(ctx context.Context) {
	needed := f.needed.Load()
	f.adjustNodes(ctx)
	f.adjustDaemonSets(ctx, needed.namespaces)
	f.adjustPods(ctx, needed.queries)
	f.adjustCSINodes(ctx, needed.csiNodes)
	f.adjustSlices(ctx, needed.drivers)
}

// adjustNodes starts observing Nodes, and starts over when more is needed of
// them.
func (f *Feed) adjustNodes(ctx context.Context) {
	before, count := f.nodeFeed.Load(), f.nodes.count()
	if before != nil && before.count == count {
		return
	}
	if before != nil {
		before.stop()
	}
	feed := &nodeFeed{running: f.newRunning(nodesName), count: count}
	feed.turned = f.handler.GatesChanged
	f.nodeFeed.Store(feed)
	in := &intake[*corev1.Node, *packed.Node]{
		observer: feed.observer, sink: nodeSink{nodeStore: f.nodes, count: count}, convert: f.nodes.pack,
	}
	f.start(ctx, feed.running, func(ctx context.Context) { in.run(ctx, f.sources.nodes, &corev1.Node{}) })
}

func (f *Feed) adjustDaemonSets(ctx context.Context, needed map[string]bool) {
	before := *f.daemonSetFeeds.Load()
	after := make(map[string]*daemonSetFeed, len(needed))
	for namespace := range needed {
		if after[namespace] = before[namespace]; after[namespace] == nil {
			after[namespace] = f.startDaemonSets(ctx, namespace)
		}
	}
	f.daemonSetFeeds.Store(&after)
	for namespace, feed := range before {
		if !needed[namespace] {
			feed.stop()
			f.daemonSets.leave(feed)
		}
	}
}

func (f *Feed) startDaemonSets(ctx context.Context, namespace string) *daemonSetFeed {
	feed := &daemonSetFeed{
		running: f.newRunning(daemonSetsName(namespace)), store: f.daemonSets,
		namespace: namespace, byName: make(map[string]*daemonSetFact),
	}
	feed.turned = feed.liveChanged
	f.daemonSets.enter(feed)
	in := &intake[*appsv1.DaemonSet, *daemonSetFact]{observer: feed.observer, sink: feed, convert: newDaemonSet}
	f.start(ctx, feed.running, func(ctx context.Context) {
		in.run(ctx, f.sources.daemonSets(namespace), &appsv1.DaemonSet{})
	})
	return feed
}

func (f *Feed) adjustPods(ctx context.Context, needed map[gate.PodQuery]bool) {
	before := *f.podFeeds.Load()
	after := make(map[gate.PodQuery]*podFeed, len(needed))
	turns := shares(before, needed)
	for namespace, share := range turns {
		if share {
			f.startSharedPods(ctx, namespace, needed, after)
		}
	}
	for query := range needed {
		feed := before[query]
		if _, turns := turns[query.Namespace]; turns && feed != nil && feed.shared {
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
	told := f.tellOf(gate.Aspect{Kind: gate.AspectPods, Pods: query})
	feed := &podFeed{running: f.newRunning(podsName(query)), pods: newPodSet(told, f.nodes, query.Annotation)}
	feed.turned = f.handler.GatesChanged
	in := &intake[*corev1.Pod, podFact]{observer: feed.observer, sink: feed.pods, convert: feed.pods.convert}
	f.start(ctx, feed.running, func(ctx context.Context) { in.run(ctx, f.sources.pods(query), &corev1.Pod{}) })
	return feed
}

func (f *Feed) newRunning(name string) *running {
	return &running{observer: newObserver(name, f.log, nil)}
}

func (f *Feed) start(ctx context.Context, r *running, run func(context.Context)) {
	ctx, r.stop = context.WithCancel(ctx)
	f.goroutines.Go(func() {
		defer r.stop()
		run(ctx)
	})
}
