// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller"
)

// Pods that started before the agent: after a reboot, a kubelet starts the pods that are
// bound to its node, whether or not the agent runs. Cilium suggests the effect NoExecute for
// such nodes, which evicts all pods at once, regardless of PodDisruptionBudgets. Its operator
// repeatedly deletes pods with a certain label whose network it does not manage.

// ahead is the offset of the controller's clock, so that its present is after everything that
// the tests date.
const ahead = time.Hour

// bypassGate returns a gate like that of agent(), with this policy for bypassed pods. It is
// closed for long enough that a start in the meantime is certain.
func bypassGate(policy v1alpha1.BypassedPods) *v1alpha1.NodeGate {
	ng := newGate("agent", keyA, byDaemonSet("agent"))
	ng.Spec.BypassedPods = policy
	ng.Spec.Acknowledge = []v1alpha1.Acknowledgement{v1alpha1.AcknowledgePodEviction} // which Evict requires
	ng.Spec.Timing.MinClosedSeconds = 5
	return ng
}

// rebooted returns a node on which the gate is closed because of a reboot, a function that
// opens the gate, and a time in the new boot while the gate is closed.
func (e *env) rebooted(ng *v1alpha1.NodeGate) (k *kubelet, open func(), inBoot time.Time) {
	e.Helper()
	ds := e.daemonSet("agent")
	e.declare(ng)
	k = e.kubelet("n1")
	k.register()
	pod := k.daemonPod(ds)
	k.run(pod, true)
	k.becomes("agent", isOpen, keyA)
	k.setReady(pod, false, "")
	k.reboot()
	k.becomes("agent", isClosed, keyA)
	open = func() {
		k.run(pod, true)
		k.becomes("agent", isOpen, keyA)
	}
	// A kubelet reports the new boot before it starts pods.
	return k, open, k.record("agent").Since.Add(time.Second)
}

// nodeEvents returns the Events about the node for a reason.
func (k *kubelet) nodeEvents(reason string) []eventsv1.Event {
	k.Helper()
	var list eventsv1.EventList
	k.must(k.admin.List(k.Context(), &list, client.InNamespace(metav1.NamespaceDefault)))
	uid := k.node().UID
	var out []eventsv1.Event
	for _, event := range list.Items {
		if event.Regarding.UID == uid && event.Reason == reason {
			out = append(out, event)
		}
	}
	return out
}

// bypassEvent waits for the one Event about the node's bypassed pods, and returns it.
func (k *kubelet) bypassEvent() eventsv1.Event {
	k.Helper()
	return k.onlyEvent(v1alpha1.EventBypassedPods)
}

// onlyEvent waits for the one Event about the node for a reason, and returns it.
func (k *kubelet) onlyEvent(reason string) eventsv1.Event {
	k.Helper()
	var event eventsv1.Event
	k.eventually("there is one Event "+reason, func() error {
		all := k.nodeEvents(reason)
		if len(all) != 1 {
			return fmt.Errorf("%d events", len(all))
		}
		event = all[0]
		return nil
	})
	return event
}

// Pods that started before the agent are reported and not changed.
func TestSeedCiliumBypassedPodsReport(t *testing.T) {
	e := newEnv(t)
	registry := prometheus.NewRegistry()
	e.runController(func(p *controller.Process) {
		p.Options.Clock, p.Registerer = laterClock{ahead: ahead}, registry
	})
	k, open, inBoot := e.rebooted(bypassGate(v1alpha1.BypassedReport))
	pods := []*corev1.Pod{
		k.bind("early", inBoot, ownedBy("ReplicaSet")),
		k.bind("early-daemon", inBoot, ownedBy("DaemonSet")),
		k.bind("early-and-tolerant", inBoot, ownedBy("ReplicaSet"), tolerating(keyA)),
		k.bind("late", inBoot.Add(ahead), ownedBy("ReplicaSet")),
	}
	open()
	event := k.bypassEvent()
	if want := "2 pods started while gate agent was closed, without tolerating its taint: daemons/early, daemons/early-daemon"; event.Note != want ||
		event.Type != corev1.EventTypeWarning || event.Regarding.Kind != "Node" {
		t.Errorf("the Event is %+v, want a Warning with the note:\n%s", event, want)
	}
	e.shows(registry, "nodegate_bypassed_pods_total", 2)
	e.settled()
	for _, pod := range pods {
		if e.isTerminating(pod) {
			t.Errorf("pod %s was deleted or evicted", pod.Name)
		}
	}
	if n := len(k.nodeEvents(v1alpha1.EventBypassedPods)); n != 1 {
		t.Errorf("there are %d Events about bypassed pods, want 1", n)
	}
}

