// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/packed"
)

// If a re-created node was read before the watch delivers the deletion of its
// predecessor, that deletion is ignored.
func TestLateDeletionOfEarlierNode(t *testing.T) {
	s := NewNodes(IgnoreChange)
	n1 := func(uid types.UID, version string) *packed.Node {
		return s.packer.Node(&gate.Node{Name: "n1", UID: uid, ResourceVersion: version}, nil)
	}
	s.ReplaceAt([]*packed.Node{n1("a", "1")}, "1")
	s.Put(n1("b", "9"))
	s.Drop(n1("a", "5"))
	if f, known := s.get("n1"); !known || f.Node.UID != "b" {
		t.Errorf("known: %v, %+v; want the new node", known, f.Node)
	}
	s.Drop(n1("b", "10"))
	if _, known := s.get("n1"); known {
		t.Error("a deleted node is still known")
	}
}

// Nodes with taints come first: a new leader reconciles all nodes in this order, and only
// closed ones can wait for it.
func TestNodesWithTaintsComeFirst(t *testing.T) {
	s := NewNodes(IgnoreChange)
	want := map[string]bool{}
	for i := range 100 {
		n := &gate.Node{Name: fmt.Sprint("n", i), ResourceVersion: "1"}
		if i%7 == 0 {
			n.Taints, want[n.Name] = []corev1.Taint{{Key: "closed"}}, true
		}
		s.Put(s.packer.Node(n, nil))
	}
	names := s.names()
	for _, name := range names[:len(want)] {
		if !want[name] {
			t.Errorf("%s comes before nodes with taints", name)
		}
	}
	if slices.Sort(names); len(names) != 100 || len(slices.Compact(names)) != 100 {
		t.Errorf("%d names: %v", len(names), names)
	}
}

// A list that is older than nodegate's own write, and arrives after its response, does
// not undo the write. Otherwise too few closed nodes would be counted.
func TestListOlderThanWrite(t *testing.T) {
	node := func(version string, taints ...string) *packed.Node {
		n := &gate.Node{Name: "n1", UID: "a", ResourceVersion: version, BootID: "a"}
		for _, key := range taints {
			n.Taints = append(n.Taints, corev1.Taint{Key: key})
		}
		return packed.NewPacker(packed.NewDictionaries()).Node(n, nil)
	}
	written := kubetest.Node("n1", "", func(n *corev1.Node) {
		n.ResourceVersion, n.UID, n.Spec.Taints = "9", "a", []corev1.Taint{{Key: "closed"}}
	})
	for name, c := range map[string]struct {
		then func(s nodeSink)
		want string
	}{
		"a list older than the write": {func(s nodeSink) { s.ReplaceAt([]*packed.Node{node("5")}, "7") }, "9"},
		"two older lists": {func(s nodeSink) {
			s.ReplaceAt([]*packed.Node{node("5")}, "7")
			s.ReplaceAt([]*packed.Node{node("5")}, "8")
		}, "9"},
		"a list that contains the write":        {func(s nodeSink) { s.ReplaceAt([]*packed.Node{node("9", "closed")}, "9") }, "9"},
		"a later list":                          {func(s nodeSink) { s.ReplaceAt([]*packed.Node{node("11")}, "12") }, "11"},
		"a list of restored data":               {func(s nodeSink) { s.ReplaceAt([]*packed.Node{node("3")}, "4") }, "3"},
		"restored after the watch delivered it": {func(s nodeSink) { s.Put(node("9", "closed")); s.ReplaceAt([]*packed.Node{node("5")}, "8") }, "5"},
		"restored, and delivered before observed": {func(s nodeSink) {
			s.Put(node("9", "closed"))
			s.observe(written)
			s.ReplaceAt([]*packed.Node{node("5")}, "8")
		}, "5"},
		"the watch is behind the write":           {func(s nodeSink) { s.Put(node("6")); s.ReplaceAt([]*packed.Node{node("6")}, "7") }, "9"},
		"the node is missing from the older list": {func(s nodeSink) { s.ReplaceAt(nil, "7") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := nodeSink{Nodes: NewNodes(IgnoreChange)}
			s.ReplaceAt([]*packed.Node{node("5")}, "5")
			s.observe(written)
			c.then(s)
			if f, _ := s.get("n1"); f.Node.ResourceVersion != c.want {
				t.Errorf("stored version %q, want %q", f.Node.ResourceVersion, c.want)
			}
		})
	}
}

