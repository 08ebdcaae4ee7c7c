// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
)

// counting returns a query that counts the devices of node-local pools.
func counting(expressions ...string) gate.DeviceQuery {
	return gate.DeviceQuery{Driver: draDriver, Pools: v1alpha1.PoolsNodeLocal, Selectors: gate.SelectorsOf(expressions)}
}

// sharing returns a query that counts all devices of shared pools.
func sharing() gate.DeviceQuery {
	query := counting()
	query.Pools = v1alpha1.PoolsShared
	return query
}

// withDevices adds devices to a slice. A device is described by its name, and optionally
// the value of its attribute model and the effect of a taint: name=model:effect.
func withDevices(o *resourcev1.ResourceSlice, described ...string) *resourcev1.ResourceSlice {
	for _, text := range described {
		text, effect, tainted := strings.Cut(text, ":")
		name, model, has := strings.Cut(text, "=")
		d := resourcev1.Device{Name: name}
		if has {
			d.Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: &model}}
		}
		if tainted {
			d.Taints = []resourcev1.DeviceTaint{{Key: "example.com/info", Effect: "None"}, {Key: "example.com/sick", Effect: resourcev1.DeviceTaintEffect(effect)}}
		}
		o.Spec.Devices = append(o.Spec.Devices, d)
	}
	return o
}

// sharedSlice returns a slice of the pool "shared", which has count slices, for the nodes with a label.
func sharedSlice(name string, count int64, label string) *resourcev1.ResourceSlice {
	o := testSlice(name, "", "", 1, count)
	o.OwnerReferences, o.Spec.NodeName, o.Spec.Pool.Name = nil, nil, "shared"
	o.Spec.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: label, Operator: corev1.NodeSelectorOpExists},
	}}}}
	return o
}

