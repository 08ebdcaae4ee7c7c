// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
	signals "github.com/nodegate/nodegate/internal/signal"
)

// deviceFleet has the ResourceSlices of one driver and DeviceTaintRules, and a node that
// the decisions are about.
type deviceFleet struct {
	pools  v1alpha1.DevicePools
	min    int32
	gates  []gate.Signal // without and with minDevices
	local  *ResourceSlices
	shared *SharedSlices
	rules  *DeviceTaintRules

	node     corev1.Node
	byName   map[string]*resourcev1.ResourceSlice
	ruleObjs map[string]*gate.DeviceTaintRule
	number   int // of devices so far, whose names are unique
}

const onlyModel = `device.attributes["gpu.example.com"].model == "x"`

// The signal holds exactly if the scheduler's allocator can allocate all devices of the
// node, for which every pool must be complete, and minDevices devices that match the
// selectors.
func TestDevicesAreThoseOfTheScheduler(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newDeviceFleet(t)
		t.Repeat(map[string]func(*rapid.T){
			"slice":         f.putSlice,
			"another slice": f.putSlice,
			"slice deleted": f.dropSlice,
			"rule":          f.putRule,
			"rule deleted":  f.dropRule,
			"label": func(t *rapid.T) {
				f.node.Labels = map[string]string{"rack": rapid.SampledFrom([]string{"1", "2"}).Draw(t, "rack")}
			},
			"": f.compare,
		})
	})
}

func newDeviceFleet(t *rapid.T) *deviceFleet {
	f := &deviceFleet{byName: map[string]*resourcev1.ResourceSlice{}, ruleObjs: map[string]*gate.DeviceTaintRule{}}
	f.pools = rapid.SampledFrom([]v1alpha1.DevicePools{v1alpha1.PoolsNodeLocal, v1alpha1.PoolsShared, v1alpha1.PoolsShared}).Draw(t, "pools")
	f.min = rapid.Int32Range(1, 4).Draw(t, "minDevices")
	f.node.Name, f.node.UID = "n1", "u"
	var needs gate.Needs
	for _, least := range []int32{0, f.min} {
		spec := &v1alpha1.ResourceSlicesSignal{Driver: draDriver, Pools: f.pools, MinDevices: least}
		if least > 0 {
			spec.Selectors = []v1alpha1.DeviceSelector{{CEL: v1alpha1.CELDeviceSelector{Expression: onlyModel}}}
		}
		ng := &v1alpha1.NodeGate{}
		ng.Spec.OpenWhen = []v1alpha1.Signal{{Name: "devices", SignalSource: v1alpha1.SignalSource{ResourceSlices: spec}}}
		g, err := signals.Compile(ng, v1alpha1.SourceCRD)
		if err != nil {
			t.Fatal(err)
		}
		f.gates = append(f.gates, g.Signals[0].Signal)
		needs.Add(g.Needs(nil))
	}
	nodes, ignore := nodestore.New(nodestore.Options{}), func(gate.Aspect) func(string) { return IgnoreNode }
	for source, of := range NewNeeds(needs).Slices {
		if source.Shared {
			f.shared = NewSharedSlices(nodes, of.Queries, ignore)
		} else {
			f.local = NewResourceSlices(nodes, source.Driver, of, ignore)
		}
	}
	f.rules = NewDeviceTaintRules(func(*gate.DeviceTaintRule) {})
	return f
}

