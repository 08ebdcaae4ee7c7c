// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Backfill: nodetaintshandler looks once, when it starts, for nodes that carry
// no taint yet and seem idle, which to it means no pod outside kube-system and
// kube-public. It taints them all as fast as it can, tries none again that
// failed, and never looks whether a pod came between its look and its taint.

// backfill is a gate that closes existing nodes if they are idle, and opens
// where the label "ready" is.
func backfill() *v1alpha1.NodeGate {
	ng := newGate("backfill", keyA, byLabel("ready"))
	ng.Spec.ExistingNodes = v1alpha1.ExistingCloseIfIdle
	ng.Spec.Budget.MaxReclosed = percent("100%")
	return ng
}

// Idle is what runs nothing but daemons, mirrors and finished pods, of whatever
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
	e.startController(time.Hour) // the nodes are older than any birth
	e.declare(backfill())

	for _, k := range nodes[:3] {
		k.becomes("backfill", isClosed, keyA)
	}
	nodes[5].becomes("backfill", isOpen, keyA)
	for _, k := range nodes[:3] {
		e.eventually("node "+k.name+" has been looked at once more", func() error {
			if r := k.record("backfill"); r.State != isClosed || r.Reason != v1alpha1.ReasonExisting {
				return fmt.Errorf("record: %+v", r)
			}
			return nil
		})
		if writes := e.nodeWrites(k.name); len(writes) != 2 {
			t.Errorf("node %s was written %d times, want twice: closed and confirmed\n%v", k.name, len(writes), writes)
		}
	}
	for _, k := range nodes[3:5] {
		e.must(k.is("backfill", isNone, keyA))
	}
	// What was closed opens like any other.
	nodes[0].label("ready")
	nodes[0].becomes("backfill", isOpen, keyA)
}

// At most ten nodes a second are closed, by the API server's own word.
func TestSeedNodetaintshandlerBackfillPace(t *testing.T) {
	const fleet = 40
	e := newEnv(t)
	var nodes []*kubelet
	for i := range fleet {
		nodes = append(nodes, e.kubelet(fmt.Sprintf("backfill-%02d", i))) // no other test has these names
	}
	e.each(nodes, func(k *kubelet) { k.register() })
	e.startController(time.Hour)
	declared := time.Now() // the first closing may arrive late, and others then soon after it
	e.declare(backfill())
	open := make(map[string]bool)
	var last time.Time
	for _, k := range nodes {
		k.becomes("backfill", isClosed, keyA)
		open[k.name] = true
	}
	for _, event := range e.audit() {
		if event.writesNode() && open[event.ObjectRef.Name] && bytes.Contains(event.RequestObject, []byte(keyA)) {
			last = event.Received.Time
			delete(open, event.ObjectRef.Name) // the first write of each closes it
		}
	}
	if len(open) > 0 {
		t.Fatalf("%d of %d closings are not in the audit log", len(open), fleet)
	}
	took := last.Sub(declared)
	t.Logf("%d nodes were closed within %s", fleet, took)
	if least := (fleet - 1) * time.Second / 10 * 95 / 100; took < least {
		t.Errorf("%d nodes were closed within %s, want %s at least", fleet, took, least)
	}
}

// A pod that was bound between the look and the taint is noticed, also if the
// controller that closed the node is gone by then.
func TestSeedNodetaintshandlerBackfillRace(t *testing.T) {
	for name, restarts := range map[string]bool{"by the same controller": false, "by the next controller": true} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			k := e.registered("n1")[0]
			stop := e.startController(time.Hour)
			e.declare(backfill())
			k.becomes("backfill", isClosed, keyA)
			if r := k.record("backfill"); r.Reason != v1alpha1.ReasonExistingIdle {
				t.Fatalf("closed for %s, want %s", r.Reason, v1alpha1.ReasonExistingIdle)
			}
			if restarts {
				stop()
			}
			k.bind("late", time.Now(), ownedBy("ReplicaSet"))
			if restarts {
				e.startController(time.Hour)
			}
			k.becomes("backfill", isNone, keyA)
			e.settled()
			k.must(k.is("backfill", isNone, keyA))
			if writes := e.nodeWrites("n1"); len(writes) != 2 {
				t.Errorf("the node was written %d times, want twice: closed and opened\n%v", len(writes), writes)
			}
		})
	}
}

// Closing idle nodes is under the budget, as it is for neither birth nor reboot.
func TestSeedNodetaintshandlerBackfillBudget(t *testing.T) {
	e := newEnv(t)
	nodes := e.registered("n1", "n2", "n3", "n4", "n5")
	e.startController(time.Hour)
	ng := backfill()
	ng.Spec.Budget.MaxReclosed = ptr.To(intstr.FromInt32(1))
	e.declare(ng)
	e.eventually("closing waits", func() error {
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
		t.Errorf("%d nodes are closed, and the budget is one", n)
	}
}

func closedNodes(nodes []*kubelet) (n int) {
	for _, k := range nodes {
		n += k.count(keyA)
	}
	return n
}
