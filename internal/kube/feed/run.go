// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/internal/kube/packed"
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
	feed.LiveChanged = f.handler.GatesChanged
	f.nodeFeed.Store(feed)
	in := &reflector.Reflector[*corev1.Node, *packed.Node]{
		Observer: feed.Observer, Sink: f.nodes.Sink(version), Convert: f.nodes.Pack,
	}
	f.start(ctx, feed.running, func(ctx context.Context) { in.Run(ctx, f.sources.nodes, &corev1.Node{}) })
}

func (f *Feed) newRunning(name string) *running {
	o := reflector.NewObserver(name, f.log, f.clock, nil)
	o.Silenced = f.silenced
	return &running{Observer: o, Watch: &reflector.Watch{}}
}

func (f *Feed) start(ctx context.Context, r *running, run func(context.Context)) {
	ctx, r.Stop = context.WithCancel(ctx)
	f.goroutines.Go(func() {
		defer r.Stop()
		run(ctx)
	})
}
