// SPDX-License-Identifier: Apache-2.0

package reflector

import "context"

// WatchesMax is the maximum number of watches in a group, not counting a shared one. If
// few are needed, nothing else is transferred. But a daemonSets signal may select hundreds
// of DaemonSets, and gates may name thousands of namespaces. When there are more than
// WatchesMax, one watch of everything in the group serves all that are needed then. When
// half as many are left, each gets a watch of its own again.
const WatchesMax = 32

// Sharer is a feed whose watch may serve others as well.
type Sharer interface {
	comparable
	// Uses returns the watch that the feed uses. It is the same for all feeds that share it.
	Uses() *Watch
}

// Watch is a watch that has been started.
type Watch struct {
	// Stop stops the watch. It does not wait.
	Stop context.CancelFunc
	// Shared reports whether the watch serves everything in a group that was needed when it
	// was started. Group is that group.
	Shared bool
	Group  string
}

// serves reports whether a group shares the watch.
func (w *Watch) serves(group string) bool { return w.Shared && w.Group == group }

// Uses implements Sharer.
func (w *Watch) Uses() *Watch { return w }

// sharingChanges returns the groups that must share one watch from now on (true), or must
// have watches of their own again (false). Other groups do not change. If a key has moved to
// another group, the shared watch of its former group does not count as shared.
func sharingChanges[K comparable, N any, F Sharer](before map[K]F, needed map[K]N, group func(K) string) map[string]bool {
	own, shared := make(map[string]int), make(map[string]int)
	for key := range needed {
		if feed, known := before[key]; known && feed.Uses().serves(group(key)) {
			shared[group(key)]++
		} else {
			own[group(key)]++
		}
	}
	out := make(map[string]bool)
	for name, count := range own {
		if count > WatchesMax {
			out[name] = true
		}
	}
	for name, count := range shared {
		if count+own[name] <= WatchesMax/2 {
			out[name] = false
		}
	}
	return out
}

// AdjustFeeds returns the feeds of what is needed. It starts those that do not exist: with a
// watch of their own, or all of a group with a shared one.
func AdjustFeeds[K comparable, N any, F Sharer](before map[K]F, needed map[K]N, group func(K) string, start func(K) F, share func(group string, into map[K]F)) map[K]F {
	after := make(map[K]F, len(needed))
	changes := sharingChanges(before, needed, group)
	for name, shared := range changes {
		if shared {
			share(name, after)
		}
	}
	for key := range needed {
		feed, known := before[key]
		_, changes := changes[group(key)]
		if _, started := after[key]; started {
			continue
		}
		if !known || feed.Uses().Shared && (changes || !feed.Uses().serves(group(key))) {
			feed = start(key)
		}
		after[key] = feed
	}
	return after
}

// StopUnused stops the watches that no feed uses any longer.
func StopUnused[K comparable, F Sharer](before, after map[K]F) {
	used := make(map[*Watch]bool, len(after))
	for _, feed := range after {
		used[feed.Uses()] = true
	}
	for _, feed := range before {
		if !used[feed.Uses()] {
			feed.Uses().Stop()
		}
	}
}

// ByOrigin is a Sink that distributes facts to the sinks of their origins, such as namespaces.
type ByOrigin[F any, S Sink[F]] map[string]S

// Located is a fact and its origin, or empty if that has no sink.
type Located[F any] struct {
	origin string
	fact   F
}

// Converter returns a function that converts objects whose origin has a sink. Others are
// dropped on arrival. The origin of an object must never change.
func Converter[O, F any, S Sink[F]](sinks ByOrigin[F, S], origin func(O) string, convert func(S, O) F) func(O) Located[F] {
	return func(o O) Located[F] {
		from := origin(o)
		sink, ok := sinks[from]
		if !ok {
			return Located[F]{}
		}
		return Located[F]{from, convert(sink, o)}
	}
}

// Put implements Sink.
func (b ByOrigin[F, S]) Put(l Located[F]) {
	if sink, ok := b[l.origin]; ok {
		sink.Put(l.fact)
	}
}

// Drop implements Sink.
func (b ByOrigin[F, S]) Drop(l Located[F]) {
	if sink, ok := b[l.origin]; ok {
		sink.Drop(l.fact)
	}
}

// Replace implements Sink.
func (b ByOrigin[F, S]) Replace(all []Located[F]) {
	facts := make(map[string][]F, len(b))
	for _, l := range all {
		facts[l.origin] = append(facts[l.origin], l.fact)
	}
	for origin, sink := range b {
		sink.Replace(facts[origin])
	}
}
