// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/internal/gate"
)

// errNotServed is in the error of a feed whose kind the API server does not
// have.
var errNotServed = errors.New("the API server does not serve resource.k8s.io/v1 ResourceSlices: it has them since " +
	"Kubernetes 1.34; enable dynamic resource allocation, or remove the gate's resourceSlices signal")

// sliceFeed observes the ResourceSlices of one DRA driver, while some gate
// needs them.
type sliceFeed struct {
	*running
	slices *sliceSet
}

// adjustSlices starts and stops observing the ResourceSlices of drivers.
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
	told := f.tellOf(gate.Aspect{Kind: gate.AspectResourceSlices, Name: driver})
	feed := &sliceFeed{running: f.newRunning(slicesName(driver)), slices: newSliceSet(told, f.nodes)}
	feed.turned = f.handler.GatesChanged
	in := &intake[*resourcev1.ResourceSlice, *sliceFact]{observer: feed.observer, sink: feed.slices, convert: feed.slices.convert}
	source := served(f.sources.resourceSlices(driver))
	f.start(ctx, feed.running, func(ctx context.Context) { in.run(ctx, source, &resourcev1.ResourceSlice{}) })
	return feed
}

// served says in plain words that there is no such kind. Some day there may be:
// the feed goes on asking.
func served(inner *cache.ListWatch) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := inner.ListWithContext(ctx, o)
			return list, explainNotServed(err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := inner.WatchWithContext(ctx, o)
			return w, explainNotServed(err)
		},
	}
}

func explainNotServed(err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w (%w)", errNotServed, err)
	}
	return err
}

// slicesOn returns a node's ResourceSlices by driver.
func (f *Feed) slicesOn(node string) map[string][]gate.ResourceSlice {
	feeds := *f.sliceFeeds.Load()
	if len(feeds) == 0 {
		return nil
	}
	all := make(map[string][]gate.ResourceSlice, len(feeds))
	for driver, feed := range feeds {
		if feed.isLive() {
			all[driver] = feed.slices.on(node)
		}
	}
	return all
}

// sliceStatus says how the feeds of these drivers fare.
func (f *Feed) sliceStatus(drivers map[string]bool) []FeedStatus {
	feeds := *f.sliceFeeds.Load()
	all := make([]FeedStatus, 0, len(drivers))
	for driver := range drivers {
		status := FeedStatus{Name: slicesName(driver)}
		if r, ok := feeds[driver]; ok {
			status = r.status()
		}
		all = append(all, status)
	}
	return all
}

// sliceFact is a ResourceSlice, and where it is.
type sliceFact struct {
	node string
	gate.ResourceSlice
}

// sliceSet keeps the ResourceSlices of one driver by node.
type sliceSet struct {
	// changed is called, without locks, with a node whose slices have changed.
	changed func(node string)
	nodes   *nodeStore

	mu sync.RWMutex
	// byNode has the slices of each node, sorted by name. The lists are
	// immutable: decisions share them.
	byNode map[string][]gate.ResourceSlice
}

var _ sink[*sliceFact] = (*sliceSet)(nil)

func newSliceSet(changed func(string), nodes *nodeStore) *sliceSet {
	return &sliceSet{changed: changed, nodes: nodes, byNode: make(map[string][]gate.ResourceSlice)}
}

// on returns the slices of a node.
func (s *sliceSet) on(node string) []gate.ResourceSlice {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byNode[node]
}

// put implements sink. The node of a slice never changes.
func (s *sliceSet) put(f *sliceFact) {
	s.replaceOn(f.node, func(now []gate.ResourceSlice, i int, there bool) []gate.ResourceSlice {
		now = slices.Clone(now)
		if there {
			now[i] = f.ResourceSlice
			return now
		}
		return slices.Insert(now, i, f.ResourceSlice)
	}, f)
}

// drop implements sink.
func (s *sliceSet) drop(f *sliceFact) {
	s.replaceOn(f.node, func(now []gate.ResourceSlice, i int, there bool) []gate.ResourceSlice {
		if !there {
			return now
		}
		return slices.Delete(slices.Clone(now), i, i+1)
	}, f)
}

// replaceOn has a change make a node's list anew, or return it as it is. It is
// told where the fact is, or belongs.
func (s *sliceSet) replaceOn(node string, change func([]gate.ResourceSlice, int, bool) []gate.ResourceSlice, f *sliceFact) {
	s.mu.Lock()
	before := s.byNode[node]
	i, there := slices.BinarySearchFunc(before, f.ResourceSlice, bySliceName)
	after := change(before, i, there)
	if len(after) > 0 {
		s.byNode[node] = after
	} else {
		delete(s.byNode, node)
	}
	s.mu.Unlock()
	if !slices.Equal(before, after) {
		s.changed(node)
	}
}

// replace implements sink. It tells of no node: what was known before counted
// as unknown while it was read anew, so that all nodes are looked at.
func (s *sliceSet) replace(all []*sliceFact) {
	byNode := make(map[string][]gate.ResourceSlice)
	for _, f := range all {
		byNode[f.node] = append(byNode[f.node], f.ResourceSlice)
	}
	for _, list := range byNode {
		slices.SortFunc(list, bySliceName)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byNode = byNode
}

func bySliceName(a, b gate.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) }

// convert makes a ResourceSlice into a fact. Its owner is the Node for which a
// driver made it.
func (s *sliceSet) convert(o *resourcev1.ResourceSlice) *sliceFact {
	f := &sliceFact{
		node: s.nodes.nameOf(ptr.Deref(o.Spec.NodeName, "")),
		ResourceSlice: gate.ResourceSlice{
			Name: o.Name, Pool: s.nodes.intern.text(o.Spec.Pool.Name),
			Generation: o.Spec.Pool.Generation, Count: o.Spec.Pool.ResourceSliceCount,
		},
	}
	for _, owner := range o.OwnerReferences {
		if owner.Kind == "Node" && owner.Name == f.node {
			f.Owner = internUID(s.nodes.intern, owner.UID)
		}
	}
	return f
}
