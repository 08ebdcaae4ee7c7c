// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// pool is the newest generation of a pool: want is the number of its slices, number how
// many of them exist.
type pool struct {
	name                     string
	generation, want, number int64
	// devices contains the devices of those slices, if they are counted.
	devices []*gate.Devices
}

func (p *pool) complete() bool { return p.number == p.want }

// add adds a slice of the pool's generation.
func (p *pool) add(devices *gate.Devices) {
	p.number++
	if devices != nil {
		p.devices = append(p.devices, devices)
	}
}

// poolList contains the pools of a node, in the order in which they were found.
type poolList struct {
	all []pool
	// places contains the index of each pool, unless there are few. A node has few, but its
	// kubelet can publish any number.
	places map[string]int
}

// fewPools is the number of pools up to which searching them is faster than a map.
const fewPools = 16

// find returns the index of the pool with the name, or -1.
func (l poolList) find(name string) int {
	if len(l.all) <= fewPools {
		return slices.IndexFunc(l.all, func(p pool) bool { return p.name == name })
	}
	if i, ok := l.places[name]; ok {
		return i
	}
	return -1
}

// count returns the list with the slice in its pool, unless the pool has a newer generation.
func (l poolList) count(slice *gate.ResourceSlice, devices *gate.Devices) poolList {
	i := l.find(slice.Pool)
	switch {
	case i < 0:
		i, l.all = len(l.all), append(l.all, pool{name: slice.Pool, generation: slice.Generation, want: slice.Count})
		l = l.noted(i)
	case slice.Generation < l.all[i].generation:
		return l
	case slice.Generation > l.all[i].generation:
		l.all[i] = pool{name: slice.Pool, generation: slice.Generation, want: slice.Count}
	}
	l.all[i].add(devices)
	return l
}

// noted returns the list with the place of the pool that was added at index i.
func (l poolList) noted(i int) poolList {
	if i < fewPools {
		return l
	}
	first := i
	if l.places == nil {
		l.places, first = make(map[string]int), 0
	}
	for ; first <= i; first++ {
		l.places[l.all[first].name] = first
	}
	return l
}

// sharedPools returns the shared pools that have devices which the node can reach. It
// determines their generation and whether they are complete as the scheduler does, see
// GatherPools in k8s.io/dynamic-resource-allocation/structured.
func sharedPools(all gate.SharedPools, node *corev1.Node, pools []pool) []pool {
	for i := range all {
		if p, has := sharedPool(&all[i], node); has {
			pools = append(pools, p)
		}
	}
	return pools
}

// sharedPool returns a pool as the node sees it: only slices that the node can reach
// determine the generation. It returns false if the pool has no devices for the node.
func sharedPool(shared *gate.SharedPool, node *corev1.Node) (p pool, has bool) {
	for i := range shared.Slices {
		slice := &shared.Slices[i]
		devices := reachable(slice, node)
		has = has || len(devices) > 0
		if len(devices) == 0 && !slice.Counters {
			continue
		}
		switch {
		case p.name == "" || slice.Generation > p.generation:
			p = pool{name: shared.Name, generation: slice.Generation, want: slice.Count}
		case slice.Generation < p.generation:
			continue
		}
		p.number++
		p.devices = append(p.devices, devices...)
	}
	if !has || p.complete() {
		return p, has && len(p.devices) > 0
	}
	// Some of the pool's slices are only for other nodes.
	p.number = 0
	for i := range shared.Slices {
		switch generation := shared.Slices[i].Generation; {
		case generation > p.generation: // the driver is replacing the pool
			return p, false
		case generation == p.generation:
			p.number++
		}
	}
	return p, len(p.devices) > 0 || !p.complete()
}

// reachable returns the devices of a slice that the node can reach, by group.
func reachable(slice *gate.SharedSlice, node *corev1.Node) (all []*gate.Devices) {
	for i := range slice.Groups {
		if g := &slice.Groups[i]; g.Nodes.Has(node) {
			all = append(all, &g.Devices)
		}
	}
	return all
}

// readDevices returns whether complete pools have enough usable devices. It is unknown if
// this depends on devices whose selectors could not be evaluated, or on rules that have not
// been observed.
func (s resourceSlices) readDevices(pools []pool, rules *gate.DeviceTaintRules) gate.Reading {
	var sum gate.Devices
	for i := range pools {
		for _, d := range pools[i].devices {
			of := *d
			if rules != nil {
				of = rules.Apply(s.query.Driver, pools[i].name, of)
			}
			sum.Usable, sum.Tainted, sum.Failed = sum.Usable+of.Usable, sum.Tainted+of.Tainted, sum.Failed+of.Failed
			if sum.Taint == "" && of.Taint != "" {
				sum.Taint = of.Taint + " of pool " + pools[i].name
			}
			if sum.Error == "" && of.Error != "" {
				sum.Error = "pool " + pools[i].name + ", " + of.Error
			}
		}
	}
	switch {
	case sum.Usable >= s.minDevices && rules == nil:
		return gate.Reading{Reason: v1alpha1.ReadingNotObserved, Subject: "the list of DeviceTaintRules"}
	case sum.Usable >= s.minDevices:
		return gate.Reading{State: gate.Holds, Reason: v1alpha1.ReadingMatches, Subject: s.complete}
	case sum.Usable+sum.Failed >= s.minDevices:
		return gate.Reading{Reason: v1alpha1.ReadingExpressionFailed, Subject: sum.Error}
	}
	return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingTooFewDevices, Subject: s.tooFew(&sum)}
}

// tooFew returns the subject of a reading if there are too few usable devices.
func (s resourceSlices) tooFew(sum *gate.Devices) string {
	text := fmt.Sprintf("%d of %d devices of DRA driver %s", sum.Usable, s.minDevices, s.query.Driver)
	if len(s.compiled) > 0 {
		text += " that the selectors select"
	}
	switch {
	case sum.Tainted == 1:
		text += "; 1 carries a taint: " + sum.Taint
	case sum.Tainted > 1:
		text += fmt.Sprintf("; %d carry a taint, the first: %s", sum.Tainted, sum.Taint)
	}
	if sum.Failed > 0 {
		text += fmt.Sprintf("; the selectors could not be evaluated for %d: %s", sum.Failed, sum.Error)
	}
	return text
}
