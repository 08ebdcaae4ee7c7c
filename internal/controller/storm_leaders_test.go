// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/election"
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
)

// A controller that starts during a storm closes nothing before it has reconciled the whole
// fleet, and then only as many nodes as the budget still allows. Until then, the gate's
// status remains that of its predecessor.
func TestStormAcrossARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorm(t, controllertest.Gate("gate", budget("20%")))
		stop := s.start(logr.Discard(), interceptor.Funcs{})
		controllertest.Pass(5 * time.Second)
		s.loseSignals()
		controllertest.Pass(5 * time.Second)
		s.checkBudgetIsUsed()
		stored := s.stored("gate")
		stop()
		// Meanwhile two nodes recover, and a new one is created, whose write is slow.
		var recovered []string
		for name, n := range s.nodes {
			if len(n.Taints) > 0 && len(recovered) < 2 && n.Zone() == "a" {
				recovered = append(recovered, name)
				n.Labels = maps.Clone(n.Labels)
				n.Labels["fit"] = ""
				s.nodes[name] = n
			}
		}
		s.mu.Lock()
		slow := s.nodes["n0005"]
		slow.Records = map[string]string{}
		isClosed(&slow, "gate", v1alpha1.ReasonBirth)
		s.nodes["n0005"] = slow
		s.gates = []*v1alpha1.NodeGate{stored}
		s.mu.Unlock()
		written := s.written()
		s.fail = func(node string) error {
			if node == "n0005" {
				<-time.After(10 * time.Second)
			}
			return nil
		}
		defer s.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(9 * time.Second)
		if n := s.written() - written; n != len(recovered) {
			t.Errorf("%d nodes were written before the state of the fleet was known, want the %d that recovered", n, len(recovered))
		}
		before := meta.FindStatusCondition(stored.Status.Conditions, v1alpha1.ConditionThrottled)
		now := s.stored("gate").Status
		if c := meta.FindStatusCondition(now.Conditions, v1alpha1.ConditionThrottled); c == nil || c.Message != before.Message || now.Nodes.Throttled != stored.Status.Nodes.Throttled {
			t.Errorf("the condition was %+v, and is %+v before the state of the fleet is known", before, c)
		}
		controllertest.Pass(5 * time.Second)
		s.checkBudgetIsUsed()
		if n := s.written() - written; n != 2*len(recovered)+1 {
			t.Errorf("%d nodes were written, want %d: the two that recovered, two that closed instead, and the new one", n, 2*len(recovered)+1)
		}
		now = s.stored("gate").Status
		if c := meta.FindStatusCondition(now.Conditions, v1alpha1.ConditionThrottled); c == nil || !c.LastTransitionTime.Equal(&before.LastTransitionTime) {
			t.Errorf("the condition was %+v, and is %+v", before, c)
		}
	})
}

// While a leader does not know yet how many nodes are closed, it does not report nodes as
// throttled.
func TestUnknownFleetIsNotThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorm(t, controllertest.Gate("gate", budget("100%")))
		s.lost = s.NodeNames()
		s.fail = func(string) error { <-time.After(10 * time.Second); return nil }
		late := s.nodes["n0005"]
		isClosed(&late, "gate", v1alpha1.ReasonBirth)
		for name, n := range s.nodes {
			if name != late.Name {
				n.Labels = map[string]string{}
				s.nodes[name] = n
			}
		}
		s.nodes[late.Name] = late
		defer s.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(9 * time.Second)
		status := s.stored("gate").Status
		if s.written() != 0 || status.Nodes.Throttled != 0 || meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionThrottled) != nil {
			t.Errorf("before the state of the fleet is known, there are %d writes, and the status is %+v", s.written(), status)
		}
		controllertest.Pass(10 * time.Minute)
		if n := s.closed(); n != len(s.NodeNames())-1 {
			t.Errorf("%d nodes are closed, want all but the new one", n)
		}
	})
}

// jumpingClock is a clock that jumps forward.
type jumpingClock struct {
	clock.RealClock
	ahead atomic.Int64
}

func (c *jumpingClock) Now() time.Time { return c.RealClock.Now().Add(time.Duration(c.ahead.Load())) }

func (c *jumpingClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// While a leader was paused, another one has opened nodes and closed others. When it
// continues, and the feed reports the openings first, it reconciles all nodes before it
// grants the budget that seems to be available.
func TestPausedLeaderResyncsBeforeItCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorm(t, controllertest.Gate("gate", budget("20%")))
		c := &jumpingClock{}
		s.clock = c
		defer s.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Second)
		s.loseSignals()
		controllertest.Pass(5 * time.Second)
		s.checkBudgetIsUsed()
		var opened []string
		var others []string // the last in the queue
		for _, zone := range []string{"a", "b", "c"} {
			line := s.c.ledger.Queued(fleet.BudgetScope{Gate: "gate", Zone: zone})
			others = append(others, line[len(line)-gate.MaxReclosed(new(intstr.FromString("20%")), 84):]...)
		}
		s.mu.Lock()
		for name, n := range s.nodes {
			switch n.Labels, n.Records = maps.Clone(n.Labels), maps.Clone(n.Records); {
			case slices.Contains(others, name):
				isClosed(&n, "gate", v1alpha1.ReasonRegression)
			case len(n.Taints) > 0:
				opened, n.Taints, n.Labels["fit"] = append(opened, name), nil, ""
				isOpen(&n, "gate")
			}
			s.nodes[name] = n
		}
		s.mu.Unlock()
		c.ahead.Store(int64(time.Minute))
		for _, name := range opened {
			s.c.NodeChanged(name, gate.Everything())
		}
		controllertest.Pass(5 * time.Second)
		s.checkBudgetIsUsed()
	})
}

