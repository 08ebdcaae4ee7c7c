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
	daemonSetFeeds, podFeeds := *f.daemonSetFeeds.Load(), *f.podFeeds.Load()
	for namespace := range needed.Namespaces {
		status := reflector.Status{Name: DaemonSetsName(namespace)}
		if r, ok := daemonSetFeeds[namespace]; ok {
			status = r.Status()
		}
		all = append(all, status)
	}
	for query := range needed.Queries {
		status := reflector.Status{Name: PodsName(query)}
		if r, ok := podFeeds[query]; ok {
			status = r.Status()
		}
		all = append(all, status)
	}
	if needed.CSINodes {
		status := reflector.Status{Name: csiNodesName}
		if r := f.csiNodeFeed.Load(); r != nil {
			status = r.Status()
		}
		all = append(all, status)
	}
	all = append(all, f.sliceStatus(needed.Slices)...)
	all = append(all, f.ruleStatus(needed.DeviceTaintRules)...)
	all = append(all, f.objectStatus(needed.Objects)...)
	slices.SortFunc(all, func(a, b reflector.Status) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b reflector.Status) bool { return a.Name == b.Name })
}

func (f *Feed) nodeStatus() reflector.Status {
	r := f.nodeFeed.Load()
	if r == nil {
		return reflector.Status{Name: nodesName}
	}
	status := r.Status()
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
	return append(f.objectStatus(needed.Objects), f.ruleStatus(needed.DeviceTaintRules)...)
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
