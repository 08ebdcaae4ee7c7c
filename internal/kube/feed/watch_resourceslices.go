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

// sliceFeed observes the ResourceSlices of one DRA driver while a gate needs them.
type sliceFeed struct {
	*running
	slices *ResourceSlices
}

// adjustSlices starts and stops feeds of ResourceSlices.
func (f *Feed) adjustSlices(ctx context.Context, needed map[string]bool) {
	before := *f.sliceFeeds.Load()
	after := make(map[string]*sliceFeed, len(needed))
	for driver := range needed {
		if after[driver] = before[driver]; after[driver] == nil {
			after[driver] = f.startSlices(ctx, driver)
		}
	}
	f.sliceFeeds.Store(&after)
	for driver, feed := range before {
		if !needed[driver] {
			feed.stop()
		}
	}
}

func (f *Feed) startSlices(ctx context.Context, driver string) *sliceFeed {
	notify := f.notifier(gate.Aspect{Kind: gate.AspectResourceSlices, Name: driver})
	feed := &sliceFeed{running: f.newRunning(slicesName(driver)), slices: NewResourceSlices(notify, f.nodes)}
	feed.LiveChanged = f.handler.GatesChanged
	in := &reflector.Reflector[*resourcev1.ResourceSlice, *ResourceSlice]{Observer: feed.Observer, Sink: feed.slices, Convert: feed.slices.Convert}
	source := explainNotServed(f.sources.resourceSlices(driver))
	f.start(ctx, feed.running, func(ctx context.Context) { in.Run(ctx, source, &resourcev1.ResourceSlice{}) })
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

// slicesOn returns a node's ResourceSlices by driver.
func (f *Feed) slicesOn(node string) map[string][]gate.ResourceSlice {
	feeds := *f.sliceFeeds.Load()
	if len(feeds) == 0 {
		return nil
	}
	all := make(map[string][]gate.ResourceSlice, len(feeds))
	for driver, feed := range feeds {
		if feed.IsLive() {
			all[driver] = feed.slices.On(node)
		}
	}
	return all
}
