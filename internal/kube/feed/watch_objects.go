// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// objectFeed observes the objects of one source while gates need them.
type objectFeed struct {
	*running
	objects *Objects
	// queries are those whose results are stored, sorted.
	queries []gate.ObjectQuery
}

// BySource groups queries by their source. The queries of a source are sorted.
func BySource(queries map[gate.ObjectQuery]bool) map[gate.ObjectSource][]gate.ObjectQuery {
	all := make(map[gate.ObjectSource][]gate.ObjectQuery)
	for query := range queries {
		all[query.ObjectSource] = append(all[query.ObjectSource], query)
	}
	for _, of := range all {
		slices.SortFunc(of, gate.CompareObjectQueries)
	}
	return all
}

// adjustObjects starts and stops feeds of objects. If a source has another query, its
// objects are listed again, because the objects themselves are not stored.
func (f *Feed) adjustObjects(ctx context.Context, needed map[gate.ObjectQuery]bool) {
	before := *f.objectFeeds.Load()
	after := make(map[gate.ObjectSource]*objectFeed)
	for source, queries := range BySource(needed) {
		if feed := before[source]; feed != nil && slices.Equal(feed.queries, queries) {
			after[source] = feed
		} else {
			after[source] = f.startObjects(ctx, source, queries)
		}
	}
	f.objectFeeds.Store(&after)
	reflector.StopUnused(before, after)
}

func (f *Feed) startObjects(ctx context.Context, source gate.ObjectSource, queries []gate.ObjectQuery) *objectFeed {
	feed := &objectFeed{running: f.newRunning(objectsName(source)), queries: queries}
	feed.objects = NewObjects(f.nodes, queries, func(q gate.ObjectQuery) func(string) { return f.notifier(q.Aspect()) })
	thin := feed.objects.MetadataOnly()
	var example runtime.Object = &unstructured.Unstructured{}
	if thin {
		example = &metav1.PartialObjectMetadata{}
	}
	start(ctx, f, feed.running, f.sources.objects(source, thin), example, feed.objects, feed.objects.Convert)
	return feed
}

// objectsOn returns a node's objects by query, for all queries or for some.
func (f *Feed) objectsOn(node string, queries []gate.ObjectQuery) map[gate.ObjectQuery][]gate.Object {
	feeds := *f.objectFeeds.Load()
	if len(feeds) == 0 {
		return nil
	}
	all := make(map[gate.ObjectQuery][]gate.Object, len(queries))
	for _, query := range queries {
		if feed := feeds[query.ObjectSource]; feed != nil && feed.IsLive() && slices.Contains(feed.queries, query) {
			all[query] = feed.objects.On(node, query)
		}
	}
	return all
}

// objectQueries returns all queries whose results are stored.
func (f *Feed) objectQueries() (all []gate.ObjectQuery) {
	for _, feed := range *f.objectFeeds.Load() {
		all = append(all, feed.queries...)
	}
	return all
}
