// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/facts"
)

// pool is a pool of devices, as far as its ResourceSlices have been published.
type pool struct {
	generation, slices, want int64
	usable                   int32
}

// resourceSlices returns the reading of a signal about a DRA driver's pools on the node. It
// does not judge selectors, shared pools and DeviceTaintRules; the latter can only reduce the
// number of usable devices.
func (l evaluator) resourceSlices(s *v1alpha1.ResourceSlicesSignal) (reading, string) {
	if s.Pools == v1alpha1.PoolsShared || len(s.Selectors) > 0 {
		return notJudged, "signal resourceSlices with shared pools or selectors"
	}
	pools, usable := l.poolsOf(s.Driver), int32(0)
	for name, p := range pools {
		if p.slices != p.want {
			return notYet, fmt.Sprintf("pool %s has %d of %d ResourceSlices", name, p.slices, p.want)
		}
		usable += p.usable
	}
	switch {
	case len(pools) == 0:
		return notYet, "the Node owns no ResourceSlice of driver " + s.Driver
	case usable < s.MinDevices:
		return notYet, fmt.Sprintf("%d devices are usable", usable)
	case s.MinDevices > 0:
		return l.doubtful, "signal resourceSlices with minDevices, unless too few devices are usable"
	}
	return holds, ""
}

// poolsOf returns the newest generation of each pool of a driver that belongs to the Node.
func (l evaluator) poolsOf(driver string) map[string]pool {
	pools := make(map[string]pool)
	for _, slice := range l.ResourceSlices(l.node.Name) {
		spec := &slice.Spec
		if spec.Driver != driver || !facts.OwnedBy(slice, l.node.UID) {
			continue
		}
		p := pools[spec.Pool.Name]
		if spec.Pool.Generation > p.generation || p.slices == 0 {
			p = pool{generation: spec.Pool.Generation, want: spec.Pool.ResourceSliceCount}
		}
		if spec.Pool.Generation == p.generation {
			p.slices++
			p.usable += usableOf(spec.Devices)
		}
		pools[spec.Pool.Name] = p
	}
	return pools
}

// usableOf returns the number of devices without a taint that keeps pods off.
func usableOf(devices []resourcev1.Device) (n int32) {
	repels := func(t resourcev1.DeviceTaint) bool {
		return t.Effect == resourcev1.DeviceTaintEffectNoSchedule || t.Effect == resourcev1.DeviceTaintEffectNoExecute
	}
	for i := range devices {
		if !slices.ContainsFunc(devices[i].Taints, repels) {
			n++
		}
	}
	return n
}
