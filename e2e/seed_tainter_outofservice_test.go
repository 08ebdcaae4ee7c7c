// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/write"
)

// The purpose of Tainter: a spot node is reclaimed, and other nodes must be able to attach its
// volumes. Tainter adds node.kubernetes.io/out-of-service because of the preemption notice,
// while the node still writes to the volumes, and never removes it.

// spotGate returns a gate that takes nodes out of service that have a preemption notice and are
// unreachable.
func spotGate() *v1alpha1.NodeGate {
	ng := taintWhen("spot", v1alpha1.Signal{Name: "notice", SignalSource: v1alpha1.SignalSource{
		Condition: &v1alpha1.ConditionSignal{Type: "PreemptionNotice", Status: "True"},
	}})
	ng.Spec.NodeSelector = v1alpha1.LabelSelector{MatchLabels: map[string]string{"spot": ""}}
	ng.Spec.Taint = v1alpha1.Taint{Key: v1alpha1.TaintOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}
	ng.Spec.Acknowledge = []v1alpha1.Acknowledgement{v1alpha1.AcknowledgePodEviction, v1alpha1.AcknowledgeVolumeDetach}
	ng.Spec.Budget.MaxReclosed = percent("100%")
	return ng
}

// unreachableSince sets the node's Ready condition to Unknown, like the node lifecycle
// controller, and its transition to a time in the past.
func (k *kubelet) unreachableSince(ago time.Duration) {
	k.Helper()
	k.statusPatch(fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","lastTransitionTime":%q}]}}`,
		time.Now().Add(-ago).UTC().Format(time.RFC3339)))
}

// spotNodes registers ready nodes that have a preemption notice.
func (e *env) spotNodes(names ...string) []*kubelet {
	e.Helper()
	var all []*kubelet
	for _, name := range names {
		k := e.kubelet(name)
		k.register(func(n *corev1.Node) { n.Labels["spot"] = "" })
		k.setCondition("PreemptionNotice", "True")
		all = append(all, k)
	}
	return all
}

// expectInService verifies that the node is not out of service once the controller has processed
// all earlier changes.
func (k *kubelet) expectInService(what string) {
	k.Helper()
	k.settled()
	if hasTaint(k.node(), v1alpha1.TaintOutOfService) {
		k.Errorf("%s: the node is out of service", what)
	}
}

// shutDown is a patch that adds the taint of a cloud provider that reports a shutdown.
const shutDown = `{"spec":{"taints":[{"key":"` + v1alpha1.TaintCloudShutdown + `","effect":"NoSchedule"}]}}`

// isOutOfServiceOnce waits until a node that meets the gate's other requirements is out of
// service because it is shut down and unreachable, and in service again when it reports. Until
// then, the controller may not have granted any budget to the gate, and a node that it would
// wrongly take out of service would only be queued.
func (k *kubelet) isOutOfServiceOnce(gateName string) {
	k.Helper()
	k.patch(shutDown)
	k.unreachableSince(0)
	k.becomes(gateName, isClosed, v1alpha1.TaintOutOfService)
	k.report(corev1.ConditionTrue, "")
	k.becomes(gateName, isNone, v1alpha1.TaintOutOfService)
}

// watchOutOfService verifies, until the returned function is called, that nodes are taken out of
// service only while they are unreachable.
func (e *env) watchOutOfService() (stop func()) {
	var mu sync.Mutex
	out := map[string]bool{}
	return e.watchAll(func(n *corev1.Node) error {
		mu.Lock()
		defer mu.Unlock()
		was := out[n.Name]
		out[n.Name] = hasTaint(n, v1alpha1.TaintOutOfService)
		if out[n.Name] && !was {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status != corev1.ConditionUnknown {
					return fmt.Errorf("taken out of service while Ready is %s", c.Status)
				}
			}
		}
		return nil
	})
}

// The gate closes when a node with a preemption notice is unreachable, and opens when the node
// is reporting again.
func TestSeedTainterOutOfServiceGuards(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	e.declare(spotGate())
	e.registered("steady-1", "steady-2")
	done := e.watchOutOfService()
	e.spotNodes("lost")[0].isOutOfServiceOnce("spot")
	k := e.spotNodes("n1")[0]
	k.expectInService("preemption notice")
	k.report(corev1.ConditionFalse, "container runtime is down")
	k.expectInService("not ready")
	k.patch(shutDown)
	k.expectInService("not ready, and shut down according to the cloud provider")
	k.patch(`{"spec":{"taints":null}}`)
	k.unreachableSince(0)
	k.expectInService("unreachable for less than a minute")
	k.report(corev1.ConditionTrue, "")
	k.unreachableSince(time.Hour)
	k.expectInService("unreachable for less than a minute by the controller's clock, which is ahead")
	k.wrote(0)

	// A controller that has not observed how the node became unreachable relies on the API.
	unobserved := func() {
		stop()
		k.unreachableSince(time.Hour)
		stop = e.startController(0)
	}
	unobserved()
	k.becomes("spot", isClosed, v1alpha1.TaintOutOfService)
	k.report(corev1.ConditionTrue, "")
	k.becomes("spot", isNone, v1alpha1.TaintOutOfService)
	unobserved()
	k.becomes("spot", isClosed, v1alpha1.TaintOutOfService)
	k.report(corev1.ConditionFalse, "container runtime is down")
	k.becomes("spot", isNone, v1alpha1.TaintOutOfService)

	// If the cloud provider reports a shutdown, the gate closes without waiting for a minute.
	k.patch(shutDown)
	k.unreachableSince(0)
	k.becomes("spot", isClosed, v1alpha1.TaintOutOfService)

	// The node reports while the controller is down, and still has the notice and the shutdown
	// taint.
	stop()
	k.report(corev1.ConditionTrue, "")
	e.startController(0)
	k.becomes("spot", isNone, v1alpha1.TaintOutOfService)
	done()
}

