// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// 90 % of the nodes in three zones of a hundred lose their signal at the same time. The budget
// allows twenty closed nodes per zone.
const (
	stormZones = 3
	stormLoses = fleetSize / 10 * 9
	stormMost  = fleetSize / stormZones / 5
)

// storm is the fleet, with its states according to a watch.
type storm struct {
	*env
	fleet []*kubelet
	zones map[string]string
	// closed contains the nodes that are closed because of the lost signal, by zone, and
	// closings how often each of them closed.
	closed   map[string]map[string]bool
	closings map[string]int
}

func (e *env) newStorm() *storm {
	s := &storm{env: e, zones: map[string]string{}, closed: map[string]map[string]bool{}, closings: map[string]int{}}
	for i := range fleetSize {
		k := &kubelet{env: e, name: fmt.Sprintf("storm-%03d", i), boot: "boot", api: e.admin}
		s.fleet, s.zones[k.name] = append(s.fleet, k), fmt.Sprint("zone-", i%stormZones)
	}
	return s
}

// observe records a state of a node, and verifies that no zone exceeds its budget.
func (s *storm) observe(n *corev1.Node) error {
	zone := s.zones[n.Name]
	if zone == "" {
		return nil // not part of the fleet
	}
	if s.closed[zone] == nil {
		s.closed[zone] = map[string]bool{}
	}
	r, _ := gate.ParseRecord(n.Annotations[v1alpha1.RecordAnnotationPrefix+"agent"])
	was, is := s.closed[zone][n.Name], r.State == isClosed && r.Reason == v1alpha1.ReasonRegression
	if delete(s.closed[zone], n.Name); is {
		s.closed[zone][n.Name] = true
	}
	if is && !was {
		s.closings[n.Name]++
	}
	if len(s.closed[zone]) > stormMost {
		return fmt.Errorf("%s has %d nodes closed, want %d at most", zone, len(s.closed[zone]), stormMost)
	}
	return agrees(n)
}

// awaitCounts waits until the gate's status has these numbers of closed and throttled nodes.
func (s *storm) awaitCounts(what string, closed, throttled int) {
	s.Helper()
	s.eventually(what, func() error {
		if n := s.readGate("agent").Status.Nodes; int(n.Closed) != closed || int(n.Throttled) != throttled || int(n.Selected) < fleetSize {
			return fmt.Errorf("counts: %+v", n)
		}
		return nil
	})
}

// 270 of 300 nodes lose their signal at once. No zone ever exceeds its budget. The other nodes
// are reported and wait for budget, and the gate opens on a new node in the meantime. The
// controller is killed twice. When the signals hold again, all gates open. Each node that was
// closed is written twice, and no other node is written.
func TestStorm(t *testing.T) {
	e := newEnv(t)
	p := e.newControllerProcess()
	p.start()
	ng := newGate("agent", keyA, byLabel("ready"))
	ng.Spec.ReclosePolicy = v1alpha1.RecloseOnRegression
	ng.Spec.Timing.CloseAfterSeconds = new(int32(0))
	e.declare(ng)
	s := e.newStorm()
	e.each(s.fleet, func(k *kubelet) {
		k.register(func(n *corev1.Node) { n.Labels["ready"], n.Labels[corev1.LabelTopologyZone] = "", s.zones[k.name] })
	})
	s.awaitCounts("all nodes are open", 0, 0)
	before := s.writesByNode(s.fleet...)
	done := e.watchAll(s.observe)

	lost := s.fleet[:stormLoses]
	e.each(lost, func(k *kubelet) {
		if k == lost[len(lost)/2] {
			p.kill()
			p.start()
		}
		k.patch(`{"metadata":{"labels":{"ready":null}}}`)
	})
	s.awaitCounts("the budget is used up", stormZones*stormMost, stormLoses-stormZones*stormMost)
	c := s.currentCondition("agent", v1alpha1.ConditionThrottled)
	if c == nil || !strings.Contains(c.Message, "and 207 more") || strings.Count(c.Message, "signal signal: the node has no label ready") != 3 {
		t.Errorf("condition Throttled is %s, want three nodes with their signal, and 207 more", conditionText(c))
	}
	p.kill()
	p.start()
	// The gate opens on a new node while hundreds are waiting for budget. Budget that becomes
	// available is granted to a waiting node.
	late := e.kubelet("late")
	late.register(func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "another" })
	e.must(late.is("agent", isClosed, keyA))
	late.label("ready")
	late.becomes("agent", isOpen, keyA)
	if n := s.readGate("agent").Status.Nodes; int(n.Throttled) != stormLoses-stormZones*stormMost {
		t.Errorf("when the gate opened on the new node, the counts were %+v, want %d throttled", n, stormLoses-stormZones*stormMost)
	}
	recovered := closedBy("agent", lost)[:2]
	for _, k := range recovered {
		k.label("ready")
		k.becomes("agent", isOpen, keyA)
	}
	s.awaitCounts("other nodes are closed instead", stormZones*stormMost, stormLoses-stormZones*stormMost-len(recovered))

	e.each(lost, func(k *kubelet) { k.label("ready") })
	s.awaitCounts("all nodes are open again", 0, 0)
	done()
	if len(s.closings) < stormZones*stormMost+len(recovered) {
		t.Errorf("the watch observed %d closed nodes, want at least %d", len(s.closings), stormZones*stormMost+len(recovered))
	}
	after := s.writesByNode(s.fleet...)
	for _, k := range s.fleet {
		closings, writes := s.closings[k.name], len(after[k.name])-len(before[k.name])
		if closings > 1 || writes != 2*closings {
			t.Errorf("node %s closed %d times and was written %d times, want it to close at most once, with one write to close and one to open", k.name, closings, writes)
		}
	}
}