// A list of an earlier state is counted before that state can be read.
func TestRewindsAreCounted(t *testing.T) {
	listed := []string{"5", "7", "6", "6", "9"}
	want := []int64{0, 0, 1, 1, 1}
	s := nodeSink{Nodes: NewNodes(IgnoreChange)}
	for i, version := range listed {
		s.ReplaceAt(nil, version)
		if got := s.rewinds.Load(); got != want[i] {
			t.Errorf("after lists at versions %v: %d rewinds, want %d", listed[:i+1], got, want[i])
		}
	}
}

// booted returns a Node in a boot.
func booted(boot, version string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "a", ResourceVersion: version},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: boot}},
	}
}

// Boot contains whether the beginning of a boot was observed, and when the boot was first
// observed.
func TestObservedBoots(t *testing.T) {
	node := func(uid types.UID, boot, version string) *packed.Node {
		return packed.NewPacker(packed.NewDictionaries()).Node(&gate.Node{Name: "n1", UID: uid, ResourceVersion: version, BootID: boot}, nil)
	}
	began := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	first := func(s nodeSink) { s.ReplaceAt([]*packed.Node{node("a", "x", "5")}, "5") }
	known := []gate.Incarnation{7} // the pods that are ready, at any time
	response := func(boot, version string) func(nodeSink) {
		return func(s nodeSink) { s.observe(booted(boot, version)) }
	}
	later := func(minutes int) time.Time { return began.Add(time.Duration(minutes) * time.Minute) }
	for name, c := range map[string]struct {
		steps []func(s nodeSink) // one per minute
		want  gate.Boot
	}{
		"listed at first":                  {[]func(nodeSink){first}, gate.Boot{Seen: began}},
		"a new node":                       {[]func(nodeSink){func(s nodeSink) { s.ReplaceAt(nil, "4") }, func(s nodeSink) { s.Put(node("a", "x", "5")) }}, gate.Boot{Seen: later(1)}},
		"reboots":                          {[]func(nodeSink){first, func(s nodeSink) { s.Put(node("a", "y", "6")) }}, gate.Boot{Seen: later(1), After: "x", Known: known}},
		"reboots and changes":              {[]func(nodeSink){first, func(s nodeSink) { s.Put(node("a", "y", "6")) }, func(s nodeSink) { s.Put(node("a", "y", "7")) }}, gate.Boot{Seen: later(1), After: "x", Known: known}},
		"reboots and is listed":            {[]func(nodeSink){first, func(s nodeSink) { s.Put(node("a", "y", "6")) }, func(s nodeSink) { s.ReplaceAt([]*packed.Node{node("a", "y", "7")}, "8") }}, gate.Boot{Seen: later(1), After: "x", Known: known}},
		"reboots twice":                    {[]func(nodeSink){first, func(s nodeSink) { s.Put(node("a", "y", "6")) }, func(s nodeSink) { s.Put(node("a", "z", "7")) }}, gate.Boot{Seen: later(2), After: "y", Known: known}},
		"reboots while not watched":        {[]func(nodeSink){first, func(s nodeSink) { s.ReplaceAt([]*packed.Node{node("a", "y", "6")}, "8") }}, gate.Boot{Seen: later(1)}},
		"created while not watched":        {[]func(nodeSink){func(s nodeSink) { s.ReplaceAt(nil, "4") }, first}, gate.Boot{Seen: later(1)}},
		"reports its first boot ID":        {[]func(nodeSink){func(s nodeSink) { s.ReplaceAt([]*packed.Node{node("a", "", "5")}, "5") }, func(s nodeSink) { s.Put(node("a", "x", "6")) }}, gate.Boot{Seen: later(1)}},
		"another Node of this name":        {[]func(nodeSink){first, func(s nodeSink) { s.Put(node("b", "y", "6")) }}, gate.Boot{Seen: later(1), Known: known}},
		"deleted and created again":        {[]func(nodeSink){first, func(s nodeSink) { s.Put(node("a", "y", "6")) }, func(s nodeSink) { s.Drop(node("a", "y", "7")) }, func(s nodeSink) { s.Put(node("b", "y", "8")) }}, gate.Boot{Seen: later(3), Known: known}},
		"created again much later":         {[]func(nodeSink){first, func(s nodeSink) { s.Drop(node("a", "x", "6")) }, func(nodeSink) {}, func(s nodeSink) { s.Put(node("b", "y", "8")) }}, gate.Boot{Seen: later(3)}},
		"a response is ahead of the watch": {[]func(nodeSink){first, response("z", "8")}, gate.Boot{Seen: later(1), After: "x", Known: known, Ahead: true}},
		"the watch catches up":             {[]func(nodeSink){first, response("z", "8"), func(s nodeSink) { s.Put(node("a", "z", "8")) }}, gate.Boot{Seen: later(1), After: "x", Known: known}},
		"the watch passes the response":    {[]func(nodeSink){first, response("z", "8"), func(s nodeSink) { s.Put(node("a", "x", "7")) }, func(s nodeSink) { s.Put(node("a", "z", "9")) }}, gate.Boot{Seen: later(1), After: "x", Known: known}},
		"there was a boot in between":      {[]func(nodeSink){first, response("z", "8"), func(s nodeSink) { s.Put(node("a", "y", "7")) }, func(s nodeSink) { s.Put(node("a", "z", "8")) }}, gate.Boot{Seen: later(1), After: "y", Known: known}},
		"and another boot":                 {[]func(nodeSink){first, response("z", "8"), func(s nodeSink) { s.Put(node("a", "w", "9")) }}, gate.Boot{Seen: later(2), After: "z", Known: known}},
		"a list catches up":                {[]func(nodeSink){first, response("z", "8"), func(s nodeSink) { s.ReplaceAt([]*packed.Node{node("a", "z", "8")}, "9") }}, gate.Boot{Seen: later(2)}},
		"a list that is older":             {[]func(nodeSink){first, response("z", "8"), func(s nodeSink) { s.ReplaceAt([]*packed.Node{node("a", "x", "7")}, "7") }}, gate.Boot{Seen: later(1), After: "x", Known: known, Ahead: true}},
		"a list with a boot in between":    {[]func(nodeSink){first, response("z", "9"), func(s nodeSink) { s.ReplaceAt([]*packed.Node{node("a", "y", "7")}, "7") }, func(s nodeSink) { s.Put(node("a", "z", "9")) }}, gate.Boot{Seen: later(1), After: "y", Known: known}},
		"an older list in the same boot":   {[]func(nodeSink){first, response("z", "9"), func(s nodeSink) { s.ReplaceAt([]*packed.Node{node("a", "z", "8")}, "8") }, func(s nodeSink) { s.Put(node("a", "z", "9")) }}, gate.Boot{Seen: later(1)}},
		"a response with the first boot":   {[]func(nodeSink){func(s nodeSink) { s.ReplaceAt([]*packed.Node{node("a", "", "5")}, "5") }, response("z", "8"), func(s nodeSink) { s.Put(node("a", "z", "8")) }}, gate.Boot{Seen: later(1)}},
		"a response in the same boot":      {[]func(nodeSink){first, response("x", "8")}, gate.Boot{Seen: began}},
		"late event of the previous boot":  {[]func(nodeSink){first, func(s nodeSink) { s.Put(node("a", "y", "6")) }, func(s nodeSink) { s.Put(node("a", "x", "5")) }}, gate.Boot{Seen: later(1), After: "x", Known: known}},
	} {
		t.Run(name, func(t *testing.T) {
			s := nodeSink{Nodes: NewNodes(IgnoreChange)}
			s.boots.knownPods = func(string) []gate.Incarnation { return known }
			for i, step := range c.steps {
				s.clock = clocktesting.NewFakePassiveClock(later(i))
				step(s)
			}
			if f, _ := s.get("n1"); !reflect.DeepEqual(f.Boot, c.want) {
				t.Errorf("%+v, want %+v", f.Boot, c.want)
			}
		})
	}
}

