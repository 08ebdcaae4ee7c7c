// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"fmt"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// resourceSlices holds when everything that a DRA driver offers on the node has been
// published. It cannot determine the boot in which that happened, but a kubelet deletes
// its node's slices when it starts.
type resourceSlices struct {
	levelSignal
	driver string
	// missing and complete are the subjects of readings when there is no slice, and
	// when all slices exist.
	missing, complete string
}

func newResourceSlices(spec *v1alpha1.ResourceSlicesSignal) gate.Signal {
	return resourceSlices{
		driver:   spec.Driver,
		missing:  "ResourceSlice of DRA driver " + spec.Driver,
		complete: "every pool of DRA driver " + spec.Driver,
	}
}

// pool is the newest generation of a pool: want is the number of its slices, number how
// many of them exist.
type pool struct {
	name                     string
	generation, want, number int64
}

func (p *pool) complete() bool { return p.number == p.want }

// Read implements gate.Signal. If several pools are incomplete, it returns the first
// one.
func (s resourceSlices) Read(in gate.Input) gate.Reading {
	r := gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingMissing, Subject: s.missing}
	published, observed := in.ResourceSlices[s.driver]
	if !observed {
		r.State, r.Reason = gate.Unknown, v1alpha1.ReadingNotObserved
		return r
	}
	var few [4]pool // a node has few
	pools := few[:0]
	for i := range published {
		switch slice := &published[i]; slice.Owner {
		case in.Node.UID:
			pools = count(pools, slice)
		case "":
			r.Reason, r.Subject = v1alpha1.ReadingNotOwned, "ResourceSlice "+slice.Name
		default:
			r.Reason, r.Subject = v1alpha1.ReadingFormerNode, "ResourceSlice "+slice.Name
		}
	}
	for i := range pools {
		p := &pools[i]
		if !p.complete() {
			return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingPoolIncomplete, Subject: fmt.Sprintf(
				"pool %s of DRA driver %s, with %d of %d ResourceSlices of generation %d,", p.name, s.driver, p.number, p.want, p.generation)}
		}
	}
	if len(pools) == 0 {
		return r
	}
	return gate.Reading{State: gate.Holds, Reason: v1alpha1.ReadingMatches, Subject: s.complete}
}

// count adds a slice to its pool, unless the pool has a newer generation.
func count(pools []pool, slice *gate.ResourceSlice) []pool {
	for i := range pools {
		p := &pools[i]
		if p.name != slice.Pool {
			continue
		}
		switch {
		case slice.Generation > p.generation:
			*p = pool{name: p.name, generation: slice.Generation, want: slice.Count, number: 1}
		case slice.Generation == p.generation:
			p.number++
		}
		return pools
	}
	return append(pools, pool{name: slice.Pool, generation: slice.Generation, want: slice.Count, number: 1})
}

// Needs implements gate.Signal.
func (s resourceSlices) Needs(*gate.DaemonSets) gate.Needs {
	return gate.Needs{ResourceSlices: []string{s.driver}}
}
