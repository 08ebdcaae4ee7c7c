// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Heartbeats do not cause writes.
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
	held.wrote(0)
	open.wrote(1)
}

// Every DaemonSet that is expected on the node must be ready. Temporary taints do not change
// which DaemonSets are expected.
func TestDaemonSetsSignal(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	one, two := e.daemonSet("one"), e.daemonSet("two")
	elsewhere := e.daemonSet("elsewhere")
	e.edit(elsewhere, func() { elsewhere.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "other"} })
	// It does not tolerate the not-ready taint, which the API server adds to every new node.
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

// With require: All, every pod that matches the selector must be ready.
func TestPodsSignal(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.daemonSet("agent") // the signal accepts pods of any owner
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

// A gate opens when both its signals hold.
func TestConditionAndAnnotationSignals(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := newGate("both", keyA, v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{TypePattern: "Network.*", Status: "True"}})
	ng.Spec.OpenWhen = append(ng.Spec.OpenWhen, v1alpha1.Signal{
		Name:         "annotation",
		SignalSource: v1alpha1.SignalSource{Annotation: &v1alpha1.KeyValueSignal{Key: "example.com/warm", Value: new("yes")}},
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
