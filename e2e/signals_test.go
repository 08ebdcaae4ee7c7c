// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func TestHeartbeatsCostNothing(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.agent()
	held, open := e.kubelet("held"), e.kubelet("open")
	held.register()
	open.register()
	open.run(open.daemonPod(ds), true)
	open.becomes("agent", isOpen, keyA)

	for range 50 {
		held.report(corev1.ConditionTrue, "")
		open.report(corev1.ConditionTrue, "")
	}
	e.settled()
	for name, want := range map[string]int{"held": 0, "open": 1} {
		if writes := e.nodeWrites(name); len(writes) != want {
			t.Errorf("nodegate wrote node %s %d times, want %d", name, len(writes), want)
		}
	}
}

// Every DaemonSet that is expected on the node must be ready. Temporary taints do not change
// which DaemonSets are expected.
func TestDaemonSetsSignal(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	one, two := e.daemonSet("one"), e.daemonSet("two")
	elsewhere := e.daemonSet("elsewhere")
	e.edit(elsewhere, func() { elsewhere.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "other"} })
	// The API server adds its not-ready taint to every new node.
	e.edit(two, func() {
		two.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: keyA, Operator: corev1.TolerationOpExists}}
	})
	e.declare(newGate("agents", keyA, v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{daemonNamespace}}}))

	k := e.kubelet("n1")
	k.register()
	k.run(k.daemonPod(one), true)
	e.waitsFor("agents", "n1", v1alpha1.ReadingPodMissing)
	k.run(k.daemonPod(two), true)
	k.becomes("agents", isOpen, keyA)
}

func TestPodsSignal(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.daemonSet("agent") // any pods will do; these are at hand
	e.declare(newGate("agents", keyA, v1alpha1.SignalSource{Pods: &v1alpha1.PodsSignal{
		Namespace: daemonNamespace, Require: v1alpha1.RequireAll,
		Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}},
	}}))
	k := e.kubelet("n1")
	k.register()
	first, second := k.daemonPod(ds), k.daemonPod(ds)
	k.run(first, true)
	k.run(second, false)
	e.waitsFor("agents", "n1", v1alpha1.ReadingPodNotReady)
	k.run(second, true)
	k.becomes("agents", isOpen, keyA)
}

func TestConditionAndAnnotationSignals(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := newGate("both", keyA, v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{TypePattern: "Network.*", Status: "True"}})
	value := "yes"
	ng.Spec.OpenWhen = append(ng.Spec.OpenWhen, v1alpha1.Signal{
		Name:         "annotation",
		SignalSource: v1alpha1.SignalSource{Annotation: &v1alpha1.KeyValueSignal{Key: "example.com/warm", Value: &value}},
	})
	e.declare(ng)
	k := e.kubelet("n1")
	k.register()
	e.waitsFor("both", "n1", v1alpha1.ReadingMissing)
	condition := `{"status":{"conditions":[{"type":"NetworkProbed","status":"True"}]}}`
	e.must(k.api.Status().Patch(t.Context(), k.node(), client.RawPatch(types.StrategicMergePatchType, []byte(condition))))
	k.patch(`{"metadata":{"annotations":{"example.com/warm":"no"}}}`)
	e.waitsFor("both", "n1", v1alpha1.ReadingDiffers)
	k.patch(`{"metadata":{"annotations":{"example.com/warm":"yes"}}}`)
	k.becomes("both", isOpen, keyA)
}

// waitsFor waits until a gate's status contains the reason why it is closed on a node.
func (e *env) waitsFor(gateName, node string, reason v1alpha1.ReadingReason) {
	e.Helper()
	e.eventually(fmt.Sprintf("gate %s holds node %s because of %s", gateName, node, reason), func() error {
		var ng v1alpha1.NodeGate
		e.must(e.admin.Get(e.Context(), client.ObjectKey{Name: gateName}, &ng))
		for _, w := range ng.Status.Waiting {
			if w.Node == node && w.Reason == string(reason) {
				return nil
			}
		}
		return fmt.Errorf("waiting: %+v", ng.Status.Waiting)
	})
}
