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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/write"
)

// What Tainter was made for: a spot node is reclaimed, and its volumes are to be
// free for others. Tainter puts node.kubernetes.io/out-of-service on at the
// notice, while the node still writes, and never takes it off.

// spotGate takes nodes out of service that were given notice and fell silent.
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

// silentSince does what the node lifecycle controller did so long ago.
func (k *kubelet) silentSince(ago time.Duration) {
	k.Helper()
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","lastTransitionTime":%q}]}}`,
		time.Now().Add(-ago).UTC().Format(time.RFC3339))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.name}}
	k.must(k.admin.Status().Patch(k.Context(), node, client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
}

// spotNodes registers nodes that were given notice, and are ready.
func (e *env) spotNodes(names ...string) []*kubelet {
	e.Helper()
	var all []*kubelet
	for _, name := range names {
		k := e.kubelet(name)
		k.register(func(n *corev1.Node) { n.Labels["spot"] = "" })
		k.has("PreemptionNotice", "True")
		all = append(all, k)
	}
	return all
}

// inService checks, after all that is known has been decided about, that the
// node is not out of service.
func (k *kubelet) inService(what string) {
	k.Helper()
	k.settled()
	if hasTaint(k.node(), v1alpha1.TaintOutOfService) {
		k.Errorf("%s: the node is out of service", what)
	}
}

// neverTakenWhileSpeaking watches, until the returned function is called, that no
// node is taken out of service but in silence.
func (e *env) neverTakenWhileSpeaking() (stop func()) {
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

// A preemption notice arms the gate, the unreachable node closes it, and a report of the node
// opens it.
func TestSeedTainterOutOfServiceGuards(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	e.declare(spotGate())
	e.registered("steady-1", "steady-2")
	watched := e.neverTakenWhileSpeaking()
	k := e.spotNodes("n1")[0]
	k.inService("given notice")
	k.report(corev1.ConditionFalse, "container runtime is down")
	k.inService("not ready")
	k.patch(`{"spec":{"taints":[{"key":"` + v1alpha1.TaintCloudShutdown + `","effect":"NoSchedule"}]}}`)
	k.inService("not ready, and said to be off")
	k.patch(`{"spec":{"taints":null}}`)
	k.silentSince(0)
	k.inService("silent for less than a minute")
	k.wrote(0)

	k.silentSince(time.Hour)
	k.becomes("spot", isClosed, v1alpha1.TaintOutOfService)
	k.report(corev1.ConditionTrue, "")
	k.becomes("spot", isNone, v1alpha1.TaintOutOfService)
	k.silentSince(time.Hour)
	k.becomes("spot", isClosed, v1alpha1.TaintOutOfService)
	k.report(corev1.ConditionFalse, "container runtime is down")
	k.becomes("spot", isNone, v1alpha1.TaintOutOfService)

	// The cloud's word replaces the minute.
	k.patch(`{"spec":{"taints":[{"key":"` + v1alpha1.TaintCloudShutdown + `","effect":"NoSchedule"}]}}`)
	k.silentSince(0)
	k.becomes("spot", isClosed, v1alpha1.TaintOutOfService)

	// It spoke while nobody listened, and still has notice, and the cloud's word.
	stop()
	k.report(corev1.ConditionTrue, "")
	e.startController(0)
	k.becomes("spot", isNone, v1alpha1.TaintOutOfService)
	watched()
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
		k.silentSince(time.Hour)
	}
	e.startController(0)
	e.declare(ng)
	e.settled()
	if n := e.outOfService(fleet); n != 0 {
		t.Errorf("in a partition %d nodes are out of service", n)
	}
	fleet[0].report(corev1.ConditionTrue, "")
	e.eventually("20 % are out of service", func() error {
		if n := e.outOfService(fleet); n != 2 {
			return fmt.Errorf("%d nodes are", n)
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

func (e *env) outOfService(fleet []*kubelet) (n int) {
	for _, k := range fleet {
		if hasTaint(k.node(), v1alpha1.TaintOutOfService) {
			n++
		}
	}
	return n
}

// A controller has not observed the node's return for an hour. The API server rejects its
// patch.
func TestSeedTainterOutOfServiceOnOldNews(t *testing.T) {
	e := newEnv(t)
	k := e.spotNodes("n1")[0]
	k.silentSince(time.Hour)
	old := facts(k.node())
	config, err := e.cluster.ServiceAccount(t.Context(), installation.Namespace, installation.ServiceAccount)
	e.must(err)
	writer, err := write.NewWriter(config)
	e.must(err)
	decision := &gate.Decision{Taints: append(slices.Clone(old.Taints), corev1.Taint{Key: v1alpha1.TaintOutOfService, Effect: corev1.TaintEffectNoExecute})}

	k.report(corev1.ConditionTrue, "")
	if _, err := writer.Apply(t.Context(), old, decision); !errors.Is(err, write.ErrConflict) {
		t.Errorf("it has returned: %v, want a conflict", err)
	}
	k.silentSince(time.Second)
	if _, err := writer.Apply(t.Context(), old, decision); !errors.Is(err, write.ErrConflict) {
		t.Errorf("it is silent anew: %v, want a conflict", err)
	}
	if _, err := writer.Apply(t.Context(), facts(k.node()), decision); err != nil {
		t.Errorf("the news is new: %v", err)
	}
}

// facts are those about a node that this patch rests on.
func facts(o *corev1.Node) *gate.Node {
	n := &gate.Node{Name: o.Name, UID: o.UID, Taints: o.Spec.Taints}
	for _, c := range o.Status.Conditions {
		n.Conditions = append(n.Conditions, gate.Condition{Type: string(c.Type), Status: c.Status, Transition: c.LastTransitionTime.UTC()})
	}
	return n
}
