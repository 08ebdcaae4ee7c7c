// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Istio's controller reads its requirements from a ConfigMap, once, when it
// starts. Here the mounted ConfigMap is followed, the API server closes births
// all the same, and it need not know the kind.

// byPods is a signal that holds when a pod of the daemon of this name is ready.
func byPods(name string) v1alpha1.SignalSource {
	return v1alpha1.SignalSource{Pods: &v1alpha1.PodsSignal{
		Namespace: daemonNamespace, Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": name}},
	}}
}

const explicitlyNoGates = "{apiVersion: nodegate.dev/v1alpha1, kind: NodeGateList, items: []}"

func TestSeedIstioGatesFromFiles(t *testing.T) {
	e := newEnvWithoutCRD(t)
	if err := e.admin.List(t.Context(), &v1alpha1.NodeGateList{}); err == nil {
		t.Fatal("the cluster knows NodeGates")
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
			t.Errorf("node %s was born untainted", node.Name)
		}
	}
	if r := held.record("cni"); r.Source != v1alpha1.SourceFiles {
		t.Errorf("the record's source is %q", r.Source)
	}
	k.run(k.daemonPod(ds), true)
	k.becomes("cni", isOpen, keyA)

	// An edit takes effect while all runs.
	e.must(held.is("cni", isClosed, keyA))
	bare := e.watchFor(func(n *corev1.Node) bool { return n.Name == "held" && !hasTaint(n, keyA) && !hasTaint(n, keyB) })
	ng.Spec.Taint.Key = keyB
	files.declares(ng)
	held.becomes("cni", isClosed, keyB)
	e.eventually("births are closed by the new key", func() error {
		born := e.kubelet("born")
		node := born.register()
		e.must(e.admin.Delete(t.Context(), node))
		if hasTaint(node, keyA) || !hasTaint(node, keyB) {
			return errNotYet
		}
		return nil
	})

	// Whatever is wrong with the files, what is known goes on.
	wrong := func(what string) {
		t.Helper()
		e.shows(metrics, "nodegate_gates_complete", 0)
		e.shows(metrics, "nodegate_gate_condition", 0, "cni", v1alpha1.ConditionReady)
		late := e.kubelet("late-" + what)
		if !hasTaint(late.register(), keyB) {
			t.Errorf("%s: a node was born untainted", what)
		}
		late.run(late.daemonPod(ds), true)
		late.becomes("cni", isOpen, keyB)
		e.must(held.is("cni", isClosed, keyB))
	}
	files.replace(map[string]string{"cni.yaml": files.asYAML(ng), "typo.yaml": "kind: NodeGat"})
	wrong("bad-file")
	files.declares(ng)
	e.shows(metrics, "nodegate_gates_complete", 1)
	files.replace(nil)
	wrong("empty")
	e.must(os.Rename(files.path, files.path+"-away"))
	wrong("vanished")
	stop()
	metrics, _ = files.startController() // one that never saw the gate
	held.label("touched")
	if !hasTaint(e.kubelet("later").register(), keyB) {
		t.Error("with no directory, a node was born untainted")
	}
	e.startsWithoutGates(metrics)
	e.must(held.is("cni", isClosed, keyB))
	e.must(os.Rename(files.path+"-away", files.path))
	files.declares(ng)
	e.shows(metrics, "nodegate_unknown_gates", 0)
	e.shows(metrics, "nodegate_gate_condition", 1, "cni", v1alpha1.ConditionReady)
	e.must(held.is("cni", isClosed, keyB))
	if n := bare(); n > 0 {
		t.Errorf("the node was seen without its taint %d times", n)
	}

	// That there is no gate has to be said; then everything opens.
	files.replace(map[string]string{"none.yaml": explicitlyNoGates})
	held.becomes("cni", isNone, keyB)
	k.becomes("cni", isNone, keyB)
	e.eventually("births are left alone", func() error {
		node := e.kubelet("free").register()
		e.must(e.admin.Delete(t.Context(), node))
		if hasTaint(node, keyB) {
			return errNotYet
		}
		return nil
	})
}

// Gates move from the API server into files by their names, and back. What one
// source closed, the other does not open because it does not know the gate.
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
	e.eventually("the record says where the gate is declared now", func() error {
		if k.record("moved").Source != v1alpha1.SourceFiles {
			return errNotYet
		}
		return nil
	})
	e.shows(metrics, "nodegate_unknown_gates", 1) // it says so
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
