// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
)

// storm is a fleet of 300 nodes of which nine in ten lose their signal at once. The nodes
// are in three zones, in no zone, and one is alone in a zone.
type storm struct {
	*world
	// lost are the nodes that lose their signal.
	lost []string
	// excess describes the first moment at which more nodes were closed than the budget
	// allows, or is empty.
	excess string
}

func stormZone(i int) string {
	switch {
	case i == 0:
		return "alone"
	case i < 50:
		return ""
	}
	return string(rune('a' + i%3))
}

func budget(s string) func(*v1alpha1.NodeGateSpec) {
	parsed := intstr.Parse(s)
	return func(spec *v1alpha1.NodeGateSpec) { spec.Budget.MaxReclosed = &parsed }
}

// newStorm returns the fleet before the storm: the gates are open on every node.
func newStorm(t *testing.T, gates ...*v1alpha1.NodeGate) *storm {
	s := &storm{world: newWorld(t, gates...)}
	s.add(300, func(i int, n *gate.Node) {
		if n.Labels[corev1.LabelTopologyZone] = stormZone(i); i%10 != 5 {
			s.lost = append(s.lost, n.Name)
		}
		for _, ng := range gates {
			isOpen(n, ng.Name)
		}
	})
	slices.Sort(s.lost)
	s.after = s.checkBudget
	return s
}

// checkBudget checks the budget after every write.
func (s *storm) checkBudget() {
	if s.excess != "" || len(s.gates) == 0 {
		return
	}
	members, closed := s.zones()
	for zone, n := range closed {
		if most := gate.MaxReclosed(s.gates[0].Spec.Budget.MaxReclosed, members[zone]); n > most {
			s.excess = fmt.Sprintf("zone %q has %d closed nodes, and the budget is %d", zone, n, most)
		}
	}
}

// zones returns the number of nodes, and of closed nodes, by zone.
func (s *storm) zones() (members, closed map[string]int) {
	members, closed = map[string]int{}, map[string]int{}
	for _, n := range s.nodes {
		members[n.Zone()]++
		if r, err := gate.ParseRecord(n.Records["gate"]); err == nil && r.State == v1alpha1.StateClosed && gate.IsBudgeted(r.Reason) {
			closed[n.Zone()]++
		}
	}
	return members, closed
}

func (s *storm) isClosed(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.nodes[name].Taints) > 0
}

// setAfter replaces after while a controller runs.
func (s *storm) setAfter(after func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = after
}

// loseSignals removes the signal of the lost nodes.
func (s *storm) loseSignals() {
	for _, name := range s.lost {
		s.change(name, func(n *gate.Node) { delete(n.Labels, "fit") })
	}
}

// regainSignals adds the signal of the lost nodes again.
func (s *storm) regainSignals() {
	for _, name := range s.lost {
		s.change(name, func(n *gate.Node) { n.Labels["fit"] = "" })
	}
}

// checkBudgetIsUsed checks that as many nodes are closed as must and may be, and that
// there were never more.
func (s *storm) checkBudgetIsUsed() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	members, closed := s.zones()
	lost := map[string]int{}
	for _, n := range s.nodes {
		if _, fit := n.Labels["fit"]; !fit {
			lost[n.Zone()]++
		}
	}
	for zone, n := range members {
		if want := min(gate.MaxReclosed(s.gates[0].Spec.Budget.MaxReclosed, n), lost[zone]); closed[zone] != want {
			s.t.Errorf("zone %q has %d closed nodes, want %d", zone, closed[zone], want)
		}
	}
	if s.excess != "" {
		s.t.Error(s.excess)
	}
}

// checkAllAreOpen checks that no node is closed, and that the budget was never exceeded.
func (s *storm) checkAllAreOpen() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.countClosed(); n != 0 {
		s.t.Errorf("%d nodes are still closed", n)
	}
	if s.excess != "" {
		s.t.Error(s.excess)
	}
}

