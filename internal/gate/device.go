// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// DeviceQuery selects pools of a DRA driver, and specifies what is to be known about
// their devices. Node-local pools whose devices are not counted need no query (see
// Needs.ResourceSlices).
type DeviceQuery struct {
	Driver string
	Pools  v1alpha1.DevicePools
	// Selectors contains the CEL expressions that select the devices to count, in a form
	// that can be compared (see SelectorsOf). Empty if devices are not counted.
	Selectors string
}

// SelectorsOf returns CEL expressions in the form of DeviceQuery.Selectors. Without an
// expression, all devices are counted.
func SelectorsOf(expressions []string) string {
	text, _ := json.Marshal(append([]string{}, expressions...)) // cannot fail for strings
	return string(text)
}

// Counts reports whether devices are counted.
func (q DeviceQuery) Counts() bool { return q.Selectors != "" }

// Expressions returns the CEL expressions that select the devices.
func (q DeviceQuery) Expressions() (all []string) {
	if q.Counts() {
		_ = json.Unmarshal([]byte(q.Selectors), &all) // SelectorsOf has written it
	}
	return all
}

// Aspect returns the aspect of a node that consists of what the query finds.
func (q DeviceQuery) Aspect() Aspect {
	return Aspect{Kind: AspectDevices, Name: fmt.Sprintf("%s %s %s", q.Driver, q.Pools, q.Selectors)}
}

// CompareDeviceQueries orders queries.
func CompareDeviceQueries(a, b DeviceQuery) int {
	return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Pools, b.Pools), cmp.Compare(a.Selectors, b.Selectors))
}

// Devices is what is known about the devices of a slice, or of a part of it, for a query
// that counts them. The devices themselves are not stored.
type Devices struct {
	// Names contains the names of the usable devices, separated by commas: those that
	// the query selects and that have no taint in the slice that keeps pods off.
	// FailedNames contains those whose selectors could not be evaluated.
	Names, FailedNames string
	// Taint is the first such taint, with the name of its device. Error is the first error
	// of a selector, with the name of the device. Empty if there is none.
	Taint, Error string
	// Usable, Tainted and Failed are the numbers of devices that are in Names, that have
	// such a taint, and that are in FailedNames.
	Usable, Tainted, Failed int32
}

// DeviceSlice is a ResourceSlice of a node-local pool with its devices.
type DeviceSlice struct {
	ResourceSlice
	Devices
}

// SharedPools contains the shared pools of a driver, sorted by name. It is immutable.
type SharedPools []SharedPool

// SharedPool is a pool whose slices name no node. The slices are sorted by name.
type SharedPool struct {
	Name   string
	Slices []SharedSlice
}

// SharedSlice is a ResourceSlice of a shared pool.
type SharedSlice struct {
	Name, Pool        string
	Generation, Count int64
	// Counters is true if the slice has shared counters instead of devices. Such a slice is
	// part of the pool on all nodes.
	Counters bool
	// Groups contains the devices, divided by the nodes that can reach them.
	Groups []DeviceGroup
}

// DeviceGroup contains those devices of a slice that the same nodes can reach.
type DeviceGroup struct {
	Nodes NodeSet
	Devices
}

// Equal reports whether two slices are equal.
func (s *SharedSlice) Equal(other *SharedSlice) bool {
	return s.Name == other.Name && s.Pool == other.Pool && s.Generation == other.Generation && s.Count == other.Count && s.Counters == other.Counters &&
		slices.EqualFunc(s.Groups, other.Groups, func(a, b DeviceGroup) bool { return a.Nodes.Equal(b.Nodes) && a.Devices == b.Devices })
}

// NodeSet is the set of nodes that can reach devices. It is immutable.
type NodeSet struct {
	name, text string
	all        bool
	selector   *nodeaffinity.NodeSelector
}

// NewNodeSet returns the set of one node by its name, of all nodes, or of the nodes that
// match a selector, in this order of precedence. It is empty if none of them is set, or if
// the selector is invalid.
func NewNodeSet(name string, all bool, selector *corev1.NodeSelector) NodeSet {
	switch {
	case name != "":
		return NodeSet{name: name}
	case all:
		return NodeSet{all: true}
	case selector == nil:
		return NodeSet{}
	}
	compiled, err := nodeaffinity.NewNodeSelector(selector)
	if err != nil {
		return NodeSet{}
	}
	return NodeSet{selector: compiled, text: selector.String()}
}

// Equal reports whether two sets are defined in the same way.
func (s *NodeSet) Equal(other NodeSet) bool {
	return s.name == other.name && s.all == other.all && s.text == other.text
}

// Has reports whether the set contains a node, whose name and labels are set.
func (s *NodeSet) Has(node *corev1.Node) bool {
	switch {
	case s.name != "":
		return s.name == node.Name
	case s.selector != nil:
		return s.selector.Match(node)
	}
	return s.all
}

// DeviceTaintRules contains the DeviceTaintRules whose taint keeps pods off, sorted by
// name. It is immutable.
type DeviceTaintRules []DeviceTaintRule

// DeviceTaintRule taints devices. An empty name selects every driver, pool or device.
type DeviceTaintRule struct {
	Name, Driver, Pool, Device string
	// Taint is the taint in text form.
	Taint string
}

// Selects reports whether the rule taints devices of a pool.
func (r *DeviceTaintRule) Selects(driver, pool string) bool {
	return (r.Driver == "" || r.Driver == driver) && (r.Pool == "" || r.Pool == pool)
}

// Apply returns the devices of a pool with the rules applied. A device that a rule taints is
// not usable, whatever the selectors' result.
func (all DeviceTaintRules) Apply(driver, pool string, d Devices) Devices {
	if !slices.ContainsFunc(all, func(r DeviceTaintRule) bool { return r.Selects(driver, pool) }) {
		return d
	}
	first := func(name string) int {
		return slices.IndexFunc(all, func(r DeviceTaintRule) bool {
			return name != "" && r.Selects(driver, pool) && (r.Device == "" || r.Device == name)
		})
	}
	for name := range strings.SplitSeq(d.FailedNames, ",") {
		if first(name) >= 0 {
			d.Failed--
		}
	}
	if d.Failed == 0 {
		d.Error = ""
	}
	for name := range strings.SplitSeq(d.Names, ",") {
		i := first(name)
		if i < 0 {
			continue
		}
		d.Usable--
		d.Tainted++
		if d.Taint == "" {
			d.Taint = all[i].Taint + " on device " + name + " by DeviceTaintRule " + all[i].Name
		}
	}
	return d
}
