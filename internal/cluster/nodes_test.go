// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/internal/cluster/packed"
	"github.com/nodegate/nodegate/internal/gate"
)

// A node that was read anew is known before the watch tells of the end of the
// one that had its name: that word is late.
func TestLateWordOfAnEarlierNode(t *testing.T) {
	s := newNodeStore(unheard)
	n1 := func(uid types.UID, version string) *packed.Node {
		return s.packer.Node(&gate.Node{Name: "n1", UID: uid, ResourceVersion: version}, nil)
	}
	s.replace([]*packed.Node{n1("a", "1")})
	s.put(n1("b", "9"))
	s.drop(n1("a", "5"))
	if n, _, known := s.get("n1"); !known || n.UID != "b" {
		t.Errorf("known: %v, %+v; want the later node", known, n)
	}
	s.drop(n1("b", "10"))
	if _, _, known := s.get("n1"); known {
		t.Error("a node that was deleted is still known")
	}
}

// A watch that has fallen too far behind may have missed anything: nothing is
// known until everything has been read anew.
func TestNothingIsKnownWhileItIsReadAnew(t *testing.T) {
	runFeed(t, func(api *fakeAPI) { api.nodes().put(testNode("a", "1")) }, func(t *testing.T, f *testFeed) {
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
		pass(2 * time.Second)
		nodes.expire()
		pass(time.Minute)
		synctest.Wait()
		if reads == 0 || known > 0 {
			t.Errorf("read anew %d times, and %d times the nodes were taken to be known", reads, known)
		}
		f.facts(t, "a")
	})
}

// A shutdown is announced by the kubelet's own words, which come among others, or
// by the one lifecycle condition that says so; nothing else is one.
func TestWhatAnnouncesAShutdown(t *testing.T) {
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
		{corev1.NodeGracefulNodeShutdownInProgress, corev1.ConditionFalse, down, false},
		{corev1.NodeGracefulNodeShutdownInProgress, corev1.ConditionUnknown, down, false},
		{corev1.NodeDrainInProgress, corev1.ConditionTrue, "", false},
		{corev1.NodeDrained, corev1.ConditionTrue, "", false},
		{corev1.NodeMaintenancePlanned, corev1.ConditionTrue, "", false},
		{corev1.NodeMaintenanceInProgress, corev1.ConditionTrue, "", false},
	} {
		said := corev1.NodeCondition{Type: test.condition, Status: test.status, Message: test.message}
		for name, conditions := range map[string][]corev1.NodeCondition{
			"alone":         {said},
			"before others": {said, {Type: "Other", Status: corev1.ConditionFalse}},
			"after others":  {{Type: "Other", Status: corev1.ConditionFalse}, said},
		} {
			n := newNodeStore(nil).convert(testNode("a", "1", func(n *corev1.Node) { n.Status.Conditions = conditions }))
			if n.ShuttingDown != test.want {
				t.Errorf("%s=%s, %q, %s: shutting down is %v", test.condition, test.status, test.message, name, n.ShuttingDown)
			}
		}
	}
}

// Who writes, changes or withdraws an override has the node looked at.
func TestOverridesAreNews(t *testing.T) {
	var told int
	s := newNodeStore(func(string, gate.Change) { told++ })
	put := func(version string, annotations map[string]string) map[string]string {
		n := testNode("a", "1", func(n *corev1.Node) { n.Annotations, n.ResourceVersion = annotations, version })
		facts := s.pack(n)
		s.update(func() []nodeNews { return s.put(facts) })
		known, _, _ := s.get("a")
		return known.Overrides
	}
	for i, test := range []struct{ annotations, want map[string]string }{
		{nil, nil},
		{map[string]string{"override.nodegate.dev/g": "x"}, map[string]string{"g": "x"}},
		{map[string]string{"override.nodegate.dev/g": "y"}, map[string]string{"g": "y"}},
		{map[string]string{"gate.nodegate.dev/g": "y"}, nil},
	} {
		if got := put(fmt.Sprint(i+1), test.annotations); !maps.Equal(got, test.want) || told != i+1 {
			t.Errorf("%v: known are %v, and %d times it was news, want %d", test.annotations, got, told, i+1)
		}
	}
	if put("9", map[string]string{"gate.nodegate.dev/g": "y", "other": "x"}); told != 4 {
		t.Error("another annotation is news")
	}
}
