// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/testcluster"
)

const fleetSize = 300

// A gate does not close on a fleet that is older than the gate.
func TestRunningFleetIsSafe(t *testing.T) {
	// The real node lifecycle controller runs, with shorter grace periods than its default:
	// 50 seconds, and a minute for new nodes.
	e := newControllersEnv(t, []testcluster.Component{testcluster.ControllerManager},
		"--node-monitor-period=1s", "--node-monitor-grace-period=8s", "--node-startup-grace-period=8s")
	fleet := e.fleet(fleetSize)
	e.startController(time.Hour)
	closed := e.watchFor(func(n *corev1.Node) bool { return hasTaint(n, keyA) || len(records(n)) > 0 })

	// A gate whose signal never holds.
	ng := e.declare(on(newGate("agent", keyA, byLabel("never")), "pool", "none"))
	// Its selector is widened to the whole fleet.
	e.edit(ng, func() { ng.Spec.NodeSelector.MatchLabels = nil })
	e.awaitFleetSelected(ng.Generation)
	// No kubelet sends heartbeats, until the node lifecycle controller has set the Ready
	// condition of every node to Unknown.
	e.eventually("all nodes are unreachable", func() error {
		if n := e.unreachable(); n < fleetSize {
			return fmt.Errorf("%d nodes are unreachable", n)
		}
		return nil
	})
	e.each(fleet, func(k *kubelet) { k.report(corev1.ConditionTrue, "") })
	e.each(fleet, (*kubelet).reboot)
	// The CRD is deleted, and with it the gate. Both are restored.
	e.deleteCRD()
	e.restoreCRD(ng)
	e.awaitFleetSelected(ng.Generation)

	if n := closed(); n > 0 {
		t.Errorf("%d states of existing nodes have the gate's taint or a record, want none", n)
	}
	for _, event := range e.loggedSoFar() {
		if ref := event.ObjectRef; ref.Resource == "nodes" && event.Verb == "patch" && event.User.Username == installationUser && strings.HasPrefix(ref.Name, "old-") {
			t.Fatalf("nodegate wrote %s: %s", ref.Name, event.RequestObject)
		}
	}
}

// awaitFleetSelected waits until the status of gate agent is about this generation and
// counts the whole fleet.
func (e *env) awaitFleetSelected(generation int64) {
	e.Helper()
	e.eventually("gate agent selects the whole fleet", func() error {
		status := e.readGate("agent").Status
		if status.Nodes.Selected < fleetSize || status.ObservedGeneration != generation {
			return fmt.Errorf("counts: %+v of generation %d", status.Nodes, status.ObservedGeneration)
		}
		return nil
	})
}

// unreachable returns the number of nodes whose Ready condition is Unknown.
func (e *env) unreachable() (n int) {
	e.Helper()
	var nodes corev1.NodeList
	e.must(e.admin.List(e.Context(), &nodes))
	for i := range nodes.Items {
		for _, c := range nodes.Items[i].Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
				n++
			}
		}
	}
	return n
}

// While the CRD is missing, closed gates stay closed, and gates still close on new nodes.
func TestMissingCRDChangesNothing(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	ng := e.declare(newGate("agent", keyA, byLabel("ready")))
	k := e.kubelet("n1")
	k.register()
	e.must(k.is("agent", isClosed, keyA))
	opened := e.watchFor(func(n *corev1.Node) bool { return n.Name == "n1" && !hasTaint(n, keyA) })

	e.deleteCRD()
	stop()
	metrics, _ := e.startWithMetrics() // a controller that has never observed the gate
	e.startsWithoutGates(metrics)
	late := e.kubelet("late")
	if born := late.register(); !hasTaint(born, keyA) {
		t.Error("while the CRD was missing, a node was created without the taint")
	}
	k.label("touched")
	e.restoreCRD(ng)
	k.unlabel("touched")
	e.inForce("agent")
	if n := opened(); n > 0 {
		t.Errorf("%d states of the node were without the taint while its gate was missing", n)
	}
	k.label("ready")
	k.becomes("agent", isOpen, keyA)
}