// closedByAnother closes the gate on a node as another leader.
func (w *world) closedByAnother(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[name]
	n.Labels, n.Records = map[string]string{}, map[string]string{}
	isClosed(&n, "gate", v1alpha1.ReasonRegression)
	w.nodes[name] = n
}

// A leader may be paused within a reconcile, while another one closes a node. It must not grant
// the budget that seemed to be available before.
func TestPauseWithinAReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", budget("1")))
		w.add(2, func(_ int, n *gate.Node) { isOpen(n, "gate") })
		c := &jumpingClock{}
		w.clock = c
		var pauses atomic.Bool
		w.reading = func(node string) {
			if node != "n0000" || !pauses.CompareAndSwap(true, false) {
				return
			}
			c.ahead.Store(int64(time.Minute))
			w.closedByAnother("n0001")
		}
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Second)
		pauses.Store(true)
		w.change("n0000", func(n *gate.Node) { n.Labels = map[string]string{} })
		controllertest.Pass(5 * time.Second)
		if pauses.Load() || len(w.node("n0000").Taints) > 0 {
			t.Error("the node closed under budget that another leader had used during the pause")
		}
		w.change("n0001", func(n *gate.Node) { n.Labels = map[string]string{"fit": ""} })
		controllertest.Pass(5 * time.Second)
		if len(w.node("n0001").Taints) > 0 || len(w.node("n0000").Taints) == 0 {
			t.Error("the node did not close when the budget became available")
		}
	})
}

// While a leader was paused, another one has closed a node. When it continues, its watch has not
// delivered that yet, so that a count of the nodes that it knows is too low.
func TestPausedLeaderWaitsForItsWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", budget("1")))
		w.add(2, func(_ int, n *gate.Node) { isOpen(n, "gate") })
		c := &jumpingClock{}
		w.clock = c
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Second)
		other := w.node("n0001")
		w.mu.Lock()
		w.stale = map[string]gate.Node{other.Name: other}
		w.mu.Unlock()
		w.closedByAnother(other.Name)
		c.ahead.Store(int64(time.Minute))
		w.change("n0000", func(n *gate.Node) { n.Labels = map[string]string{} })
		controllertest.Pass(election.DefaultDuration)
		_ = w.Refresh(t.Context(), other.Name) // what the watch delivers
		w.c.NodeChanged(other.Name, gate.Everything())
		controllertest.Pass(10 * time.Second)
		if len(w.node("n0000").Taints) > 0 {
			t.Error("the node closed under budget that another leader had used during the pause")
		}
		w.change(other.Name, func(n *gate.Node) { n.Labels = map[string]string{"fit": ""} })
		controllertest.Pass(5 * time.Second)
		if len(w.node(other.Name).Taints) > 0 || len(w.node("n0000").Taints) == 0 {
			t.Error("the node did not close when the budget became available")
		}
	})
}

// hangingWriter is a writer whose writes hang until its leader has stopped, and are then
// carried out.
type hangingWriter struct {
	*world
	mu       sync.Mutex
	inFlight int
	until    chan struct{}
}

func (d *hangingWriter) Apply(_ context.Context, n *gate.Node, decision *gate.Decision) (*corev1.Node, error) {
	d.mu.Lock()
	d.inFlight++
	d.mu.Unlock()
	<-d.until
	return d.world.Apply(context.Background(), n, decision)
}

// hanging returns the number of writes so far.
func (d *hangingWriter) hanging() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inFlight
}

// The writes that are in flight when a leader loses the Lease may exceed the budget. After
// that, nothing closes until the budget allows it again.
func TestFormerLeaderExceedsTheBudgetByWritesInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorm(t, controllertest.Gate("gate", budget("20%")))
		old := &hangingWriter{world: s.world, until: make(chan struct{})}
		stopOld := s.startWith(old)
		controllertest.Pass(5 * time.Second)
		s.loseSignals()
		controllertest.Pass(5 * time.Second)
		inFlight := old.hanging()
		if inFlight == 0 || s.closed() != 0 {
			t.Fatalf("%d writes are in flight, and %d nodes are closed", inFlight, s.closed())
		}
		defer s.startWith(s.world)()
		controllertest.Pass(5 * time.Second)
		s.checkBudgetIsUsed() // under the new leader
		budgeted := s.closed()

		most := 0
		s.setAfter(func() {
			most = max(most, s.countClosed())
			for name := range s.nodes {
				s.c.NodeChanged(name, gate.Everything())
			}
		})
		var stopping sync.WaitGroup
		stopping.Go(stopOld)
		controllertest.Pass(0)
		close(old.until)
		stopping.Wait()
		controllertest.Pass(5 * time.Minute)
		if most <= budgeted || most > budgeted+inFlight || s.closed() != most {
			t.Errorf("%d nodes are closed, and at most %d were; want more than the budget of %d, by at most the %d writes in flight", s.closed(), most, budgeted, inFlight)
		}
		s.regainSignals()
		controllertest.Pass(0)
		if n := s.closed(); n != 0 {
			t.Errorf("%d nodes are still closed", n)
		}
		s.setAfter(s.checkBudget)
		s.loseSignals()
		controllertest.Pass(5 * time.Second)
		s.checkBudgetIsUsed()
	})
}
