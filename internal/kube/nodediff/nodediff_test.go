// SPDX-License-Identifier: Apache-2.0

package nodediff

import (
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/internal/gate"
)

// nodeEdits contains changes of a node with the aspect that they concern; the zero aspect
// means everything.
var nodeEdits = map[string]struct {
	edit   func(*gate.Node)
	aspect gate.Aspect
}{
	"condition": {func(n *gate.Node) { n.Conditions[1].Status = "Unknown" }, gate.Aspect{Kind: gate.AspectCondition, Name: "Disk"}},
	"transition": {func(n *gate.Node) { n.Conditions[2].Transition = n.Conditions[2].Transition.Add(time.Second) },
		gate.Aspect{Kind: gate.AspectCondition, Name: "Memory"}},
	"heartbeat": {func(n *gate.Node) { n.Conditions[0].Heartbeat = time.Unix(9, 0) }, gate.Aspect{Kind: gate.AspectHeartbeats}},
	"taint": {func(n *gate.Node) {
		n.Taints = slices.DeleteFunc(n.Taints, func(t corev1.Taint) bool { return t.Key == "a" })
	}, gate.Aspect{Kind: gate.AspectTaint, Name: "a"}},
	"value":         {func(n *gate.Node) { taintOf(n, "b").Value = "other" }, gate.Aspect{Kind: gate.AspectTaint, Name: "b"}},
	"time added":    {func(n *gate.Node) { taintOf(n, "b").TimeAdded = &metav1.Time{Time: time.Unix(5, 0)} }, gate.Aspect{Kind: gate.AspectTaint, Name: "b"}},
	"another taint": {func(n *gate.Node) { n.Taints = append(n.Taints, corev1.Taint{Key: "c"}) }, gate.Aspect{Kind: gate.AspectTaint, Name: "c"}},
	"record":        {func(n *gate.Node) { n.Records["g"] = "other" }, gate.Aspect{Kind: gate.AspectRecord, Name: "g"}},
	"new record":    {func(n *gate.Node) { n.Records["h"] = "new" }, gate.Aspect{Kind: gate.AspectRecord, Name: "h"}},
	"annotation":    {func(n *gate.Node) { delete(n.Annotations, "k") }, gate.Aspect{Kind: gate.AspectAnnotation, Name: "k"}},
	"resource":      {func(n *gate.Node) { n.Allocatable["r"] = resource.MustParse("2") }, gate.Aspect{Kind: gate.AspectAllocatable, Name: "r"}},
	"info":          {func(n *gate.Node) { n.Info["kernelVersion"] = "6" }, gate.Aspect{Kind: gate.AspectNodeInfo, Name: "kernelVersion"}},

	"ready":         {edit: func(n *gate.Node) { n.Conditions[0].Status = "False" }},
	"new condition": {edit: func(n *gate.Node) { n.Conditions = append(n.Conditions, gate.Condition{Type: "New"}) }},
	"order":         {edit: func(n *gate.Node) { slices.Reverse(n.Conditions) }},
	"label":         {edit: func(n *gate.Node) { n.Labels["l"] = "other" }},
	"boot":          {edit: func(n *gate.Node) { n.BootID = "b" }},
	"UID":           {edit: func(n *gate.Node) { n.UID = "other" }},
	"created":       {edit: func(n *gate.Node) { n.Created = time.Unix(2, 0) }},
	"shutdown":      {edit: func(n *gate.Node) { n.ShuttingDown = true }},
	"override":      {edit: func(n *gate.Node) { n.Overrides["g"] = "x" }},
}

func taintOf(n *gate.Node, key string) *corev1.Taint {
	return &n.Taints[slices.IndexFunc(n.Taints, func(t corev1.Taint) bool { return t.Key == key })]
}

func editedNode() *gate.Node {
	return &gate.Node{
		Name: "n", UID: "u", BootID: "a", Created: time.Unix(1, 0), Labels: map[string]string{"l": "1"},
		Conditions:  []gate.Condition{{Type: "Ready", Status: "True"}, {Type: "Disk", Status: "False"}, {Type: "Memory", Status: "False"}},
		Taints:      []corev1.Taint{{Key: "a", Effect: "NoSchedule"}, {Key: "b", Effect: "NoExecute"}},
		Annotations: map[string]string{"k": "v"}, Records: map[string]string{"g": "raw"}, Overrides: map[string]string{},
		Allocatable: map[string]resource.Quantity{"r": resource.MustParse("1")}, Info: map[string]string{"kernelVersion": "5"},
	}
}