func (f *deviceFleet) putSlice(t *rapid.T) {
	o := &resourcev1.ResourceSlice{}
	o.Name = rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "slice")
	o.Spec.Driver = draDriver
	o.Spec.Pool = resourcev1.ResourcePool{
		Name: rapid.SampledFrom([]string{"p", "p", "q"}).Draw(t, "pool"), Generation: rapid.Int64Range(1, 2).Draw(t, "generation"),
		ResourceSliceCount: rapid.Int64Range(1, 3).Draw(t, "count"),
	}
	for range rapid.IntRange(1, 3).Draw(t, "devices") {
		f.number++
		d := resourcev1.Device{Name: fmt.Sprintf("d%d", f.number)}
		model := rapid.SampledFrom([]string{"x", "x", "y"}).Draw(t, "model")
		d.Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: &model}}
		if effect := rapid.SampledFrom([]resourcev1.DeviceTaintEffect{"", "", "", "None", "NoSchedule", "NoExecute"}).Draw(t, "effect"); effect != "" {
			d.Taints = []resourcev1.DeviceTaint{{Key: "k", Effect: effect}}
		}
		o.Spec.Devices = append(o.Spec.Devices, d)
	}
	if f.pools == v1alpha1.PoolsNodeLocal {
		o.Spec.NodeName = &f.node.Name
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: f.node.Name, UID: f.node.UID}}
	} else {
		share(t, o)
	}
	f.byName[o.Name] = o
	if f.local != nil {
		f.local.Put(f.local.Convert(o))
	} else {
		f.shared.Put(f.shared.Convert(o))
	}
}

// share draws the nodes that can reach a slice.
func share(t *rapid.T, o *resourcev1.ResourceSlice) {
	rack := func() *corev1.NodeSelector {
		return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "rack", Operator: corev1.NodeSelectorOpIn, Values: []string{rapid.SampledFrom([]string{"1", "2"}).Draw(t, "reach")}},
		}}}}
	}
	switch kind := rapid.SampledFrom([]string{"rack", "rack", "all", "per device", "counters"}).Draw(t, "nodes"); kind {
	case "rack":
		o.Spec.NodeSelector = rack()
	case "all":
		o.Spec.AllNodes = new(true)
	case "counters":
		o.Spec.Devices, o.Spec.NodeSelector = nil, rack()
		o.Spec.SharedCounters = []resourcev1.CounterSet{{Name: "set-" + o.Name}}
	default:
		o.Spec.PerDeviceNodeSelection = new(true)
		for i := range o.Spec.Devices {
			switch d := &o.Spec.Devices[i]; rapid.SampledFrom([]string{"rack", "name", "all"}).Draw(t, "device's nodes") {
			case "rack":
				d.NodeSelector = rack()
			case "name":
				d.NodeName = new(rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "device's node"))
			default:
				d.AllNodes = new(true)
			}
		}
	}
}

func (f *deviceFleet) dropSlice(t *rapid.T) {
	if len(f.byName) == 0 {
		t.Skip("no slice")
	}
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(f.byName))).Draw(t, "slice")
	if f.local != nil {
		f.local.Drop(f.local.Convert(f.byName[name]))
	} else {
		f.shared.Drop(f.shared.Convert(f.byName[name]))
	}
	delete(f.byName, name)
}

func (f *deviceFleet) putRule(t *rapid.T) {
	name := rapid.SampledFrom([]string{"r", "s"}).Draw(t, "rule")
	selector := map[string]any{}
	for field, values := range map[string][]string{
		"driver": {"", "gpu.example.com", "other"}, "pool": {"", "p", "q"}, "device": {"", fmt.Sprintf("d%d", f.number), fmt.Sprintf("d%d", f.number-1)},
	} {
		if value := rapid.SampledFrom(values).Draw(t, field); value != "" {
			selector[field] = value
		}
	}
	o := taintRule(name, selector, rapid.SampledFrom([]string{"None", "NoSchedule", "NoExecute"}).Draw(t, "effect"))
	f.rules.Put(ConvertDeviceTaintRule(o))
	f.ruleObjs[name] = ConvertDeviceTaintRule(o).rule
}

func (f *deviceFleet) dropRule(*rapid.T) {
	for name := range f.ruleObjs {
		f.rules.Drop(&DeviceTaintRule{name: name})
	}
	clear(f.ruleObjs)
}

