// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Istio's controller reads its requirements from a ConfigMap once, when it starts. nodegate
// watches the mounted ConfigMap. The API server closes gates at birth also in this case, and
// without the CRD.

// byPods returns a signal that holds when a pod of the daemon of this name is ready.
func byPods(name string) v1alpha1.SignalSource {
	return v1alpha1.SignalSource{Pods: &v1alpha1.PodsSignal{
		Namespace: daemonNamespace, Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": name}},
	}}
}

// explicitlyNoGates is the content of a file that declares that there are no gates.
const explicitlyNoGates = "{apiVersion: nodegate.dev/v1alpha1, kind: NodeGateList, items: []}"

// Gates from files work like gates from the API server. While the files are invalid or
// missing, the last known gates remain in effect.
func TestSeedIstioGatesFromFiles(t *testing.T) {
	e := newEnvWithoutCRD(t)
	if err := e.admin.List(t.Context(), &v1alpha1.NodeGateList{}); err == nil {
		t.Fatal("the API server serves NodeGates")
	}
	files := e.gateFiles()
	ng := newGate("cni", keyA, byPods("cni"))
	files.declares(ng)
	metrics, stop := files.startController()
	e.shows(metrics, "nodegate_birth_closing_proved", 1, "cni")
	e.shows(metrics, "nodegate_gate_condition", 1, "cni", v1alpha1.ConditionReady)
	e.shows(metrics, "nodegate_gates_complete", 1)

	ds := e.daemonSet("cni")
	k, held := e.kubelet("n1"), e.kubelet("held")
	for _, node := range []*corev1.Node{k.register(), held.register()} {
		if !hasTaint(node, keyA) {
			t.Errorf("node %s was created without the taint", node.Name)
		}
	}
	if r := held.record("cni"); r.Source != v1alpha1.SourceFiles {
		t.Errorf("the record's source is %q, want %q", r.Source, v1alpha1.SourceFiles)
	}
	k.run(k.daemonPod(ds), true)
	k.becomes("cni", isOpen, keyA)

	// An edit takes effect without a restart.
	e.must(held.is("cni", isClosed, keyA))
	untainted := e.watchFor(func(n *corev1.Node) bool { return n.Name == "held" && !hasTaint(n, keyA) && !hasTaint(n, keyB) })
	ng.Spec.Taint.Key = keyB
	files.declares(ng)
	held.becomes("cni", isClosed, keyB)
	e.eventually("the API server closes the gate with the new key", func() error {
		node := e.kubelet("new-key").register()
		e.must(e.admin.Delete(t.Context(), node))
		return unless(!hasTaint(node, keyA) && hasTaint(node, keyB))
	})

	// If the files are invalid or missing, the last known gates remain in effect.
	remains := func(what string) {
		t.Helper()
		e.shows(metrics, "nodegate_gates_complete", 0)
		e.shows(metrics, "nodegate_gate_condition", 0, "cni", v1alpha1.ConditionReady)
		late := e.kubelet("late-" + what)
		if !hasTaint(late.register(), keyB) {
			t.Errorf("%s: a node was created without the taint", what)
		}
		late.run(late.daemonPod(ds), true)
		late.becomes("cni", isOpen, keyB)
		e.must(held.is("cni", isClosed, keyB))
	}
	files.replace(map[string]string{"cni.yaml": files.asYAML(ng), "typo.yaml": "kind: NodeGat"})
	remains("invalid-file")
	files.declares(ng)
	e.shows(metrics, "nodegate_gates_complete", 1)
	files.replace(nil)
	remains("empty-directory")
	e.must(os.Rename(files.path, files.path+"-away"))
	remains("missing-directory")
	stop()
	metrics, _ = files.startController() // it has never read the gate
	held.label("touched")
	if !hasTaint(e.kubelet("later").register(), keyB) {
		t.Error("without the directory, a node was created without the taint")
	}
	e.startsWithoutGates(metrics)
	e.must(held.is("cni", isClosed, keyB))
	e.must(os.Rename(files.path+"-away", files.path))
	files.declares(ng)
	e.shows(metrics, "nodegate_unknown_gates", 0)
	e.shows(metrics, "nodegate_gate_condition", 1, "cni", v1alpha1.ConditionReady)
	e.must(held.is("cni", isClosed, keyB))
	if n := untainted(); n > 0 {
		t.Errorf("the node was without its taint in %d states", n)
	}

	// All gates open if a file explicitly declares that there are none.
	files.replace(map[string]string{"none.yaml": explicitlyNoGates})
	held.becomes("cni", isNone, keyB)
	k.becomes("cni", isNone, keyB)
	e.eventually("the API server closes no gate", func() error {
		node := e.kubelet("no-gates").register()
		e.must(e.admin.Delete(t.Context(), node))
		return unless(!hasTaint(node, keyB))
	})
}

// A gate with the same name in files replaces one from the API server, and the reverse. A
// controller does not open what a gate from the other source closed because it does not know
// that gate.
func TestSeedIstioGatesMoveIntoFiles(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	moved, left := newGate("moved", keyA, byLabel("ready")), newGate("left", keyB, byLabel("ready"))
	e.declare(moved)
	e.declare(left)
	k := e.kubelet("n1")
	k.register()
	e.must(k.is("moved", isClosed, keyA))
	e.must(k.is("left", isClosed, keyB))
	stop()

	files := e.gateFiles()
	files.declares(newGate("moved", keyA, byLabel("ready")))
	metrics, stop := files.startController()
	e.eventually("the record has the new source", func() error { return unless(k.record("moved").Source == v1alpha1.SourceFiles) })
	e.shows(metrics, "nodegate_unknown_gates", 1)
	files.replace(map[string]string{"none.yaml": explicitlyNoGates})
	k.becomes("moved", isNone, keyA)
	k.label("ready")
	files.declares(newGate("fence", keyA, byLabel("ready")))
	e.shows(metrics, "nodegate_birth_closing_proved", 1, "fence")
	fence := e.kubelet("fence")
	fence.register()
	fence.label("ready")
	fence.becomes("fence", isOpen, keyA)
	e.must(k.is("left", isClosed, keyB))
	stop()

	e.must(e.admin.Delete(t.Context(), moved))
	e.startController(0)
	k.becomes("left", isOpen, keyB)
}