// A node is decided about again when the watch has delivered a boot that was known from a response.
func TestWatchCatchesUpWithABoot(t *testing.T) {
	var changes []gate.Change
	s := nodeSink{Nodes: NewNodes(func(_ string, c gate.Change) { changes = append(changes, c) })}
	s.ReplaceAt([]*packed.Node{s.pack(booted("x", "5"))}, "5")
	s.observe(booted("y", "7"))
	changes = nil
	s.Put(s.pack(booted("x", "6")))
	if len(changes) > 0 {
		t.Errorf("an older state is announced: %+v", changes)
	}
	s.Put(s.pack(booted("y", "7")))
	if len(changes) != 1 || !changes[0].IsEverything() {
		t.Errorf("announced are %+v, want everything once", changes)
	}
	s.Put(s.pack(booted("y", "8")))
	if len(changes) != 1 {
		t.Errorf("announced are %+v, want no more", changes)
	}
}

// A watch that has fallen too far behind may have missed any event: there are no facts
// until everything has been read again.
func TestUnknownWhileRelisting(t *testing.T) {
	for name, streams := range map[string]bool{"streamed": true, "listed": false} {
		t.Run(name, func(t *testing.T) {
			clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, streams)
			runFeed(t, func(api *fakeAPI) { api.nodes().Put(kubetest.Node("a", "1")) }, func(t *testing.T, f *testFeed) {
				nodes := f.api.nodes()
				reads, known := 0, 0
				f.api.set(func() {
					nodes.onRead = func() {
						reads++
						if f.NodesSynced() {
							known++
						}
					}
				})
				kubetest.Pass(2 * time.Second)
				nodes.expire()
				kubetest.Pass(time.Minute)
				synctest.Wait()
				if reads == 0 || known > 0 {
					t.Errorf("read again %d times, and %d times NodesSynced was true meanwhile", reads, known)
				}
				f.facts(t, "a")
			})
		})
	}
}

