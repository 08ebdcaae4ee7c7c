// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller"
)

// Backfill: once, when it starts, nodetaintshandler lists nodes without its taint that seem
// idle, because they have no pod outside kube-system and kube-public. It taints all of them as
// fast as possible, does not retry failures, and does not check whether a pod was bound between
// the list and the taint.

// backfill returns a gate that closes on existing nodes that are idle, and opens on nodes with
// the label "ready".
func backfill() *v1alpha1.NodeGate {
	ng := newGate("backfill", keyA, byLabel("ready"))
	ng.Spec.ExistingNodes = v1alpha1.ExistingCloseIfIdle
	ng.Spec.Budget.MaxReclosed = percent("100%")
	return ng
}

// A node is idle if it has only pods of DaemonSets, mirror pods and finished pods, in any
// namespace.
func TestSeedNodetaintshandlerBackfill(t *testing.T) {
	e := newEnv(t)
	nodes := e.registered("empty", "daemons", "finished", "busy", "busy-in-kube-system", "fit")
	inSystem, now := e.inNamespace("kube-system"), time.Now()
	nodes[1].bind("daemon", now, ownedBy("DaemonSet"))
	nodes[1].bind("daemon-in-kube-system", now, inSystem, ownedBy("DaemonSet"))
	nodes[2].finish(nodes[2].bind("done", now, ownedBy("Job")))
	nodes[3].bind("busy", now, ownedBy("ReplicaSet"))
	nodes[4].bind("busy-in-kube-system", now, inSystem, ownedBy("ReplicaSet"))
	nodes[5].bind("served", now, ownedBy("ReplicaSet"))
	nodes[5].label("ready")
	e.startController(time.Hour) // no node is new
	e.declare(backfill())

	for _, k := range nodes[:3] {
		k.becomes("backfill", isClosed, keyA)
	}
	nodes[5].becomes("backfill", isOpen, keyA)
	for _, k := range nodes[:3] {
		e.eventually("the second check of node "+k.name+" is complete", func() error {
			if r := k.record("backfill"); r.State != isClosed || r.Reason != v1alpha1.ReasonExisting {
				return fmt.Errorf("record: %+v", r)
			}
			return nil
		})
		k.wrote(2) // closed and confirmed
	}
	for _, k := range nodes[3:5] {
		e.must(k.is("backfill", isNone, keyA))
	}
	// The closed gates open like any other.
	nodes[0].label("ready")
	nodes[0].becomes("backfill", isOpen, keyA)
}

// At most ten nodes per second are closed, according to the audit log.
func TestSeedNodetaintshandlerBackfillPace(t *testing.T) {
	const fleet = 40
	e := newEnv(t)
	var nodes []*kubelet
	for i := range fleet {
		nodes = append(nodes, e.kubelet(fmt.Sprintf("backfill-%02d", i))) // no other test uses these names
	}
	e.each(nodes, func(k *kubelet) { k.register() })
	e.startController(time.Hour)
	declared := time.Now() // not the first write, which may be delayed, unlike the next ones
	e.declare(backfill())
	for _, k := range nodes {
		k.becomes("backfill", isClosed, keyA)
	}
	e.writesByNode(nodes...) // the audit log is complete
	closed := make(map[string]bool)
	var last time.Time
	for _, event := range e.audit() {
		name := event.ObjectRef.Name
		if event.writesNode() && strings.HasPrefix(name, "backfill-") && !closed[name] && bytes.Contains(event.RequestObject, []byte(keyA)) {
			last, closed[name] = event.Received.Time, true // the first write of each node closes the gate
		}
	}
	if len(closed) != fleet {
		t.Fatalf("the audit log contains %d writes that close the gate, want %d", len(closed), fleet)
	}
	took := last.Sub(declared)
	t.Logf("%d nodes were closed within %s", fleet, took)
	if least := (fleet - 1) * time.Second / 10 * 95 / 100; took < least {
		t.Errorf("%d nodes were closed within %s, want at least %s", fleet, took, least)
	}
}

// A pod that was bound between the list and the taint is detected, also if the controller that
// closed the gate has been replaced. The controller's clock stands still until the pod is bound,
// so that it does not check the node again before.
func TestSeedNodetaintshandlerBackfillRace(t *testing.T) {
	for name, restarts := range map[string]bool{"by the same controller": false, "by the next controller": true} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			nodes := e.registered("before", "n1")
			before, k := nodes[0], nodes[1]
			later := &stoppableClock{laterClock: laterClock{ahead: time.Hour}}
			stop := e.runController(func(p *controller.Process) { p.Options.Clock = later })
			ng := on(backfill(), "idle", "")
			ng.Spec.Budget.MaxReclosed = new(intstr.FromInt32(2)) // no node waits for budget while the clock stands still
			e.declare(ng)
			before.label("idle")
			before.becomes("backfill", isClosed, keyA) // a controller that has just started grants no budget for seconds
			later.stop()
			k.label("idle")
			k.becomes("backfill", isClosed, keyA)
			if r := k.record("backfill"); r.Reason != v1alpha1.ReasonExistingIdle {
				t.Fatalf("closed for %s, want %s", r.Reason, v1alpha1.ReasonExistingIdle)
			}
			if restarts {
				stop()
			}
			k.bind("late", time.Now(), ownedBy("ReplicaSet"))
			later.resume()
			if restarts {
				e.startController(time.Hour)
			}
			k.becomes("backfill", isNone, keyA)
			e.settled()
			k.must(k.is("backfill", isNone, keyA))
			k.wrote(2) // closed and opened
		})
	}
}

// stoppableClock is a clock that can stand still.
type stoppableClock struct {
	laterClock
	stopped atomic.Pointer[time.Time]
}

func (c *stoppableClock) stop() {
	now := c.laterClock.Now()
	c.stopped.Store(&now)
}

func (c *stoppableClock) resume() { c.stopped.Store(nil) }

// Now implements clock.PassiveClock.
func (c *stoppableClock) Now() time.Time {
	if at := c.stopped.Load(); at != nil {
		return *at
	}
	return c.laterClock.Now()
}

// Since implements clock.PassiveClock.
func (c *stoppableClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Closing idle nodes needs budget.
func TestSeedNodetaintshandlerBackfillBudget(t *testing.T) {
	e := newEnv(t)
	nodes := e.registered("n1", "n2", "n3", "n4", "n5")
	e.startController(time.Hour)
	ng := backfill()
	ng.Spec.Budget.MaxReclosed = new(intstr.FromInt32(1))
	e.declare(ng)
	e.eventually("closing is throttled", func() error {
		return e.condition("backfill", v1alpha1.ConditionThrottled, metav1.ConditionTrue, v1alpha1.ReasonThrottled)
	})
	e.eventually("one node is closed", func() error {
		if n := closedNodes(nodes); n != 1 {
			return fmt.Errorf("%d nodes are closed", n)
		}
		return nil
	})
	e.settled()
	if n := closedNodes(nodes); n != 1 {
		t.Errorf("%d nodes are closed, want 1, the budget", n)
	}
}

// closedNodes returns the number of nodes with the gate's taint.
func closedNodes(nodes []*kubelet) (n int) {
	for _, k := range nodes {
		n += k.count(keyA)
	}
	return n
}
