// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// running is a feed that has been started.
type running struct {
	*reflector.Observer
	*reflector.Watch
}

// nodeFeed observes all Nodes, with the annotations and resources that were needed when
// it was started.
type nodeFeed struct {
	*running
	version int
}

// adjustFeeds starts the feeds that are needed and stops those that are not.
func (f *Feed) adjustFeeds(ctx context.Context) {
	needed := f.needed.Load()
	f.adjustNodes(ctx)
	f.adjustDaemonSets(ctx, needed.Namespaces)
	f.adjustPods(ctx, needed.Queries)
	f.adjustCSINodes(ctx, needed.CSINodes)
	f.adjustSlices(ctx, needed.Slices)
	f.adjustDeviceTaintRules(ctx, needed.DeviceTaintRules)
	f.adjustObjects(ctx, needed.Objects)
}

// adjustNodes starts observing Nodes, or starts again when more is needed of them.
func (f *Feed) adjustNodes(ctx context.Context) {
	before, version := f.nodeFeed.Load(), f.nodes.NeededVersion()
	if before != nil && before.version == version {
		return
	}
	if before != nil {
		before.Stop()
	}
	feed := &nodeFeed{running: f.newRunning(nodesName), version: version}
	f.nodeFeed.Store(feed)
	start(ctx, f, feed.running, f.sources.nodes, &corev1.Node{}, f.nodes.Sink(version), f.nodes.Pack)
}

func (f *Feed) newRunning(name string) *running {
	o := reflector.NewObserver(name, f.log, f.clock, f.handler.GatesChanged)
	o.Silenced = f.silenced
	return &running{Observer: o, Watch: &reflector.Watch{}}
}

// start starts to keep the facts in a sink up to date with the objects from a source. example
// is an object of their kind.
func start[O runtime.Object, F any](ctx context.Context, f *Feed, r *running, from *cache.ListWatch, example O, sink reflector.Sink[F], convert func(O) F) {
	ctx, r.Stop = context.WithCancel(ctx)
	in := &reflector.Reflector[O, F]{Observer: r.Observer, Sink: sink, Convert: convert}
	f.goroutines.Go(func() {
		defer r.Stop()
		in.Run(ctx, from, example)
	})
}
