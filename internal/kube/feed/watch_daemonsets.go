// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// daemonSetFeed observes the DaemonSets of one namespace.
type daemonSetFeed struct {
	*running
	daemonSets *daemonSetNamespace
}

func (f *Feed) adjustDaemonSets(ctx context.Context, needed map[string]bool) {
	before := *f.daemonSetFeeds.Load()
	after := reflector.AdjustFeeds(before, needed, func(string) string { return metav1.NamespaceAll },
		func(namespace string) *daemonSetFeed { return f.startDaemonSets(ctx, namespace) },
		func(_ string, into map[string]*daemonSetFeed) { f.startSharedDaemonSets(ctx, needed, into) })
	f.daemonSetFeeds.Store(&after)
	reflector.StopUnused(before, after)
	var unused []*daemonSetNamespace
	for namespace, feed := range before {
		if after[namespace] != feed {
			unused = append(unused, feed.daemonSets)
		}
	}
	f.daemonSets.remove(unused)
}

func (f *Feed) startDaemonSets(ctx context.Context, namespace string) *daemonSetFeed {
	r := f.newRunning(DaemonSetsName(namespace))
	feed := &daemonSetFeed{running: r, daemonSets: newDaemonSetNamespace(namespace, f.daemonSets, r.IsLive)}
	r.LiveChanged = feed.daemonSets.liveChanged
	f.daemonSets.add(feed.daemonSets)
	start(ctx, f, r, f.sources.daemonSets(namespace), &appsv1.DaemonSet{}, feed.daemonSets, NewDaemonSet)
	return feed
}

// startSharedDaemonSets starts one watch for all needed namespaces.
func (f *Feed) startSharedDaemonSets(ctx context.Context, needed map[string]bool, into map[string]*daemonSetFeed) {
	r := f.newRunning(sharedDaemonSetsName)
	r.Shared, r.Group = true, metav1.NamespaceAll
	r.LiveChanged = func() { f.daemonSets.update(func() effect { return announce }) }
	sinks := make(reflector.ByOrigin[*DaemonSet, *daemonSetNamespace], len(needed))
	for namespace := range needed {
		sinks[namespace] = newDaemonSetNamespace(namespace, f.daemonSets, r.IsLive)
		f.daemonSets.add(sinks[namespace])
		into[namespace] = &daemonSetFeed{running: r, daemonSets: sinks[namespace]}
	}
	convert := reflector.Converter(sinks, (*appsv1.DaemonSet).GetNamespace, func(_ *daemonSetNamespace, o *appsv1.DaemonSet) *DaemonSet { return NewDaemonSet(o) })
	start(ctx, f, r, f.sources.daemonSets(metav1.NamespaceAll), &appsv1.DaemonSet{}, sinks, convert)
}