// A shutdown is announced by the kubelet's message, which may contain other reasons, or
// by one of the lifecycle conditions. The agent's condition announces nothing in another boot.
func TestAnnouncesShutdown(t *testing.T) {
	const down = "node is shutting down"
	for _, test := range []struct {
		condition corev1.NodeConditionType
		status    corev1.ConditionStatus
		message   string
		want      bool
	}{
		{corev1.NodeReady, corev1.ConditionFalse, down, true},
		{corev1.NodeReady, corev1.ConditionFalse, "[container runtime is down, node is shutting down]", true},
		{corev1.NodeReady, corev1.ConditionFalse, down + ". WARNING: no memory limits", true},
		{corev1.NodeReady, corev1.ConditionFalse, "container runtime is down", false},
		{corev1.NodeReady, corev1.ConditionTrue, down, false},
		{corev1.NodeReady, corev1.ConditionUnknown, down, false},
		{corev1.NodeMemoryPressure, corev1.ConditionFalse, down, false},
		{corev1.NodeGracefulNodeShutdownInProgress, corev1.ConditionTrue, "", true},
		{corev1.NodeGracefulNodeShutdownInProgress, corev1.ConditionTrue, v1alpha1.ShutdownMessagePrefix + "boot", true},
		{corev1.NodeGracefulNodeShutdownInProgress, corev1.ConditionTrue, v1alpha1.ShutdownMessagePrefix + "a former boot", false},
		{corev1.NodeGracefulNodeShutdownInProgress, corev1.ConditionFalse, down, false},
		{corev1.NodeGracefulNodeShutdownInProgress, corev1.ConditionUnknown, down, false},
		{corev1.NodeDrainInProgress, corev1.ConditionTrue, "", false},
		{corev1.NodeDrained, corev1.ConditionTrue, "", false},
		{corev1.NodeMaintenancePlanned, corev1.ConditionTrue, "", false},
		{corev1.NodeMaintenanceInProgress, corev1.ConditionTrue, "", false},
	} {
		condition := corev1.NodeCondition{Type: test.condition, Status: test.status, Message: test.message}
		for name, conditions := range map[string][]corev1.NodeCondition{
			"alone":         {condition},
			"before others": {condition, {Type: "Other", Status: corev1.ConditionFalse}},
			"after others":  {{Type: "Other", Status: corev1.ConditionFalse}, condition},
		} {
			n := NewNodes(nil).Convert(kubetest.Node("a", "1", func(n *corev1.Node) { n.Status.Conditions = conditions }))
			if n.ShuttingDown != test.want {
				t.Errorf("%s=%s, %q, %s: shutting down is %v", test.condition, test.status, test.message, name, n.ShuttingDown)
			}
		}
	}
}

