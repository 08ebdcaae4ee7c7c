// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// fourDevices requires four usable devices of node-local pools.
var fourDevices = v1alpha1.SignalSource{ResourceSlices: &v1alpha1.ResourceSlicesSignal{Driver: draDriver, MinDevices: 4}}

var fourQuery = gate.DeviceQuery{Driver: draDriver, Pools: v1alpha1.PoolsNodeLocal, Selectors: gate.SelectorsOf(nil)}

// devicesOfU returns a node with the UID u, these slices, and no DeviceTaintRules.
func devicesOfU(list ...gate.DeviceSlice) *world {
	return aNode(func(w *world) {
		w.facts.Node.UID = "u"
		w.facts.Devices = map[gate.DeviceQuery][]gate.DeviceSlice{fourQuery: list}
		w.facts.DeviceTaintRules = &gate.DeviceTaintRules{}
	})
}

// ruled adds DeviceTaintRules.
func ruled(w *world, rules ...gate.DeviceTaintRule) *world {
	all := gate.DeviceTaintRules(rules)
	w.facts.DeviceTaintRules = &all
	return w
}

func unruled(w *world) *world {
	w.facts.DeviceTaintRules = nil
	return w
}

// holding returns a complete pool p with these usable devices, separated by commas.
func holding(names string, change ...func(*gate.Devices)) gate.DeviceSlice {
	s := gate.DeviceSlice{ResourceSlice: part("a", "u", "p", 1, 1), Devices: gate.Devices{Names: names}}
	if names != "" {
		s.Usable = int32(strings.Count(names, ",")) + 1
	}
	for _, f := range change {
		f(&s.Devices)
	}
	return s
}

func in(pool string, s gate.DeviceSlice) gate.DeviceSlice {
	s.Pool, s.Name = pool, "of-"+pool
	return s
}

func sick(d *gate.Devices) { d.Tainted, d.Taint = 2, "k:NoSchedule on device x" }

func failing(d *gate.Devices) {
	d.FailedNames, d.Failed, d.Error = "y", 1, "device y: no such key: model"
}

func TestMinDevices(t *testing.T) {
	const (
		every   = "every pool of DRA driver " + draDriver + ", with at least 4 usable devices,"
		few     = v1alpha1.ReadingTooFewDevices
		of      = " of 4 devices of DRA driver " + draDriver
		missing = "ResourceSlice of DRA driver " + draDriver
	)
	rule := gate.DeviceTaintRule{Name: "r", Taint: "t:NoExecute"}
	forPool, forDevice, forOther, forFailing := rule, rule, rule, rule
	forPool.Pool, forDevice.Device, forOther.Driver, forFailing.Device = "q", "b", "other", "y"
	incomplete := holding("a,b,c,d")
	incomplete.Count = 2
	former := holding("a,b,c,d")
	former.Owner = "former"
	old := holding("a,b,c,d")
	old.Generation, old.Name = 0, "old"
	check(t, mustCompile(t, fourDevices), map[string]reads{
		"enough":                   {devicesOfU(holding("a,b,c,d")), gate.Holds, matches, every},
		"of two pools":             {devicesOfU(holding("a,b"), in("q", holding("a,b,c"))), gate.Holds, matches, every},
		"too few":                  {devicesOfU(holding("a,b")), gate.NotYet, few, "2" + of},
		"none":                     {devicesOfU(holding("")), gate.NotYet, few, "0" + of},
		"tainted":                  {devicesOfU(holding("a,b", sick)), gate.NotYet, few, "2" + of + "; 2 carry a taint, the first: k:NoSchedule on device x of pool p"},
		"enough beside tainted":    {devicesOfU(holding("a,b,c,d", sick)), gate.Holds, matches, every},
		"failing":                  {devicesOfU(holding("a,b,c", failing)), gate.Unknown, v1alpha1.ReadingExpressionFailed, "pool p, device y: no such key: model"},
		"enough beside failing":    {devicesOfU(holding("a,b,c,d", failing)), gate.Holds, matches, every},
		"too few, one failing":     {devicesOfU(holding("a", failing)), gate.NotYet, few, "1" + of + "; the selectors could not be evaluated for 1: pool p, device y: no such key: model"},
		"incomplete":               {devicesOfU(incomplete), gate.NotYet, v1alpha1.ReadingPoolIncomplete, "pool p of DRA driver gpu.example.com, with 1 of 2 ResourceSlices of generation 1,"},
		"of a former Node":         {devicesOfU(former), gate.NotYet, v1alpha1.ReadingFormerNode, "ResourceSlice a"},
		"an old generation":        {devicesOfU(holding("a,b"), old), gate.NotYet, few, "2" + of},
		"an old generation, first": {devicesOfU(old, holding("a,b")), gate.NotYet, few, "2" + of},
		"no slice":                 {devicesOfU(), gate.NotYet, absent, missing},
		"not observed":             {aNode(), gate.Unknown, notObserved, missing},
		"rule for one": {ruled(devicesOfU(holding("a,b,c,d")), forOther, forDevice), gate.NotYet, few,
			"3" + of + "; 1 carries a taint: t:NoExecute on device b by DeviceTaintRule r of pool p"},
		"rule for the failing one": {ruled(devicesOfU(holding("a,b,c", failing)), forFailing), gate.NotYet, few, "3" + of},
		"rule, beside failing": {ruled(devicesOfU(holding("a,b,c,d", failing)), forDevice), gate.Unknown, v1alpha1.ReadingExpressionFailed,
			"pool p, device y: no such key: model"},
		"rule for all, one failing": {ruled(devicesOfU(holding("a", failing)), rule), gate.NotYet, few,
			"0" + of + "; 1 carries a taint: t:NoExecute on device a by DeviceTaintRule r of pool p"},
		"rule for all":             {ruled(devicesOfU(holding("a,b,c,d")), rule), gate.NotYet, few, "0" + of + "; 4 carry a taint, the first: t:NoExecute on device a by DeviceTaintRule r of pool p"},
		"rule for a pool":          {ruled(devicesOfU(holding("a,b,c,d"), in("q", holding("a"))), forPool), gate.Holds, matches, every},
		"rules unknown":            {unruled(devicesOfU(holding("a,b,c,d"))), gate.Unknown, notObserved, "the list of DeviceTaintRules"},
		"too few, rules unknown":   {unruled(devicesOfU(holding("a,b"))), gate.NotYet, few, "2" + of},
		"no device, two rules":     {ruled(devicesOfU(holding("")), rule, rule), gate.NotYet, few, "0" + of},
		"a device with two taints": {ruled(devicesOfU(holding("a,b,c,d,e")), forDevice, forDevice), gate.Holds, matches, every},
	})
}