// Of returns exactly the aspects that have changed.
func TestOf(t *testing.T) {
	names := slices.Sorted(maps.Keys(nodeEdits))
	rapid.Check(t, func(t *rapid.T) {
		now, wholly := editedNode(), false
		want := gate.Change{}
		for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID).Draw(t, "edits") {
			e := nodeEdits[name]
			e.edit(now)
			if wholly = wholly || e.aspect.Kind == 0; wholly {
				break
			}
			want = want.And(gate.ChangeOf(e.aspect))
		}
		if !wholly && (want.IsNothing() || rapid.Bool().Draw(t, "reorder the taints")) {
			slices.Reverse(now.Taints)
			isTaint := func(a gate.Aspect) bool { return a.Kind == gate.AspectTaint }
			wholly = !slices.ContainsFunc(want.Aspects(), isTaint) // any change of a taint concerns all who read them
		}
		got := Of(editedNode(), now)
		if got.IsEverything() != wholly {
			t.Fatalf("everything: %v, want %v: %+v", got.IsEverything(), wholly, got)
		}
		if !wholly && !same(got, want) {
			t.Fatalf("Of = %+v, want %+v", got, want)
		}
	})
}

// withTaints returns a node with n taints that have different keys, and no other facts.
func withTaints(n int) *gate.Node {
	node := &gate.Node{Conditions: []gate.Condition{{Type: "Disk", Status: "False"}}, Taints: make([]corev1.Taint, n)}
	for i := range node.Taints {
		node.Taints[i] = corev1.Taint{Key: strconv.Itoa(i), Effect: "NoSchedule"}
	}
	return node
}

// A kubelet can register with more taints than can be compared each with each while other
// nodes wait: with this number, that takes more than half an hour.
func TestOfManyTaints(t *testing.T) {
	old, now := withTaints(500_000), withTaints(500_000)
	now.Conditions[0].Status = "True"
	if got, want := Of(old, now), gate.ChangeOf(gate.Aspect{Kind: gate.AspectCondition, Name: "Disk"}); !same(got, want) {
		t.Errorf("equal taints: Of = %+v, want %+v", got, want)
	}
	now.Taints[0].Value = "other"
	if got := Of(old, now); !got.IsEverything() {
		t.Errorf("a taint differs: Of = %+v, want everything", got)
	}
}

// Up to manyTaints, exactly the taints that differ are reported; above, everything is.
func TestOfTaintsAtTheLimit(t *testing.T) {
	taint := gate.ChangeOf(gate.Aspect{Kind: gate.AspectTaint, Name: "0"})
	removed := gate.ChangeOf(gate.Aspect{Kind: gate.AspectTaint, Name: strconv.Itoa(manyTaints - 1)})
	for name, c := range map[string]struct {
		old, now *gate.Node
		edit     bool
		want     gate.Change
	}{
		"a value":                {withTaints(manyTaints), withTaints(manyTaints), true, taint},
		"removed":                {withTaints(manyTaints), withTaints(manyTaints - 1), false, removed},
		"added":                  {withTaints(manyTaints - 1), withTaints(manyTaints), false, removed},
		"a value, above":         {withTaints(manyTaints + 1), withTaints(manyTaints + 1), true, gate.Everything()},
		"removed, from too many": {withTaints(manyTaints + 1), withTaints(manyTaints), false, gate.Everything()},
		"added, to too many":     {withTaints(manyTaints), withTaints(manyTaints + 1), false, gate.Everything()},
	} {
		if c.edit {
			c.now.Taints[0].Value = "other"
		}
		if got := Of(c.old, c.now); got.IsEverything() != c.want.IsEverything() || !same(got, c.want) {
			t.Errorf("%s: Of = %+v, want %+v", name, got, c.want)
		}
	}
}

// same reports whether two changes contain the same aspects.
func same(a, b gate.Change) bool { return within(a, b) && within(b, a) }

// within reports whether a change is contained in another.
func within(some, all gate.Change) bool {
	sum := all.And(some)
	return len(sum.Aspects()) == len(all.Aspects())
}