// Creating, changing or removing an override is announced.
func TestOverrideChangesAreAnnounced(t *testing.T) {
	var changes int
	s := NewNodes(func(string, gate.Change) { changes++ })
	put := func(version string, annotations map[string]string) map[string]string {
		n := kubetest.Node("a", "1", func(n *corev1.Node) { n.Annotations, n.ResourceVersion = annotations, version })
		facts := s.pack(n)
		s.Update(func() []nodeChange { return s.Put(facts) })
		known, _ := s.get("a")
		return known.Node.Overrides
	}
	for i, test := range []struct{ annotations, want map[string]string }{
		{nil, nil},
		{map[string]string{"override.nodegate.dev/g": "x"}, map[string]string{"g": "x"}},
		{map[string]string{"override.nodegate.dev/g": "y"}, map[string]string{"g": "y"}},
		{map[string]string{"gate.nodegate.dev/g": "y"}, nil},
	} {
		if got := put(fmt.Sprint(i+1), test.annotations); !maps.Equal(got, test.want) || changes != i+1 {
			t.Errorf("%v: overrides %v, announced %d times, want %d", test.annotations, got, changes, i+1)
		}
	}
	if put("9", map[string]string{"gate.nodegate.dev/g": "y", "other": "x"}); changes != 4 {
		t.Error("a change of another annotation was announced")
	}
}

// Nodes that are containers on the same host have the same boot ID.
func TestNodesWithTheSameBoot(t *testing.T) {
	booted := func(name, boot string) *corev1.Node {
		return kubetest.Node(name, types.UID(name), func(n *corev1.Node) { n.Status.NodeInfo.BootID = boot })
	}
	runFeed(t, func(api *fakeAPI) {
		for _, n := range []*corev1.Node{booted("a", "host"), booted("b", "own"), booted("c", "host"), booted("d", ""), booted("e", "")} {
			api.nodes().Put(n)
		}
	}, func(t *testing.T, f *testFeed) {
		same := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if got := slices.Sorted(slices.Values(f.SameBoot())); !slices.Equal(got, want) {
				t.Errorf("SameBoot = %v, want %v", got, want)
			}
		}
		same("a", "c")
		f.api.nodes().Put(booted("b", "host"))
		same("a", "b", "c")
		f.api.nodes().remove("a")
		f.api.nodes().Put(booted("b", "own"))
		same()
	})
}