// sharedOn returns a node with the label rack=1 and these shared slices of a pool.
func sharedOn(query gate.DeviceQuery, list ...gate.SharedSlice) *world {
	return aNode(func(w *world) {
		w.facts.Node.Labels["rack"] = "1"
		w.facts.SharedPools = map[gate.DeviceQuery]gate.SharedPools{query: nil}
		if len(list) > 0 {
			w.facts.SharedPools[query] = gate.SharedPools{{Name: "p", Slices: list}}
		}
		w.facts.DeviceTaintRules = &gate.DeviceTaintRules{}
	})
}

// reach returns a slice with one device for the nodes of a rack.
func reach(name, rack string, generation, count int64) gate.SharedSlice {
	set := gate.NewNodeSet("", false, &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: "rack", Operator: corev1.NodeSelectorOpIn, Values: []string{rack}},
	}}}})
	return gate.SharedSlice{Name: name, Pool: "p", Generation: generation, Count: count, Groups: []gate.DeviceGroup{
		{Nodes: set, Devices: gate.Devices{Names: name, Usable: 1}},
	}}
}

func counters(name string, generation, count int64) gate.SharedSlice {
	return gate.SharedSlice{Name: name, Pool: "p", Generation: generation, Count: count, Counters: true}
}

func TestSharedPools(t *testing.T) {
	const (
		every      = "every shared pool of DRA driver " + draDriver
		none       = "shared pool of DRA driver " + draDriver + " that it can reach"
		incomplete = v1alpha1.ReadingPoolIncomplete
	)
	short := func(has string) string { return "pool p of DRA driver " + draDriver + ", with " + has + "," }
	query := gate.DeviceQuery{Driver: draDriver, Pools: v1alpha1.PoolsShared}
	s := mustCompile(t, v1alpha1.SignalSource{ResourceSlices: &v1alpha1.ResourceSlicesSignal{Driver: draDriver, Pools: v1alpha1.PoolsShared}})
	check(t, s, map[string]reads{
		"reached":                 {sharedOn(query, reach("a", "1", 1, 1)), gate.Holds, matches, every},
		"of another rack":         {sharedOn(query, reach("a", "2", 1, 1)), gate.NotYet, absent, none},
		"none":                    {sharedOn(query), gate.NotYet, absent, none},
		"not observed":            {aNode(), gate.Unknown, notObserved, none},
		"one slice is elsewhere":  {sharedOn(query, reach("a", "1", 1, 2), reach("b", "2", 1, 2)), gate.Holds, matches, every},
		"one slice is missing":    {sharedOn(query, reach("a", "1", 1, 3), reach("b", "2", 1, 3)), gate.NotYet, incomplete, short("2 of 3 ResourceSlices of generation 1")},
		"replaced elsewhere":      {sharedOn(query, reach("a", "1", 1, 2), reach("b", "2", 2, 2)), gate.NotYet, absent, none},
		"complete, newer exists":  {sharedOn(query, reach("a", "1", 1, 1), reach("b", "2", 2, 1)), gate.Holds, matches, every},
		"being replaced":          {sharedOn(query, reach("a", "1", 1, 1), reach("b", "1", 2, 2)), gate.NotYet, incomplete, short("1 of 2 ResourceSlices of generation 2")},
		"counters belong to it":   {sharedOn(query, reach("a", "1", 1, 2), counters("b", 1, 2)), gate.Holds, matches, every},
		"counters are missing":    {sharedOn(query, reach("a", "1", 1, 2)), gate.NotYet, incomplete, short("1 of 2 ResourceSlices of generation 1")},
		"only counters":           {sharedOn(query, counters("a", 1, 1)), gate.NotYet, absent, none},
		"only counters, some":     {sharedOn(query, counters("a", 1, 2)), gate.NotYet, absent, none},
		"counters come first":     {sharedOn(query, reach("a", "1", 1, 1), counters("b", 2, 2)), gate.NotYet, incomplete, short("1 of 2 ResourceSlices of generation 2")},
		"newer has only counters": {sharedOn(query, reach("a", "1", 1, 1), counters("b", 2, 1)), gate.NotYet, absent, none},
	})
	if n := s.Needs(nil); len(n.Devices) != 1 || n.Devices[0] != query || len(n.ResourceSlices) > 0 || s.ProvesBoot() {
		t.Errorf("needs %+v", n)
	}
	query.Selectors = gate.SelectorsOf(nil)
	s = mustCompile(t, v1alpha1.SignalSource{ResourceSlices: &v1alpha1.ResourceSlicesSignal{Driver: draDriver, Pools: v1alpha1.PoolsShared, MinDevices: 2}})
	rule := gate.DeviceTaintRule{Name: "r", Device: "a", Taint: "t:NoSchedule"}
	check(t, s, map[string]reads{
		"enough devices":           {sharedOn(query, reach("a", "1", 1, 2), reach("b", "1", 1, 2)), gate.Holds, matches, every + ", with at least 2 usable devices,"},
		"devices of another rack":  {sharedOn(query, reach("a", "1", 1, 2), reach("b", "2", 1, 2)), gate.NotYet, v1alpha1.ReadingTooFewDevices, "1 of 2 devices of DRA driver " + draDriver},
		"tainted by a rule":        {ruled(sharedOn(query, reach("a", "1", 1, 2), reach("b", "1", 1, 2)), rule), gate.NotYet, v1alpha1.ReadingTooFewDevices, "1 of 2 devices of DRA driver " + draDriver + "; 1 carries a taint: t:NoSchedule on device a by DeviceTaintRule r of pool p"},
		"devices not yet observed": {aNode(), gate.Unknown, notObserved, none},
	})
}