func (f *deviceFleet) compare(t *rapid.T) {
	facts := gate.Facts{DeviceTaintRules: f.rules.All()}
	facts.Node.Name, facts.Node.UID, facts.Node.Labels = f.node.Name, f.node.UID, f.node.Labels
	for _, s := range f.gates {
		for source, of := range NewNeeds(s.Needs(nil)).Slices {
			AddSlices(&facts, source, of, f.local, f.shared)
		}
	}
	complete := f.allocates(t, &resourcev1.ExactDeviceRequest{
		AllocationMode: resourcev1.DeviceAllocationModeAll, Tolerations: []resourcev1.DeviceToleration{{Operator: resourcev1.DeviceTolerationOpExists}},
	}, f.reached(t))
	enough := f.allocates(t, &resourcev1.ExactDeviceRequest{
		AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: int64(f.min),
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: onlyModel}}},
	}, f.reached(t))
	for i, want := range []bool{complete, complete && enough} {
		if r := f.gates[i].Read(gate.Input{Facts: &facts}); (r.State == gate.Holds) != want || r.State == gate.Unknown {
			t.Fatalf("gate %d (at least %d devices): %s %s, but the scheduler allocates all: %v, and enough: %v\nnode %v\nslices %s\nrules %v",
				i, f.min, r.State, r.Message(), complete, enough, f.node.Labels, f.describe(), f.ruleObjs)
		}
	}
}

// reached returns the slices, with the taints of rules, of the pools that have devices which
// the node can reach. The allocator also considers pools that have only counters for it.
func (f *deviceFleet) reached(t *rapid.T) (all []*resourcev1.ResourceSlice) {
	pools := map[string]bool{}
	for _, o := range f.byName {
		matches := func(name *string, every *bool, selector *corev1.NodeSelector) {
			match, err := structured.NodeMatches(allocatorFeatures, &f.node, ptr.Deref(name, ""), ptr.Deref(every, false), selector)
			if err != nil {
				t.Fatal(err)
			}
			pools[o.Spec.Pool.Name] = pools[o.Spec.Pool.Name] || match && len(o.Spec.Devices) > 0
		}
		matches(o.Spec.NodeName, o.Spec.AllNodes, o.Spec.NodeSelector)
		for _, d := range o.Spec.Devices {
			matches(d.NodeName, d.AllNodes, d.NodeSelector)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.byName)) {
		o := f.byName[name].DeepCopy()
		for i := range o.Spec.Devices {
			d := &o.Spec.Devices[i]
			for _, r := range f.ruleObjs {
				if r != nil && (r.Driver == "" || r.Driver == draDriver) && (r.Pool == "" || r.Pool == o.Spec.Pool.Name) && (r.Device == "" || r.Device == d.Name) {
					d.Taints = append(d.Taints, resourcev1.DeviceTaint{Key: "rule", Effect: resourcev1.DeviceTaintEffectNoSchedule})
				}
			}
		}
		if pools[o.Spec.Pool.Name] {
			all = append(all, o)
		}
	}
	return all
}

var allocatorFeatures = structured.Features{DeviceTaints: true, PartitionableDevices: true}

// anyDevice is a DeviceClass that selects every device.
type anyDevice struct{}

func (anyDevice) List() ([]*resourcev1.DeviceClass, error) { return nil, nil }
func (anyDevice) Get(name string) (*resourcev1.DeviceClass, error) {
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

// celCache has the allocator's compiled selectors.
var celCache = dracel.NewCache(10, dracel.Features{})

// allocates reports whether the scheduler's allocator can allocate what is requested on the
// node.
func (f *deviceFleet) allocates(t *rapid.T, request *resourcev1.ExactDeviceRequest, all []*resourcev1.ResourceSlice) bool {
	request.DeviceClassName = "any"
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: "claim"}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "devices", Exactly: request}}
	allocator, err := structured.NewAllocator(t.Context(), allocatorFeatures, structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](),
	}, anyDevice{}, all, celCache)
	if err != nil {
		t.Fatal(err)
	}
	results, err := allocator.Allocate(t.Context(), &f.node, []*resourcev1.ResourceClaim{claim})
	if err != nil && !errors.Is(err, structured.ErrFailedAllocationOnNode) && !strings.Contains(err.Error(), "is currently being updated") {
		t.Fatal(err)
	}
	return len(results) > 0
}

func (f *deviceFleet) describe() string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(f.byName)) {
		fmt.Fprintf(&text, "\n%s: %s", name, f.byName[name].Spec.String())
	}
	return text.String()
}
