// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// In a storm, 90 % of the nodes in three zones of a hundred lose their signal. The budget
// allows twenty closed nodes per zone.
const (
	stormZones = 3
	stormLoses = fleetSize / 10 * 9
	stormMost  = fleetSize / stormZones / 5
)

// storm is the fleet with its state according to a watch.
type storm struct {
	*env
	fleet []*kubelet
	zones map[string]string
	// closed are the nodes that are closed for the storm, by zone, and closings
	// counts how often each was.
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

// saw records a watch event of a node, and verifies that no zone exceeds its budget.
func (s *storm) saw(n *corev1.Node) error {
	zone := s.zones[n.Name]
	if zone == "" {
		return nil // not of the fleet
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

// status returns the gate's status.
func (s *storm) status() v1alpha1.NodeGateStatus {
	s.Helper()
	var ng v1alpha1.NodeGate
	s.must(s.admin.Get(s.Context(), client.ObjectKey{Name: "agent"}, &ng))
	return ng.Status
}

// stands waits until the gate's status has these numbers of closed and waiting nodes.
func (s *storm) stands(what string, closed, waiting int) {
	s.Helper()
	s.eventually(what, func() error {
		if n := s.status().Nodes; int(n.Closed) != closed || int(n.Throttled) != waiting || int(n.Selected) < fleetSize {
			return fmt.Errorf("counts: %+v", n)
		}
		return nil
	})
}

// 270 of 300 nodes lose their signal at once. No zone ever exceeds its budget. The other
// nodes are reported and wait, and a new node opens in the meantime. The controller is killed
// twice. When the signals hold again, all gates open. Each node that was closed is written
// twice, and no other node is written.
func TestStorm(t *testing.T) {
	e := newEnv(t)
	p := e.newControllerProcess()
	p.start()
	ng := newGate("agent", keyA, byLabel("ready"))
	ng.Spec.ReclosePolicy = v1alpha1.RecloseOnRegression
	ng.Spec.Timing.CloseAfterSeconds = ptr.To[int32](0)
	e.declare(ng)
	s := e.newStorm()
	e.each(s.fleet, func(k *kubelet) {
		k.register(func(n *corev1.Node) { n.Labels["ready"], n.Labels[corev1.LabelTopologyZone] = "", s.zones[k.name] })
	})
	s.stands("the fleet is open", 0, 0)
	before := s.written()
	done := e.watchAll(s.saw)

	lost := s.fleet[:stormLoses]
	e.each(lost, func(k *kubelet) {
		if k == lost[len(lost)/2] {
			p.kill()
			p.start()
		}
		k.patch(`{"metadata":{"labels":{"ready":null}}}`)
	})
	s.stands("the budget is used up", stormZones*stormMost, stormLoses-stormZones*stormMost)
	c := meta.FindStatusCondition(s.status().Conditions, v1alpha1.ConditionThrottled)
	if c == nil || !strings.Contains(c.Message, "and 207 more") || strings.Count(c.Message, "signal signal: the node has no label ready") != 3 {
		t.Errorf("the storm is told as %+v", c)
	}
	p.kill()
	p.start()
	// What is new opens although hundreds wait, and a place that becomes free is
	// taken by one that waits.
	late := e.kubelet("late")
	late.register(func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "another" })
	e.must(late.is("agent", isClosed, keyA))
	late.label("ready")
	late.becomes("agent", isOpen, keyA)
	if n := s.status().Nodes; int(n.Throttled) != stormLoses-stormZones*stormMost {
		t.Errorf("the storm was over when the new node opened: %+v", n)
	}
	recovered := closedBy("agent", lost)[:2]
	for _, k := range recovered {
		k.label("ready")
		k.becomes("agent", isOpen, keyA)
	}
	s.stands("others have closed in their place", stormZones*stormMost, stormLoses-stormZones*stormMost-len(recovered))

	e.each(lost, func(k *kubelet) { k.label("ready") })
	s.stands("the storm is over", 0, 0)
	done()
	if len(s.closings) < stormZones*stormMost+len(recovered) {
		t.Errorf("a watch saw %d nodes closed", len(s.closings))
	}
	after := s.written()
	for _, k := range s.fleet {
		if n := s.closings[k.name]; n > 1 || after[k.name]-before[k.name] != 2*n {
			t.Errorf("node %s was closed %d times and written %d times, want it closed once at most, and a write for each closing and opening",
				k.name, n, after[k.name]-before[k.name])
		}
	}
}

// written counts the controller's writes of each node of the fleet.
func (s *storm) written() map[string]int {
	s.Helper()
	writes := map[string]int{}
	for _, event := range s.audit() {
		if event.writesNode() {
			writes[event.ObjectRef.Name]++
		}
	}
	return writes
}
