// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"

	"github.com/nodegate/nodegate/internal/kube/reflector"
	appsv1 "k8s.io/api/apps/v1"
)

// daemonSetFeed observes the DaemonSets of one namespace.
type daemonSetFeed struct {
	*running
	daemonSets *DaemonSetNamespace
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
			f.daemonSets.remove(feed.daemonSets)
		}
	}
}

func (f *Feed) startDaemonSets(ctx context.Context, namespace string) *daemonSetFeed {
	r := f.newRunning(DaemonSetsName(namespace))
	feed := &daemonSetFeed{running: r, daemonSets: NewDaemonSetNamespace(namespace, f.daemonSets, r.IsLive)}
	r.LiveChanged = feed.daemonSets.liveChanged
	f.daemonSets.add(feed.daemonSets)
	in := &reflector.Reflector[*appsv1.DaemonSet, *DaemonSet]{Observer: feed.Observer, Sink: feed.daemonSets, Convert: NewDaemonSet}
	f.start(ctx, feed.running, func(ctx context.Context) {
		in.Run(ctx, f.sources.daemonSets(namespace), &appsv1.DaemonSet{})
	})
	return feed
}