// edited returns a gate with another budget.
func edited(ng *v1alpha1.NodeGate, to string) *v1alpha1.NodeGate {
	ng = ng.DeepCopy()
	ng.Generation++
	budget(to)(&ng.Spec)
	return ng
}

// With any budget, as many nodes close as it allows, with one write each. The others are
// queued and counted. When the signals hold again, all closed nodes open at once, with one
// write each.
func TestStorm(t *testing.T) {
	for _, maxReclosed := range []string{"0", "0%", "1", "7", "1%", "20%", "50%", "99%", "100%", "100", "1000"} {
		t.Run(maxReclosed, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStorm(t, controllertest.Gate("gate", budget(maxReclosed)))
				defer s.start(logr.Discard(), interceptor.Funcs{})()
				controllertest.Pass(5 * time.Second)
				s.loseSignals()
				controllertest.Pass(2 * time.Second)
				s.checkBudgetIsUsed()
				closed := s.closed()
				waiting := len(s.lost) - closed
				if n := s.written(); n != closed {
					t.Errorf("%d writes to close %d nodes", n, closed)
				}
				if n := s.stored("gate").Status.Nodes; int(n.Throttled) != waiting || int(n.Closed) != closed {
					t.Errorf("counts: %+v, want %d closed and %d throttled", n, closed, waiting)
				}
				if n := testutil.ToFloat64(s.c.metrics.Nodes.WithLabelValues("gate", "throttled")); int(n) != waiting {
					t.Errorf("the metric counts %v throttled nodes, want %d", n, waiting)
				}
				s.regainSignals()
				controllertest.Pass(0)
				s.checkAllAreOpen()
				if n := s.written(); n != 2*closed {
					t.Errorf("%d writes to close and open %d nodes", n, closed)
				}
				controllertest.Pass(2 * time.Second)
				status := s.stored("gate").Status
				if meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionThrottled) != nil || status.Nodes.Throttled != 0 {
					t.Errorf("status after the storm: %+v", status)
				}
				for zone, u := range s.c.ledger.Usage("gate") {
					if waiting := s.c.ledger.Queued(fleet.BudgetScope{Gate: "gate", Zone: zone}); len(waiting) != 0 || u.Used != 0 {
						t.Errorf("in zone %q, %v are queued, and %d count as closed", zone, waiting, u.Used)
					}
				}
			})
		})
	}
}

// The condition Throttled names a few queued nodes with the signals that they lost. Queued
// nodes are reconciled only by resyncs.
func TestStormIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorm(t, controllertest.Gate("gate", budget("0"), func(s *v1alpha1.NodeGateSpec) {
			s.OpenWhen = append([]v1alpha1.Signal{{Name: "other", SignalSource: v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "kubernetes.io/os"}}}}, s.OpenWhen...)
		}))
		for name, n := range s.nodes {
			n.Labels["kubernetes.io/os"] = "linux"
			s.nodes[name] = n
		}
		defer s.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Second)
		s.loseSignals()
		controllertest.Pass(2 * time.Second)
		c := meta.FindStatusCondition(s.stored("gate").Status.Conditions, v1alpha1.ConditionThrottled)
		want := "closing waits for budget on n0000, n0001, n0002 and 267 more: budget.maxReclosed (0) does not allow more closed nodes in their zone; " +
			"n0000: signal fit: the node has no label fit; n0001: signal fit: the node has no label fit; n0002: signal fit: the node has no label fit"
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonThrottled || c.Message != want {
			t.Errorf("the condition is %+v, want %q", c, want)
		}
		// Only resyncs reconcile nodes while they are queued.
		s.mu.Lock()
		before := s.reads
		s.mu.Unlock()
		controllertest.Pass(10 * time.Minute)
		s.mu.Lock()
		defer s.mu.Unlock()
		if n, most := s.reads-before, int(10*time.Minute/refreshInterval+1)*len(s.nodes); n > most {
			t.Errorf("%d nodes were reconciled %d times in 10 minutes without changes, want at most %d", len(s.nodes), n, most)
		}
	})
}
