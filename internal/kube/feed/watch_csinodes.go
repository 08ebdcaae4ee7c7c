// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/nodegate/nodegate/internal/gate"
)

// csiNodeFeed observes all CSINodes while a gate needs them.
type csiNodeFeed struct {
	*running
	csiNodes *CSINodes
}

// fillCSINode adds the node's CSINode to its facts, if the feed is live.
func (f *Feed) fillCSINode(facts *gate.Facts) {
	if feed := f.csiNodeFeed.Load(); feed != nil && feed.IsLive() {
		facts.CSINode = feed.csiNodes.Of(facts.Node.Name)
	}
}

// adjustCSINodes starts or stops observing CSINodes.
func (f *Feed) adjustCSINodes(ctx context.Context, needed bool) {
	before := f.csiNodeFeed.Load()
	switch {
	case needed && before == nil:
		f.csiNodeFeed.Store(f.startCSINodes(ctx))
	case !needed && before != nil:
		f.csiNodeFeed.Store(nil)
		before.Stop()
	}
}

func (f *Feed) startCSINodes(ctx context.Context) *csiNodeFeed {
	notify := f.notifier(gate.Aspect{Kind: gate.AspectCSINode})
	feed := &csiNodeFeed{running: f.newRunning(csiNodesName), csiNodes: NewCSINodes(notify, f.nodes)}
	start(ctx, f, feed.running, f.sources.csiNodes, &storagev1.CSINode{}, feed.csiNodes, feed.csiNodes.Convert)
	return feed
}
