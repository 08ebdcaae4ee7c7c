// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
)

// Budget that becomes available is granted to the node that has waited longest. Other nodes
// are not reconciled. A node that recovers and fails again joins the queue at its end, so
// flapping nodes do not delay others.
func TestBudgetIsGrantedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", budget("1")))
		w.add(200, func(_ int, n *gate.Node) { isOpen(n, "gate") })
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Second)
		order := rand.Perm(200)
		node := func(i int) string { return fmt.Sprintf("n%04d", order[i]) }
		for i := range order {
			w.change(node(i), func(n *gate.Node) { delete(n.Labels, "fit") })
			controllertest.Pass(10 * time.Millisecond)
		}
		wide := 0
		for i := range order {
			if n := w.node(node(i)); w.closed() != 1 || len(n.Taints) != 1 {
				t.Fatalf("%d nodes are closed, and %s (number %d) is closed: %t; want only this one", w.closed(), n.Name, i, len(n.Taints) == 1)
			}
			before := w.readCount()
			w.change(node(i), func(n *gate.Node) { n.Labels["fit"] = "" })
			controllertest.Pass(time.Millisecond)
			w.change(node(i), func(n *gate.Node) { delete(n.Labels, "fit") }) // fails again
			controllertest.Pass(fleet.CountInterval)
			if w.readCount()-before > 5 { // more than this node, twice, and the next one
				wide++
			}
		}
		if most := int(200*fleet.CountInterval/refreshInterval) + 1; wide > most { // resyncs
			t.Errorf("more nodes than the next one were reconciled %d times, want at most %d", wide, most)
		}
		if n := w.node(node(0)); len(n.Taints) != 1 {
			t.Error("after all nodes had their turn, the first one is not closed again")
		}
	})
}

// While hundreds of nodes are queued, and while hundreds close because the budget was
// raised, new nodes and recovered nodes open at once.
func TestStormDelaysNoOpening(t *testing.T) {
	const latency = 50 * time.Millisecond // of a write
	synctest.Test(t, func(t *testing.T) {
		ng := controllertest.Gate("gate", budget("10%"))
		s := newStorm(t, ng)
		s.fail = func(string) error { <-time.After(latency); return nil }
		defer s.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Second)
		opens := func(name string, within time.Duration) {
			t.Helper()
			s.change(name, func(n *gate.Node) { n.Labels["fit"] = "" })
			controllertest.Pass(within)
			if s.isClosed(name) {
				t.Errorf("node %s has not opened within %s", name, within)
			}
		}
		born := func(name string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			n := gate.Node{Name: name, UID: types.UID(name), Created: time.Now(), BootID: "boot", Labels: map[string]string{}, Records: map[string]string{}}
			isClosed(&n, "gate", v1alpha1.ReasonBirth)
			s.nodes[name] = n
		}
		s.loseSignals()
		controllertest.Pass(5 * time.Second)
		s.checkBudgetIsUsed()
		born("new-1")
		opens("new-1", latency)
		for _, name := range s.lost {
			if s.isClosed(name) {
				opens(name, latency)
				break
			}
		}
		s.setGates(true, edited(ng, "100%"))
		born("new-2")
		born("new-3")
		before := s.closed()
		for s.closed() == before { // until nodes begin to close
			controllertest.Pass(latency / 5)
		}
		// The workers are busy, and at most one node per worker is queued before it.
		opens("new-2", 3*latency)
		if n := s.closed(); n > 200 {
			t.Fatalf("%d nodes are closed: too many for this test", n)
		}
		opens("new-3", 3*latency)
		controllertest.Pass(5 * time.Second)
		s.checkBudgetIsUsed()
	})
}

