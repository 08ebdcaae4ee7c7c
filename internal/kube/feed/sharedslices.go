// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// SharedSlice contains the facts about a ResourceSlice that names no node, for each query.
type SharedSlice struct{ facts []gate.SharedSlice }

// SharedSlices stores the ResourceSlices of one driver that name no node.
type SharedSlices struct {
	nodes *nodestore.Store
	views []*sharedView
}

// sharedView stores the slices for one query.
type sharedView struct {
	*deviceCounter
	// changed is called, without locks, with the name of each node when a pool has changed.
	changed func(node string)

	mu     sync.Mutex
	byName map[string]gate.SharedSlice
	// pools is derived from byName when it is needed. Nil if that has changed.
	pools gate.SharedPools
}

var _ reflector.Sink[*SharedSlice] = (*SharedSlices)(nil)

// NewSharedSlices returns an empty SharedSlices. changed is described at NewResourceSlices.
func NewSharedSlices(nodes *nodestore.Store, queries []gate.DeviceQuery, changed func(gate.Aspect) func(node string)) *SharedSlices {
	s := &SharedSlices{nodes: nodes}
	for _, query := range queries {
		s.views = append(s.views, &sharedView{
			deviceCounter: newDeviceCounter(query, nodes.Texts), changed: changed(query.Aspect()), byName: make(map[string]gate.SharedSlice),
		})
	}
	return s
}

// Pools returns the driver's shared pools.
func (s *SharedSlices) Pools(query gate.DeviceQuery) gate.SharedPools {
	for _, v := range s.views {
		if v.query == query {
			return v.current()
		}
	}
	return nil
}

// current returns the pools, sorted.
func (v *sharedView) current() gate.SharedPools {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.pools != nil || len(v.byName) == 0 {
		return v.pools
	}
	all := slices.SortedFunc(maps.Values(v.byName), func(a, b gate.SharedSlice) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Name, b.Name))
	})
	for i := range all {
		last := len(v.pools) - 1
		if last < 0 || v.pools[last].Name != all[i].Pool {
			v.pools, last = append(v.pools, gate.SharedPool{Name: all[i].Pool}), last+1
		}
		v.pools[last].Slices = append(v.pools[last].Slices, all[i])
	}
	return v.pools
}

// Put implements reflector.Sink.
func (s *SharedSlices) Put(f *SharedSlice) {
	for i, v := range s.views {
		fact := f.facts[i]
		v.mu.Lock()
		before, there := v.byName[fact.Name]
		same := there && before.Equal(&fact)
		if !same {
			v.byName[fact.Name], v.pools = fact, nil
		}
		v.mu.Unlock()
		if !same {
			s.announce(v)
		}
	}
}

// Drop implements reflector.Sink.
func (s *SharedSlices) Drop(f *SharedSlice) {
	for i, v := range s.views {
		v.mu.Lock()
		_, there := v.byName[f.facts[i].Name]
		delete(v.byName, f.facts[i].Name)
		v.pools = nil
		v.mu.Unlock()
		if there {
			s.announce(v)
		}
	}
}

// Replace implements reflector.Sink. It does not call changed, see ResourceSlices.Replace.
func (s *SharedSlices) Replace(all []*SharedSlice) {
	for i, v := range s.views {
		byName := make(map[string]gate.SharedSlice, len(all))
		for _, f := range all {
			byName[f.facts[i].Name] = f.facts[i]
		}
		v.mu.Lock()
		v.byName, v.pools = byName, nil
		v.mu.Unlock()
	}
}

// announce announces a change on all nodes. Which of them can reach a pool depends on their
// labels, and a pool is complete or obsolete by slices that other nodes can reach.
func (s *SharedSlices) announce(v *sharedView) {
	for _, node := range s.nodes.Names() {
		v.changed(node)
	}
}

// ruleChanged announces a change of a DeviceTaintRule on all nodes if it selects one of the
// driver's pools.
func (s *SharedSlices) ruleChanged(driver string, r *gate.DeviceTaintRule) {
	for _, v := range s.views {
		if v.query.Counts() && slices.ContainsFunc(v.current(), func(p gate.SharedPool) bool { return r.Selects(driver, p.Name) }) {
			s.announce(v)
		}
	}
}

// Convert returns the facts about a ResourceSlice.
func (s *SharedSlices) Convert(o *resourcev1.ResourceSlice) *SharedSlice {
	sets, devices := reachOf(o)
	f := &SharedSlice{facts: make([]gate.SharedSlice, len(s.views))}
	for i, v := range s.views {
		f.facts[i] = gate.SharedSlice{
			Name: o.Name, Pool: s.nodes.Texts.Text(o.Spec.Pool.Name), Generation: o.Spec.Pool.Generation, Count: o.Spec.Pool.ResourceSliceCount,
			Counters: len(o.Spec.SharedCounters) > 0,
		}
		for j := range sets {
			f.facts[i].Groups = append(f.facts[i].Groups, gate.DeviceGroup{Nodes: sets[j], Devices: v.count(o.Spec.Driver, devices[j])})
		}
	}
	return f
}

// reachOf divides the devices of a slice by the nodes that can reach them. A slice with
// shared counters has no devices.
func reachOf(o *resourcev1.ResourceSlice) (sets []gate.NodeSet, devices [][]*resourcev1.Device) {
	spec := &o.Spec
	switch {
	case len(spec.SharedCounters) > 0:
		return nil, nil
	case spec.NodeName != nil || ptr.Deref(spec.AllNodes, false) || spec.NodeSelector != nil:
		set := gate.NewNodeSet(ptr.Deref(spec.NodeName, ""), ptr.Deref(spec.AllNodes, false), spec.NodeSelector)
		return []gate.NodeSet{set}, [][]*resourcev1.Device{pointersTo(spec.Devices)}
	case !ptr.Deref(spec.PerDeviceNodeSelection, false):
		return nil, nil // a kind of selection that is not known yet
	}
	for i := range spec.Devices {
		d := &spec.Devices[i]
		set := gate.NewNodeSet(ptr.Deref(d.NodeName, ""), ptr.Deref(d.AllNodes, false), d.NodeSelector)
		j := slices.IndexFunc(sets, func(known gate.NodeSet) bool { return known.Equal(set) })
		if j < 0 {
			j, sets, devices = len(sets), append(sets, set), append(devices, nil)
		}
		devices[j] = append(devices[j], d)
	}
	return sets, devices
}