// If most nodes of a zone are unreachable, the network is the likely cause, and volumes must
// not be detached by force. Otherwise, the budget limits the number of nodes.
func TestSeedTainterOutOfServicePartition(t *testing.T) {
	e := newEnv(t)
	ng := spotGate()
	ng.Spec.Budget.MaxReclosed = percent("20%")
	var fleet []*kubelet
	for i := range 10 {
		fleet = append(fleet, e.spotNodes(fmt.Sprint("n", i))...)
	}
	fleet = e.inZone("a", fleet)
	for _, k := range fleet[:6] {
		k.unreachableSince(time.Hour)
	}
	metrics, _ := e.startWithMetrics()
	e.declare(ng)
	e.shows(metrics, "nodegate_gate_budget_allowed_nodes", 2, ng.Name, "a") // all nodes are counted
	e.spotNodes("elsewhere")
	var counts v1alpha1.NodeCounts
	e.eventually("a later status counts another node", func() error {
		counts = e.readGate(ng.Name).Status.Nodes
		return errUnless(int(counts.Selected) == len(fleet)+1, fmt.Sprintf("%d nodes are selected", counts.Selected))
	})
	if counts.Throttled != 0 { // the budget does not suffice for all unreachable nodes
		t.Errorf("in a partition, %d nodes wait for budget to be out of service, want 0", counts.Throttled)
	}
	e.settled()
	if n := e.outOfService(fleet); n != 0 {
		t.Errorf("in a partition, %d nodes are out of service, want 0", n)
	}
	fleet[0].report(corev1.ConditionTrue, "")
	e.eventually("20 % of the nodes are out of service", func() error {
		if n := e.outOfService(fleet); n != 2 {
			return fmt.Errorf("%d nodes are out of service", n)
		}
		return nil
	})
	e.settled()
	if n := e.outOfService(fleet); n != 2 {
		t.Errorf("%d nodes are out of service, want 2", n)
	}
}

// inZone labels nodes with a zone.
func (e *env) inZone(zone string, fleet []*kubelet) []*kubelet {
	for _, k := range fleet {
		k.patch(fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, corev1.LabelTopologyZone, zone))
	}
	return fleet
}

// outOfService returns the number of nodes that are out of service.
func (e *env) outOfService(fleet []*kubelet) (n int) {
	for _, k := range fleet {
		if hasTaint(k.node(), v1alpha1.TaintOutOfService) {
			n++
		}
	}
	return n
}

// If a controller has not observed for an hour that the node is reporting again, the API server
// rejects its patch.
func TestSeedTainterOutOfServiceOnOldNews(t *testing.T) {
	e := newEnv(t)
	k := e.spotNodes("n1")[0]
	k.unreachableSince(time.Hour)
	old := facts(k.node())
	config, err := e.cluster.ServiceAccount(t.Context(), installation.Namespace, installation.ServiceAccount)
	e.must(err)
	writer, err := write.NewWriter(config)
	e.must(err)
	decision := &gate.Decision{Taints: append(slices.Clone(old.Taints), corev1.Taint{Key: v1alpha1.TaintOutOfService, Effect: corev1.TaintEffectNoExecute})}

	k.report(corev1.ConditionTrue, "")
	if _, err := writer.Apply(t.Context(), old, decision); !errors.Is(err, write.ErrConflict) {
		t.Errorf("the node is reporting again: %v, want a conflict", err)
	}
	k.unreachableSince(time.Second)
	if _, err := writer.Apply(t.Context(), old, decision); !errors.Is(err, write.ErrConflict) {
		t.Errorf("the node is unreachable again: %v, want a conflict", err)
	}
	if _, err := writer.Apply(t.Context(), facts(k.node()), decision); err != nil {
		t.Errorf("the controller has the current state: %v", err)
	}
}

// facts returns the facts about a node that the patch tests.
func facts(o *corev1.Node) *gate.Node {
	n := &gate.Node{Name: o.Name, UID: o.UID, Taints: o.Spec.Taints}
	for _, c := range o.Status.Conditions {
		n.Conditions = append(n.Conditions, gate.Condition{Type: string(c.Type), Status: c.Status, Transition: c.LastTransitionTime.UTC()})
	}
	return n
}