// The budget is raised and lowered during a storm. Closed nodes stay closed, and no other
// node closes until the budget allows it again.
func TestBudgetEditedInAStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ng := controllertest.Gate("gate", budget("20%"))
		s := newStorm(t, ng)
		defer s.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Second)
		s.loseSignals()
		controllertest.Pass(5 * time.Second)
		s.checkBudgetIsUsed()
		raised := edited(ng, "50%")
		s.setGates(true, raised)
		controllertest.Pass(5 * time.Second)
		s.checkBudgetIsUsed()
		before := s.closed()

		s.setAfter(nil) // from now on, more nodes are closed than the budget allows
		s.setGates(true, edited(raised, "10%"))
		controllertest.Pass(5 * time.Minute)
		if n := s.closed(); n != before {
			t.Errorf("%d nodes are closed after the budget was lowered, want the %d from before", n, before)
		}
		// One after another recovers.
		for _, name := range s.lost {
			s.mu.Lock()
			_, was := s.zones()
			node := s.nodes[name]
			s.mu.Unlock()
			zone := node.Zone()
			if len(node.Taints) == 0 {
				continue
			}
			s.change(name, func(n *gate.Node) { n.Labels["fit"] = "" })
			controllertest.Pass(2 * fleet.CountInterval)
			s.mu.Lock()
			members, now := s.zones()
			s.mu.Unlock()
			want := was[zone] - 1
			if most := gate.MaxReclosed(new(intstr.FromString("10%")), members[zone]); want < most {
				s.setAfter(s.checkBudget) // from now on, the lower budget is respected
				break
			}
			if now[zone] != want {
				t.Fatalf("zone %q had %d closed nodes, one recovered, and now it has %d", zone, was[zone], now[zone])
			}
		}
		s.regainSignals()
		controllertest.Pass(0)
		if n := s.closed(); n != 0 {
			t.Errorf("%d nodes are still closed", n)
		}
	})
}

// A closed node that moves to another zone counts there. A deleted node, queued or closed,
// releases its place to others. Nothing remains stored of a deleted gate.
func TestStormOfMovedAndDeletedNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ng := controllertest.Gate("gate", budget("10"))
		s := newStorm(t, ng)
		defer s.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Second)
		s.loseSignals()
		controllertest.Pass(2 * time.Second)
		s.checkBudgetIsUsed()
		closedIn := func(zone string) (names []string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for name, n := range s.nodes {
				if n.Zone() == zone && len(n.Taints) > 0 {
					names = append(names, name)
				}
			}
			return names
		}
		// Three nodes move from zone a to zone b, which then exceeds its budget.
		s.setAfter(nil)
		for _, name := range closedIn("a")[:3] {
			s.change(name, func(n *gate.Node) { n.Labels[corev1.LabelTopologyZone] = "b" })
		}
		controllertest.Pass(2 * time.Second)
		if a, b := len(closedIn("a")), len(closedIn("b")); a != 10 || b != 13 {
			t.Errorf("%d and %d nodes are closed, want 10, and 13 including those that moved", a, b)
		}
		for range 4 { // until the budget allows one more in zone b
			name := closedIn("b")[0]
			s.remove(name)
			s.c.NodeChanged(name, gate.Everything())
			controllertest.Pass(2 * time.Second)
		}
		if n := len(closedIn("b")); n != 10 {
			t.Errorf("%d nodes of zone b are closed, want 10", n)
		}
		// Half of the queued nodes are deleted.
		for i, name := range s.lost {
			if n := s.node(name); n.Name != "" && len(n.Taints) == 0 && i%2 == 0 {
				s.remove(name)
				s.c.NodeChanged(name, gate.Everything())
			}
		}
		controllertest.Pass(2 * time.Second)
		if n := len(closedIn("a")); n != 10 {
			t.Errorf("%d nodes of zone a are closed, want 10", n)
		}
		s.setGates(true)
		controllertest.Pass(5 * time.Second)
		s.checkAllAreOpen()
		if s.c.ledger.Summary("gate").Counts != (v1alpha1.NodeCounts{}) || len(s.c.ledger.Reserving()) > 0 {
			t.Error("the ledger still has states of the deleted gate")
		}
	})
}