func taintRule(name string, selector map[string]any, effect string) *unstructured.Unstructured {
	spec := map[string]any{"taint": map[string]any{"key": "example.com/rule", "value": "v", "effect": effect}}
	if selector != nil {
		spec["deviceSelector"] = selector
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

func TestCountDevices(t *testing.T) {
	const model = `device.attributes["gpu.example.com"].model`
	for name, tt := range map[string]struct {
		selectors []string
		devices   []string
		want      gate.Devices
	}{
		"none":         {nil, nil, gate.Devices{}},
		"all":          {nil, []string{"a", "b=x"}, gate.Devices{Names: "a,b", Usable: 2}},
		"tainted":      {nil, []string{"a:NoSchedule", "b:NoExecute", "c:None", "d:Unheard"}, gate.Devices{Names: "c,d", Usable: 2, Tainted: 2, Taint: "example.com/sick:NoSchedule on device a"}},
		"selected":     {[]string{model + ` == "x"`}, []string{"a=x", "b=y", "c=x"}, gate.Devices{Names: "a,c", Usable: 2}},
		"not selected": {[]string{model + ` == "x"`}, []string{"a=y:NoSchedule", "b:NoSchedule"}, gate.Devices{}},
		"by all":       {[]string{model + ` != "x"`, model + ` != "y"`}, []string{"a=x", "b=y", "c=z"}, gate.Devices{Names: "c", Usable: 1}},
		"fails": {[]string{model + ` == "x"`}, []string{"a=x", "b", "c"}, gate.Devices{Names: "a", FailedNames: "b,c", Usable: 1, Failed: 2,
			Error: "device b: no such key: model. consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields"}},
		"invalid": {[]string{"device.x"}, []string{"a"}, gate.Devices{FailedNames: "a", Failed: 1, Error: "device a: line 1, column 7: undefined field 'x'"}},
	} {
		o := withDevices(testSlice("s", "n", "u", 1, 1), tt.devices...)
		s := NewResourceSlices(nodestore.New(nodestore.Options{}), draDriver, SliceNeeds{Queries: []gate.DeviceQuery{counting(tt.selectors...)}}, func(gate.Aspect) func(string) { return IgnoreNode })
		if got := s.Convert(o).devices; !reflect.DeepEqual(got, []gate.Devices{tt.want}) {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// A device with a capacity that is expensive to compare counts like one whose selector
// fails. A kubelet can publish it for its own node, and comparing it would delay the devices
// of all nodes.
func TestCapacityOutOfRange(t *testing.T) {
	const memory = `device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0`
	failed := gate.Devices{Names: "b", FailedNames: "a", Usable: 1, Failed: 1, Error: "device a: capacity memory: quantity out of range: more than 1e+200"}
	for name, tt := range map[string]struct {
		selectors []string
		want      gate.Devices
	}{
		"read by a selector":     {[]string{memory}, failed},
		"not read by a selector": {[]string{`device.driver == "gpu.example.com"`}, failed},
		"without a selector":     {nil, gate.Devices{Names: "a,b", Usable: 2}},
	} {
		o := withDevices(testSlice("s", "n", "u", 1, 1), "a", "b")
		for i, capacity := range []string{"1e201", "80Gi"} {
			o.Spec.Devices[i].Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse(capacity)}}
		}
		s := NewResourceSlices(nodestore.New(nodestore.Options{}), draDriver, SliceNeeds{Queries: []gate.DeviceQuery{counting(tt.selectors...)}}, func(gate.Aspect) func(string) { return IgnoreNode })
		if got := s.Convert(o).devices; !reflect.DeepEqual(got, []gate.Devices{tt.want}) {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// Devices are divided by the nodes that can reach them.
func TestReachOfDevices(t *testing.T) {
	one, two := &corev1.Node{}, &corev1.Node{}
	one.Name, two.Name = "one", "two"
	two.Labels = map[string]string{"rack": "2"}
	perDevice := withDevices(sharedSlice("s", 1, ""), "all", "byName", "byLabel", "alsoAll", "nowhere")
	perDevice.Spec.NodeSelector, perDevice.Spec.PerDeviceNodeSelection = nil, new(true)
	perDevice.Spec.Devices[0].AllNodes, perDevice.Spec.Devices[3].AllNodes = new(true), new(true)
	perDevice.Spec.Devices[1].NodeName, perDevice.Spec.Devices[2].NodeSelector = new("one"), sharedSlice("s", 1, "rack").Spec.NodeSelector
	counters := sharedSlice("s", 1, "rack")
	counters.Spec.SharedCounters = []resourcev1.CounterSet{{Name: "memory"}}
	invalid := withDevices(sharedSlice("s", 1, "not a label"), "a")
	all := withDevices(sharedSlice("s", 1, ""), "a")
	all.Spec.NodeSelector, all.Spec.AllNodes = nil, new(true)
	future := withDevices(sharedSlice("s", 1, ""), "a")
	future.Spec.NodeSelector = nil
	for name, tt := range map[string]struct {
		slice    *resourcev1.ResourceSlice
		one, two string
	}{
		"per device":    {perDevice, "all,alsoAll;byName;", "all,alsoAll;byLabel;"},
		"by label":      {withDevices(sharedSlice("s", 1, "rack"), "a", "b"), "", "a,b;"},
		"without any":   {sharedSlice("s", 1, "rack"), "", ";"},
		"all nodes":     {all, "a;", "a;"},
		"counters":      {counters, "", ""},
		"invalid":       {invalid, "", ""},
		"not known yet": {future, "", ""},
	} {
		s := NewSharedSlices(nodestore.New(nodestore.Options{}), []gate.DeviceQuery{sharing()}, func(gate.Aspect) func(string) { return IgnoreNode })
		fact := s.Convert(tt.slice).facts[0]
		for node, want := range map[*corev1.Node]string{one: tt.one, two: tt.two} {
			var got strings.Builder
			for _, g := range fact.Groups {
				if g.Nodes.Has(node) {
					fmt.Fprintf(&got, "%s;", g.Names)
				}
			}
			if got.String() != want {
				t.Errorf("%s on node %s: %q, want %q", name, node.Name, got.String(), want)
			}
		}
		if fact.Counters != (name == "counters") {
			t.Errorf("%s: counters %v", name, fact.Counters)
		}
	}
}

func TestConvertDeviceTaintRule(t *testing.T) {
	every := gate.DeviceTaintRule{Name: "r", Taint: "example.com/rule=v:NoSchedule"}
	one := gate.DeviceTaintRule{Name: "r", Driver: "d", Pool: "p", Device: "x", Taint: "example.com/rule=v:NoExecute"}
	for name, tt := range map[string]struct {
		rule *unstructured.Unstructured
		want *gate.DeviceTaintRule
	}{
		"every device":     {taintRule("r", map[string]any{}, "NoSchedule"), &every},
		"one device":       {taintRule("r", map[string]any{"driver": "d", "pool": "p", "device": "x"}, "NoExecute"), &one},
		"no selector":      {taintRule("r", nil, "NoSchedule"), nil},
		"without effect":   {taintRule("r", map[string]any{}, "None"), nil},
		"unknown effect":   {taintRule("r", map[string]any{}, "Later"), nil},
		"of another shape": {&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "r"}, "spec": "x"}}, nil},
	} {
		if got := ConvertDeviceTaintRule(tt.rule); got.name != "r" || !reflect.DeepEqual(got.rule, tt.want) {
			t.Errorf("%s: %+v, want %+v", name, got.rule, tt.want)
		}
	}
}

// Devices are counted when a slice arrives, and exactly the nodes are announced whose
// devices have changed, or are tainted by a rule.
func TestDevicesAreObserved(t *testing.T) {
	query := counting()
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1"))
		api.nodes().Put(kubetest.Node("b", "b1"))
		api.slices(draDriver).Put(withDevices(testSlice("a-x", "a", "a1", 1, 1), "gpu-0", "gpu-1"))
		api.slices(draDriver).Put(withDevices(testSlice("b-x", "b", "b1", 1, 1), "gpu-0", "gpu-1"))
	}, func(t *testing.T, f *testFeed) {
		dra, rules := f.api.slices(draDriver), f.api.rules()
		f.SetNeeds(gate.Needs{Devices: []gate.DeviceQuery{query}})
		f.handler.take()
		facts := f.facts(t, "a")
		if got := facts.Devices[query]; len(got) != 1 || got[0].Names != "gpu-0,gpu-1" || facts.DeviceTaintRules == nil || facts.ResourceSlices != nil {
			t.Fatalf("facts %+v, rules %v", got, facts.DeviceTaintRules)
		}
		irrelevant := withDevices(testSlice("a-x", "a", "a1", 1, 1), "gpu-0=x", "gpu-1")
		dra.Put(irrelevant)
		f.wantChanged(t, "attribute that no selector reads")
		dra.Put(withDevices(testSlice("a-x", "a", "a1", 1, 1), "gpu-0", "gpu-1:NoSchedule"))
		f.wantChanged(t, "taint of the driver", "a")

		rules.Put(taintRule("b", map[string]any{"pool": "b"}, "NoSchedule"))
		f.wantChanged(t, "rule for a pool", "b")
		rules.Put(taintRule("b", map[string]any{"pool": "a"}, "NoSchedule"))
		f.wantChanged(t, "rule for another pool", "a", "b")
		if got := f.facts(t, "a").DeviceTaintRules; len(*got) != 1 || (*got)[0].Pool != "a" {
			t.Errorf("rules %+v", got)
		}
		rules.Put(taintRule("c", map[string]any{"driver": "other"}, "NoSchedule"))
		f.wantChanged(t, "rule for another driver")
		rules.Put(taintRule("b", map[string]any{"pool": "a"}, "None"))
		f.wantChanged(t, "rule without effect", "a")
		rules.Put(taintRule("b", map[string]any{"pool": "a"}, "NoExecute"))
		f.wantChanged(t, "rule with effect", "a")
		rules.remove("b")
		f.wantChanged(t, "rule deleted", "a")

		// A gate that does not count devices joins: both get what they need.
		f.SetNeeds(gate.Needs{Devices: []gate.DeviceQuery{query}, ResourceSlices: []string{draDriver}})
		synctest.Wait()
		if facts := f.facts(t, "a"); len(facts.Devices[query]) != 1 || len(facts.ResourceSlices[draDriver]) != 1 {
			t.Errorf("facts %+v %+v", facts.Devices, facts.ResourceSlices)
		}
		if facts, _ := f.FactsOf("a", &gate.Needs{ResourceSlices: []string{draDriver}}); facts.Devices != nil || len(facts.ResourceSlices) != 1 {
			t.Errorf("facts of one gate: %+v", facts)
		}
	})
}

// Rules that cannot be read are unknown, but do not make nodegate unready.
func TestDeviceTaintRulesForbidden(t *testing.T) {
	query := counting()
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1"))
		api.rules().set(errForbidden)
	}, func(t *testing.T, f *testFeed) {
		f.SetNeeds(gate.Needs{Devices: []gate.DeviceQuery{query}})
		kubetest.Pass(time.Second)
		if facts := f.facts(t, "a"); facts.DeviceTaintRules != nil {
			t.Errorf("rules %+v", facts.DeviceTaintRules)
		}
		if got := f.Unsynced(); len(got) > 0 {
			t.Errorf("unsynced = %v", got)
		}
		f.handler.take()
		f.api.rules().set(nil)
		kubetest.Pass(time.Minute)
		if _, gates := f.handler.take(); gates == 0 || f.facts(t, "a").DeviceTaintRules == nil {
			t.Errorf("rules are not observed although they can be read (announced %d times)", gates)
		}
	})
}