// A signal that counts devices needs them instead of plain slices, once for equal
// selectors.
func TestDeviceNeeds(t *testing.T) {
	if n := mustCompile(t, fourDevices).Needs(nil); len(n.Devices) != 1 || n.Devices[0] != fourQuery || len(n.ResourceSlices) > 0 {
		t.Errorf("needs %+v", n)
	}
	spec := *fourDevices.ResourceSlices
	spec.Selectors = []v1alpha1.DeviceSelector{{CEL: v1alpha1.CELDeviceSelector{Expression: "true"}}, {CEL: v1alpha1.CELDeviceSelector{Expression: "device.driver != \"\""}}}
	n := mustCompile(t, v1alpha1.SignalSource{ResourceSlices: &spec}).Needs(nil)
	if got := n.Devices[0].Expressions(); len(got) != 2 || got[0] != "true" || got[1] != "device.driver != \"\"" {
		t.Errorf("expressions %q", got)
	}
	if n.Devices[0].Aspect() == fourQuery.Aspect() || gate.CompareDeviceQueries(n.Devices[0], fourQuery) == 0 {
		t.Error("queries with different selectors are the same")
	}
}

func TestBadSelectors(t *testing.T) {
	for text, want := range map[string]string{
		"device.name == 'a'": "compiling selector \"device.name == 'a'\": line 1, column 7: undefined field 'name'",
		"device.driver":      "must evaluate to bool",
	} {
		spec := *fourDevices.ResourceSlices
		spec.Selectors = []v1alpha1.DeviceSelector{{CEL: v1alpha1.CELDeviceSelector{Expression: text}}}
		if _, err := newResourceSlices(&spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
		spec.MinDevices = 0
		if _, err := newResourceSlices(&spec); err == nil || !strings.Contains(err.Error(), "they require minDevices") {
			t.Errorf("%s without minDevices: %v", text, err)
		}
	}
	// The expressions of a gate are limited in total.
	long := make([]v1alpha1.Signal, 5)
	for i := range long {
		spec := *fourDevices.ResourceSlices
		spec.Selectors = []v1alpha1.DeviceSelector{{CEL: v1alpha1.CELDeviceSelector{Expression: "true" + strings.Repeat(" ", 1000+i)}}}
		long[i].ResourceSlices = &spec
	}
	if err := checkExpressions(&v1alpha1.NodeGateSpec{OpenWhen: long}); err == nil || !strings.Contains(err.Error(), "in total") {
		t.Errorf("five long selectors: %v", err)
	}
}
