// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"cmp"
	"fmt"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/expression"
	"github.com/nodegate/nodegate/internal/gate"
)

// resourceSlices holds when everything that a DRA driver offers on the node has been
// published, and includes enough usable devices. It cannot determine the boot in which
// that happened, but a kubelet deletes its node's slices when it starts.
type resourceSlices struct {
	levelSignal
	query gate.DeviceQuery
	// minDevices is the number of usable devices that are required, or 0.
	minDevices int32
	// compiled keeps the expressions in use.
	compiled []*expression.DeviceExpression
	// missing and complete are the subjects of readings when there is no slice, and
	// when all slices exist.
	missing, complete string
}

func newResourceSlices(spec *v1alpha1.ResourceSlicesSignal) (gate.Signal, error) {
	s := resourceSlices{
		query:      gate.DeviceQuery{Driver: spec.Driver, Pools: cmp.Or(spec.Pools, v1alpha1.PoolsNodeLocal)},
		minDevices: spec.MinDevices,
		missing:    "ResourceSlice of DRA driver " + spec.Driver,
		complete:   "every pool of DRA driver " + spec.Driver,
	}
	if s.query.Pools == v1alpha1.PoolsShared {
		s.missing = "shared pool of DRA driver " + spec.Driver + " that it can reach"
		s.complete = "every shared pool of DRA driver " + spec.Driver
	}
	switch {
	case s.minDevices > 0:
		s.query.Selectors = gate.SelectorsOf(expressionsOf(spec.Selectors))
		s.complete += fmt.Sprintf(", with at least %d usable devices,", s.minDevices)
	case len(spec.Selectors) > 0:
		return nil, fmt.Errorf("compiling selectors: they require minDevices, because they select the devices that are counted")
	}
	for _, text := range s.query.Expressions() {
		compiled, err := expression.CompileDevice(text)
		if err != nil {
			return nil, fmt.Errorf("compiling selector %q: %w", text, err)
		}
		s.compiled = append(s.compiled, compiled)
	}
	return s, nil
}

func expressionsOf(selectors []v1alpha1.DeviceSelector) []string {
	texts := make([]string, 0, len(selectors))
	for i := range selectors {
		texts = append(texts, selectors[i].CEL.Expression)
	}
	return texts
}

// Read implements gate.Signal. If several pools are incomplete, it returns the first
// one.
func (s resourceSlices) Read(in gate.Input) gate.Reading {
	none := gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingMissing, Subject: s.missing}
	var few [4]pool // a node has few
	pools, none, observed := s.pools(in, few[:0], none)
	if !observed {
		return gate.Reading{Reason: v1alpha1.ReadingNotObserved, Subject: s.missing}
	}
	for i := range pools {
		p := &pools[i]
		if !p.complete() {
			return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingPoolIncomplete, Subject: fmt.Sprintf(
				"pool %s of DRA driver %s, with %d of %d ResourceSlices of generation %d,", p.name, s.query.Driver, p.number, p.want, p.generation)}
		}
	}
	switch {
	case len(pools) == 0:
		return none
	case s.minDevices > 0:
		return s.readDevices(pools, in.DeviceTaintRules)
	}
	return gate.Reading{State: gate.Holds, Reason: v1alpha1.ReadingMatches, Subject: s.complete}
}

// pools returns the node's pools, the reading if there is none, and whether they have been
// observed.
func (s resourceSlices) pools(in gate.Input, pools []pool, none gate.Reading) ([]pool, gate.Reading, bool) {
	switch {
	case s.query.Pools == v1alpha1.PoolsShared:
		all, observed := in.SharedPools[s.query]
		return sharedPools(all, placement(in), pools), none, observed
	case s.minDevices > 0:
		local := poolList{all: pools}
		all, observed := in.Devices[s.query]
		for i := range all {
			local, none = addOwn(local, none, &all[i].ResourceSlice, &all[i].Devices, in)
		}
		return local.all, none, observed
	}
	local := poolList{all: pools}
	all, observed := in.ResourceSlices[s.query.Driver]
	for i := range all {
		local, none = addOwn(local, none, &all[i], nil, in)
	}
	return local.all, none, observed
}

// addOwn adds a slice to its pool if the node owns it. Otherwise, it changes the reading for
// the case that there is no pool.
func addOwn(pools poolList, none gate.Reading, slice *gate.ResourceSlice, devices *gate.Devices, in gate.Input) (poolList, gate.Reading) {
	switch slice.Owner {
	case in.Node.UID:
		pools = pools.count(slice, devices)
	case "":
		none.Reason, none.Subject = v1alpha1.ReadingNotOwned, "ResourceSlice "+slice.Name
	default:
		none.Reason, none.Subject = v1alpha1.ReadingFormerNode, "ResourceSlice "+slice.Name
	}
	return pools, none
}

// Needs implements gate.Signal.
func (s resourceSlices) Needs(*gate.DaemonSets) gate.Needs {
	if s.query.Pools == v1alpha1.PoolsShared || s.minDevices > 0 {
		return gate.Needs{Devices: []gate.DeviceQuery{s.query}}
	}
	return gate.Needs{ResourceSlices: []string{s.query.Driver}}
}