// Shared slices are observed by a watch of their own, and a change concerns all nodes.
func TestSharedSlicesAreObserved(t *testing.T) {
	plain, counted := gate.DeviceQuery{Driver: draDriver, Pools: v1alpha1.PoolsShared}, sharing()
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1"))
		api.nodes().Put(kubetest.Node("b", "b1"))
	}, func(t *testing.T, f *testFeed) {
		shared := f.api.sharedSlices(draDriver)
		f.SetNeeds(gate.Needs{Devices: []gate.DeviceQuery{plain, counted}})
		f.handler.take()
		if pools, observed := f.facts(t, "a").SharedPools[plain]; !observed || len(pools) > 0 || f.api.slices(draDriver).calls > 0 {
			t.Errorf("pools %v, observed %v", pools, observed)
		}
		shared.Put(withDevices(sharedSlice("x", 2, "rack"), "d0"))
		f.wantChanged(t, "new slice", "a", "b")
		shared.Put(withDevices(sharedSlice("x", 2, "rack"), "d0=model"))
		f.wantChanged(t, "irrelevant change")
		shared.Put(withDevices(sharedSlice("y", 2, "rack"), "d1:NoExecute"))
		f.wantChanged(t, "second slice", "a", "b")
		facts := f.facts(t, "b")
		if p := facts.SharedPools[counted]; len(p) != 1 || len(p[0].Slices) != 2 || p[0].Slices[0].Groups[0].Names != "d0" || p[0].Slices[1].Groups[0].Tainted != 1 {
			t.Errorf("pools %+v", p)
		}
		if p := facts.SharedPools[plain]; len(p) != 1 || len(p[0].Slices) != 2 || p[0].Slices[0].Groups[0].Usable != 0 {
			t.Errorf("pools whose devices are not counted: %+v", p)
		}
		f.api.rules().Put(taintRule("r", map[string]any{"device": "d0"}, "NoSchedule"))
		f.wantChanged(t, "rule", "a", "b")
		f.api.rules().Put(taintRule("s", map[string]any{"pool": "other"}, "NoSchedule"))
		f.wantChanged(t, "rule for no pool")
		shared.remove("x")
		f.wantChanged(t, "slice deleted", "a", "b")
		if p := f.facts(t, "a").SharedPools[counted]; len(p) != 1 || len(p[0].Slices) != 1 {
			t.Errorf("pools %+v", p)
		}
	})
}
