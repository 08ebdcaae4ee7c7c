// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"slices"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/clients"
)

// Needs is gate.Needs without duplicates.
type Needs struct {
	Namespaces map[string]bool
	Queries    map[gate.PodQuery]bool
	CSINodes   bool
	Slices     map[SliceSource]SliceNeeds
	// DeviceTaintRules is true if devices are counted.
	DeviceTaintRules bool
	Objects          map[gate.ObjectQuery]bool
}

// SliceSource selects the ResourceSlices of a DRA driver that name a node, or those that
// do not. Each source is watched once. An empty driver stands for all drivers.
type SliceSource struct {
	Driver string
	Shared bool
}

// FieldSelector returns the field selector of the source.
func (s SliceSource) FieldSelector() string {
	if s.Shared {
		return clients.SharedSlicesOf(s.Driver)
	}
	return clients.LocalSlicesOf(s.Driver)
}

// SliceNeeds is what is needed of the ResourceSlices of a source.
type SliceNeeds struct {
	// Plain is true if slices are needed without their devices.
	Plain bool
	// Queries contains the queries for devices, sorted.
	Queries []gate.DeviceQuery
}

func (n SliceNeeds) equal(other SliceNeeds) bool {
	return n.Plain == other.Plain && slices.Equal(n.Queries, other.Queries)
}

// limitedTo returns the part of n that others need. Nil stands for everything.
func (n SliceNeeds) limitedTo(source SliceSource, others *gate.Needs) SliceNeeds {
	if others == nil {
		return n
	}
	out := SliceNeeds{Plain: n.Plain && slices.Contains(others.ResourceSlices, source.Driver)}
	for _, query := range n.Queries {
		if slices.Contains(others.Devices, query) {
			out.Queries = append(out.Queries, query)
		}
	}
	return out
}

// NewNeeds returns n without duplicates.
func NewNeeds(n gate.Needs) *Needs {
	out := &Needs{Namespaces: make(map[string]bool), Queries: make(map[gate.PodQuery]bool), CSINodes: n.CSINodes, Slices: make(map[SliceSource]SliceNeeds), Objects: make(map[gate.ObjectQuery]bool)}
	for _, query := range n.Objects {
		out.Objects[query] = true
	}
	for _, driver := range n.ResourceSlices {
		out.Slices[SliceSource{Driver: driver}] = SliceNeeds{Plain: true}
	}
	out.addDevices(n.Devices)
	for _, namespace := range n.DaemonSetNamespaces {
		out.Namespaces[namespace] = true
	}
	for _, query := range n.Pods {
		out.Queries[query] = true
	}
	return out
}

func (n *Needs) addDevices(queries []gate.DeviceQuery) {
	queries = slices.Clone(queries)
	slices.SortFunc(queries, gate.CompareDeviceQueries)
	for _, query := range slices.Compact(queries) {
		source := SliceSource{query.Driver, query.Pools == v1alpha1.PoolsShared}
		needs := n.Slices[source]
		needs.Queries = append(needs.Queries, query)
		n.Slices[source] = needs
		n.DeviceTaintRules = n.DeviceTaintRules || query.Counts()
	}
}