// Bypassed pods are evicted as PodDisruptionBudgets allow, but only those that a controller
// replaces and the agent serves.
func TestSeedCiliumBypassedPodsEvict(t *testing.T) {
	e := newEnv(t)
	e.allowEvictions()
	e.startController(ahead)
	k, open, inBoot := e.rebooted(bypassGate(v1alpha1.BypassedEvict))
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, Name: "guarded"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}},
		},
	}
	e.must(e.admin.Create(t.Context(), pdb))
	t.Cleanup(func() { e.must(client.IgnoreNotFound(e.admin.Delete(context.Background(), pdb))) }) // the test's context has ended
	replicas := ownedBy("ReplicaSet")
	early := k.bind("early", inBoot, replicas)
	guarded := k.bind("guarded", inBoot, replicas, labelled("guarded"))
	spared := []*corev1.Pod{
		k.bind("daemon", inBoot, ownedBy("DaemonSet")),
		k.bind("host-network", inBoot, replicas, onHostNetwork),
		k.bind("ownerless", inBoot),
		k.bind("tolerant", inBoot, replicas, tolerating(keyA)),
		k.bind("late", inBoot.Add(ahead), replicas),
	}
	open()
	k.bypassEvent()
	e.eventually("the pod that started before the agent is evicted", func() error { return unless(e.isTerminating(early)) })
	e.eventually("the API server rejects the eviction of the guarded pod", func() error { return e.evictionsOf("guarded", 429) })
	if e.isTerminating(guarded) {
		t.Error("a pod was evicted against its PodDisruptionBudget")
	}
	pdb.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: pdb.Generation, DisruptionsAllowed: 1, CurrentHealthy: 2, DesiredHealthy: 1, ExpectedPods: 2,
	}
	e.must(e.admin.Status().Update(t.Context(), pdb))
	e.eventually("the guarded pod is evicted too", func() error { return unless(e.isTerminating(guarded)) })
	e.settled()
	for _, pod := range spared {
		if e.isTerminating(pod) {
			t.Errorf("pod %s was deleted or evicted", pod.Name)
		}
		if e.evictionsOf(pod.Name, 0) == nil {
			t.Errorf("the eviction of pod %s was requested", pod.Name)
		}
	}
}

// evictionsOf returns nil if the eviction of a pod was requested and answered with this
// status code, or with any code if it is 0.
func (e *env) evictionsOf(pod string, code int) error {
	e.Helper()
	for _, event := range e.audit() {
		if event.ObjectRef.Subresource == "eviction" && event.ObjectRef.Name == pod && (code == 0 || event.ResponseStatus.Code == code) {
			return nil
		}
	}
	return errNotYet
}

// Without permission to evict, the gate works and reports the missing permission, and no pod
// is evicted. Granting the permission resolves this.
func TestSeedCiliumBypassedPodsEvictMayBeMissing(t *testing.T) {
	e := newEnv(t)
	e.startController(ahead)
	gate := bypassGate(v1alpha1.BypassedReport)
	k, open, inBoot := e.rebooted(gate)
	e.edit(gate, func() { gate.Spec.BypassedPods = v1alpha1.BypassedEvict })
	e.eventually("the gate reports the missing permission", func() error {
		return e.condition("agent", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonPermissionMissing)
	})
	e.must(e.condition("agent", v1alpha1.ConditionAccepted, metav1.ConditionTrue, ""))
	e.must(e.messageContains("agent", v1alpha1.ConditionReady, "nodegate manifests --evict-pods"))
	early := k.bind("spared", inBoot, ownedBy("ReplicaSet"))
	open()
	k.bypassEvent()
	e.settled()
	if e.isTerminating(early) || e.evictionsOf("spared", 0) == nil {
		t.Error("a pod was evicted without permission")
	}
	e.allowEvictions()
	e.inForce("agent")
}
