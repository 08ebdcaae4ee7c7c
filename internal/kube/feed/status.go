// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/clients"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// Status returns the status of each feed, sorted by name.
func (f *Feed) Status() []reflector.Status {
	return f.statusOf(f.needed.Load())
}

// StatusOf returns the status of each feed that the needs require, sorted by name.
func (f *Feed) StatusOf(n gate.Needs) []reflector.Status { return f.statusOf(NewNeeds(n)) }

func (f *Feed) statusOf(needed *Needs) []reflector.Status {
	all := []reflector.Status{f.nodeStatus(), f.gates.Status()}
	all = append(all, statusOfEach(needed.Namespaces, *f.daemonSetFeeds.Load(), DaemonSetsName)...)
	all = append(all, statusOfEach(needed.Queries, *f.podFeeds.Load(), PodsName)...)
	if needed.CSINodes {
		all = append(all, statusOrName(f.csiNodeFeed.Load(), csiNodesName))
	}
	all = append(all, statusOfEach(needed.Slices, *f.sliceFeeds.Load(), slicesName)...)
	all = append(all, f.ofSomeNodes(needed)...)
	slices.SortFunc(all, func(a, b reflector.Status) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b reflector.Status) bool { return a.Name == b.Name })
}

// statusOfEach returns the status of the feeds that are needed.
func statusOfEach[K comparable, N any, F feedStatus](needed map[K]N, feeds map[K]F, name func(K) string) []reflector.Status {
	all := make([]reflector.Status, 0, len(needed))
	for key := range needed {
		all = append(all, statusOrName(feeds[key], name(key)))
	}
	return all
}

// statusOrName returns the status of a feed, or its name if it is nil, because it has not been started.
func statusOrName[F feedStatus](feed F, name string) reflector.Status {
	var none F
	if feed == none {
		return reflector.Status{Name: name}
	}
	return feed.Status()
}

// feedStatus is a pointer to a feed.
type feedStatus interface {
	comparable
	Status() reflector.Status
}

func (f *Feed) nodeStatus() reflector.Status {
	status := statusOrName(f.nodeFeed.Load(), nodesName)
	status.Synced = status.Synced && f.nodes.UpToDate()
	return status
}

// Unsynced returns the names of feeds that are needed and have not been read yet. It
// excludes feeds whose watch was lost after they had been read (see Status), feeds of
// kinds that the API server does not serve, because there is nothing to wait for, and feeds of
// objects of any kind and of DeviceTaintRules that cannot be read, such as without permission.
// A gate over such a kind concerns only its own nodes, and must not make nodegate unready for
// all gates.
func (f *Feed) Unsynced() []string {
	needed := f.needed.Load()
	var names []string
	for _, s := range f.statusOf(needed) {
		if !s.Synced && !errors.Is(s.Err, clients.ErrNotServed) && !errors.Is(s.Err, clients.ErrKindNotServed) {
			names = append(names, s.Name)
		}
	}
	for _, s := range f.ofSomeNodes(needed) {
		if s.Err != nil {
			names = slices.DeleteFunc(names, func(name string) bool { return name == s.Name })
		}
	}
	return names
}

// ofSomeNodes returns the status of the feeds that concern only the nodes of the gates that
// need them.
func (f *Feed) ofSomeNodes(needed *Needs) []reflector.Status {
	all := statusOfEach(BySource(needed.Objects), *f.objectFeeds.Load(), objectsName)
	if needed.DeviceTaintRules {
		all = append(all, statusOrName(f.ruleFeed.Load(), rulesName))
	}
	return all
}

// LastReceived returns the latest time at which a feed that is needed and has not been read
// yet received anything, rounded down by at most reflector.BurstWindow. It is zero if there
// is none. A large fleet takes a while to be read: the time shows that it is being received.
// Feeds of objects of any kind and of DeviceTaintRules do not count, because the other gates
// need not wait for them any longer.
func (f *Feed) LastReceived() (latest time.Time) {
	needed := f.needed.Load()
	others := f.ofSomeNodes(needed)
	for _, s := range f.statusOf(needed) {
		counts := !slices.ContainsFunc(others, func(o reflector.Status) bool { return o.Name == s.Name })
		if counts && !s.Synced && s.Received.After(latest) {
			latest = s.Received
		}
	}
	return latest
}

// isLoading reports whether a feed that is needed is being read for the first time and no
// attempt has failed.
func (f *Feed) isLoading() bool {
	needed := f.needed.Load()
	if f.loaded.Load() == needed {
		return false
	}
	for _, s := range f.statusOf(needed) {
		if !s.Synced && s.Err == nil {
			return true
		}
	}
	f.loaded.Store(needed)
	return false
}
