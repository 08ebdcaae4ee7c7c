// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/clients"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// sliceFeed observes the ResourceSlices of one source while gates need them. Either local
// or shared is set.
type sliceFeed struct {
	*running
	needs  SliceNeeds
	local  *ResourceSlices
	shared *SharedSlices
}

// adjustSlices starts and stops feeds of ResourceSlices. If something else is needed of a
// source, its slices are listed again, because the devices themselves are not stored.
func (f *Feed) adjustSlices(ctx context.Context, needed map[SliceSource]SliceNeeds) {
	before := *f.sliceFeeds.Load()
	after := make(map[SliceSource]*sliceFeed, len(needed))
	for source, needs := range needed {
		if feed := before[source]; feed != nil && feed.needs.equal(needs) {
			after[source] = feed
		} else {
			after[source] = f.startSlices(ctx, source, needs)
		}
	}
	f.sliceFeeds.Store(&after)
	for source, feed := range before {
		if after[source] != feed {
			feed.Stop()
		}
	}
}

func (f *Feed) startSlices(ctx context.Context, source SliceSource, needs SliceNeeds) *sliceFeed {
	feed := &sliceFeed{running: f.newRunning(slicesName(source)), needs: needs}
	feed.LiveChanged = f.handler.GatesChanged
	from := explainNotServed(f.sources.resourceSlices(source))
	if source.Shared {
		feed.shared = NewSharedSlices(f.nodes, needs.Queries, f.notifier)
		in := &reflector.Reflector[*resourcev1.ResourceSlice, *SharedSlice]{Observer: feed.Observer, Sink: feed.shared, Convert: feed.shared.Convert}
		f.start(ctx, feed.running, func(ctx context.Context) { in.Run(ctx, from, &resourcev1.ResourceSlice{}) })
		return feed
	}
	feed.local = NewResourceSlices(f.nodes, source.Driver, needs, f.notifier)
	in := &reflector.Reflector[*resourcev1.ResourceSlice, *ResourceSlice]{Observer: feed.Observer, Sink: feed.local, Convert: feed.local.Convert}
	f.start(ctx, feed.running, func(ctx context.Context) { in.Run(ctx, from, &resourcev1.ResourceSlice{}) })
	return feed
}

// explainNotServed makes errors explain that the API server does not serve
// ResourceSlices. The feed continues to retry, because the API server may serve them
// later.
func explainNotServed(inner *cache.ListWatch) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := inner.ListWithContext(ctx, o)
			return list, clients.ExplainNotServed(err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := inner.WatchWithContext(ctx, o)
			return w, clients.ExplainNotServed(err)
		},
	}
}

// fillSlices adds what was observed of a node's devices to its facts: everything, or what
// needs contains.
func (f *Feed) fillSlices(facts *gate.Facts, needs *gate.Needs) {
	if needs != nil && len(needs.ResourceSlices)+len(needs.Devices) == 0 {
		return
	}
	for source, feed := range *f.sliceFeeds.Load() {
		if feed.IsLive() {
			AddSlices(facts, source, feed.needs.limitedTo(source, needs), feed.local, feed.shared)
		}
	}
	facts.DeviceTaintRules = f.deviceTaintRules()
}

// AddSlices adds what is needed of a source to the facts about a node, from the store of
// the source.
func AddSlices(facts *gate.Facts, source SliceSource, needs SliceNeeds, local *ResourceSlices, shared *SharedSlices) {
	if needs.Plain {
		put(&facts.ResourceSlices, source.Driver, local.On(facts.Node.Name))
	}
	for _, query := range needs.Queries {
		if source.Shared {
			put(&facts.SharedPools, query, shared.Pools(query))
		} else {
			put(&facts.Devices, query, local.DevicesOn(facts.Node.Name, query))
		}
	}
}

// put adds an element to a map, which it creates if it is nil.
func put[K comparable, V any](all *map[K]V, key K, value V) {
	if *all == nil {
		*all = make(map[K]V)
	}
	(*all)[key] = value
}

// sliceStatus returns the status of the feeds of sources.
func (f *Feed) sliceStatus(needed map[SliceSource]SliceNeeds) []reflector.Status {
	feeds := *f.sliceFeeds.Load()
	all := make([]reflector.Status, 0, len(needed))
	for source := range needed {
		status := reflector.Status{Name: slicesName(source)}
		if r, ok := feeds[source]; ok {
			status = r.Status()
		}
		all = append(all, status)
	}
	return all
}
