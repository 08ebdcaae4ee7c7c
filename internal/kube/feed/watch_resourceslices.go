// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"maps"

	resourcev1 "k8s.io/api/resource/v1"

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
	same := maps.Clone(before)
	maps.DeleteFunc(same, func(source SliceSource, feed *sliceFeed) bool { return !feed.needs.equal(needed[source]) })
	after := reflector.AdjustFeeds(same, needed, sliceGroup,
		func(source SliceSource) *sliceFeed { return f.startSlices(ctx, source, needed)[source] },
		func(group string, into map[SliceSource]*sliceFeed) {
			all := SliceSource{Shared: group == sliceGroup(SliceSource{Shared: true})}
			maps.Copy(into, f.startSlices(ctx, all, needed))
		})
	f.sliceFeeds.Store(&after)
	reflector.StopUnused(before, after)
}

// sliceGroup returns the name of the feed of all drivers, whose watch a source may share.
func sliceGroup(of SliceSource) string { return slicesName(SliceSource{Shared: of.Shared}) }

// startSlices starts a watch that serves one source, or the needed ones of all drivers.
func (f *Feed) startSlices(ctx context.Context, watched SliceSource, needed map[SliceSource]SliceNeeds) map[SliceSource]*sliceFeed {
	r := f.newRunning(slicesName(watched))
	r.Shared, r.Group = watched.Driver == "", sliceGroup(watched)
	feeds := make(map[SliceSource]*sliceFeed)
	local := make(reflector.ByOrigin[*ResourceSlice, *ResourceSlices])
	shared := make(reflector.ByOrigin[*SharedSlice, *SharedSlices])
	for source, needs := range needed {
		if source != watched && (!r.Shared || source.Shared != watched.Shared) {
			continue
		}
		feed := &sliceFeed{running: r, needs: needs}
		if feeds[source] = feed; source.Shared {
			feed.shared = NewSharedSlices(f.nodes, needs.Queries, f.notifier)
			shared[source.Driver] = feed.shared
		} else {
			feed.local = NewResourceSlices(f.nodes, source.Driver, needs, f.notifier)
			local[source.Driver] = feed.local
		}
	}
	from := clients.ExplainingNotServed(f.sources.resourceSlices(watched))
	driver := func(o *resourcev1.ResourceSlice) string { return o.Spec.Driver }
	if watched.Shared {
		start(ctx, f, r, from, &resourcev1.ResourceSlice{}, shared, reflector.Converter(shared, driver, (*SharedSlices).Convert))
	} else {
		start(ctx, f, r, from, &resourcev1.ResourceSlice{}, local, reflector.Converter(local, driver, (*ResourceSlices).Convert))
	}
	return feeds
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
