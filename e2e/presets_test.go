// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/presets"
)

// presetNode is a node that becomes fit, and the daemons of the cluster.
type presetNode struct {
	*kubelet
	daemons map[string]*appsv1.DaemonSet
}

// presetStep is what a gate waits for, and what makes that come true.
type presetStep struct {
	waitsFor v1alpha1.ReadingReason
	comes    func(*presetNode)
}

// daemonComes has the daemon's pod come and, later, be ready.
func daemonComes(name string) []presetStep {
	var pod *corev1.Pod
	return []presetStep{
		{v1alpha1.ReadingPodMissing, func(n *presetNode) {
			pod = n.daemonPod(n.daemons[name])
			n.run(pod, false)
		}},
		{v1alpha1.ReadingPodNotReady, func(n *presetNode) { n.run(pod, true) }},
	}
}

// driverComes has the kubelet register a CSI driver, and its limit later.
func driverComes(name string, limit ...int32) presetStep {
	return presetStep{v1alpha1.ReadingMissing, func(n *presetNode) {
		if len(limit) > 0 {
			n.registersDrivers(csiDriver(name))
		}
		n.registersDrivers(csiDriver("other.example.com"), csiDriver(name, limit...))
	}}
}

// presetSteps are what makes a new node fit, for each preset that gates births.
var presetSteps = map[string][]presetStep{
	"calico":              daemonComes("calico-node"),
	"cilium":              daemonComes("cilium"),
	"ebs-csi":             append(daemonComes("ebs-csi-node"), driverComes("ebs.csi.aws.com", 24)),
	"efs-csi":             append(daemonComes("efs-csi-node"), driverComes("efs.csi.aws.com")),
	"gcp-pd-csi":          append(daemonComes("pdcsi-node"), driverComes("pd.csi.storage.gke.io", 15)),
	"image-warm-up":       daemonComes("image-warm-up"),
	"init-daemonset":      daemonComes("node-init"),
	"istio-cni":           daemonComes("istio-cni-node"),
	"required-daemonsets": daemonComes("required"),
	"nvidia-gpu": {
		{v1alpha1.ReadingMissing, func(n *presetNode) { n.reportsResource("nvidia.com/gpu", 0) }},
		{v1alpha1.ReadingInsufficient, func(n *presetNode) { n.reportsResource("nvidia.com/gpu", 8) }},
	},
}

// notApplied are presets that gate no birth and have tests of their own.
var notApplied = map[string]bool{"out-of-service": true, "node-problem-detector": true}

// presetDaemons creates the daemons that presets wait for, by name.
func (e *env) presetDaemons() map[string]*appsv1.DaemonSet {
	e.Helper()
	daemons := make(map[string]*appsv1.DaemonSet)
	for name, namespace := range map[string]string{
		"cilium": "kube-system", "ebs-csi-node": "kube-system", "efs-csi-node": "kube-system", "pdcsi-node": "kube-system",
		"image-warm-up": "kube-system", "calico-node": "calico-system", "istio-cni-node": "istio-system",
	} {
		daemons[name] = e.daemonIn(namespace, name, nil)
	}
	daemons["node-init"] = e.daemonIn("kube-system", "node-init", map[string]string{"startup.k8s.io/component": "init"})
	daemons["required"] = e.daemonIn("kube-system", "required", map[string]string{"nodegate.dev/required": "true"})
	return daemons
}

// Every preset, unchanged: a node is created with its taint, which one write removes when the
// last signal holds, and not earlier. All presets are in force at once, as on a cluster that
// uses several.
func TestPresetsOpen(t *testing.T) {
	e := newEnv(t)
	e.prepareSystemNamespaces()
	e.startController(0)
	daemons := e.presetDaemons()
	gates := make(map[string]*v1alpha1.NodeGate)
	for _, name := range presets.Names() {
		if !notApplied[name] {
			gates[name] = e.applyPreset(name)
		}
	}
	for name := range gates {
		e.inForce(name)
	}
	t.Run("all at once", func(t *testing.T) { e.eachOpens(t, gates, daemons) })
}

func (e *env) eachOpens(t *testing.T, gates map[string]*v1alpha1.NodeGate, daemons map[string]*appsv1.DaemonSet) {
	for name, ng := range gates {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps, known := presetSteps[name]
			if !known {
				t.Fatal("nothing is known of what makes a node fit")
			}
			e := &env{T: t, cluster: e.cluster, admin: e.admin}
			n := &presetNode{kubelet: e.kubelet(name), daemons: daemons}
			born := n.register(func(o *corev1.Node) {
				if name == "nvidia-gpu" {
					o.Labels["nvidia.com/gpu.present"] = "true"
				}
			})
			if !carries(born, ng.Spec.Taint) {
				t.Fatalf("the node was born with %s", keys(born))
			}
			before := len(born.Spec.Taints)
			for _, s := range steps {
				e.waitsFor(name, n.name, s.waitsFor)
				n.must(n.is(name, isClosed, ng.Spec.Taint.Key))
				s.comes(n)
			}
			n.becomes(name, isOpen, ng.Spec.Taint.Key)
			if after := len(n.node().Spec.Taints); after != before-1 {
				t.Errorf("the node has %s; it was born with %s", keys(n.node()), keys(born))
			}
			n.wrote(1)
			e.must(e.admin.Delete(t.Context(), n.node()))
		})
	}
}

// Presets do not change nodes that they do not select.
func TestPresetsLeaveOut(t *testing.T) {
	e := newEnv(t)
	e.prepareSystemNamespaces()
	e.startController(0)
	e.presetDaemons()
	for name, labels := range map[string]map[string]string{
		"cilium":         {corev1.LabelOSStable: "windows"},
		"ebs-csi":        {"eks.amazonaws.com/compute-type": "fargate"},
		"efs-csi":        {"eks.amazonaws.com/compute-type": "hybrid"},
		"init-daemonset": {"kubernetes.azure.com/mode": "system"},
		"nvidia-gpu":     nil,
	} {
		ng := e.applyPreset(name)
		e.inForce(name)
		born := e.kubelet(name).register(func(o *corev1.Node) {
			for key, value := range labels {
				o.Labels[key] = value
			}
		})
		if carries(born, ng.Spec.Taint) {
			t.Errorf("%s: a node with the labels %v was born with %s", name, labels, keys(born))
		}
		e.must(e.admin.Delete(t.Context(), ng))
	}
}

// Conditions of node-problem-detector add a taint, and remove it.
func TestPresetNodeProblemDetector(t *testing.T) {
	const name = "node-problem-detector"
	e := newEnv(t)
	e.startController(0)
	key := e.applyPreset(name).Spec.Taint.Key
	e.inForce(name)
	k := e.registered("n1")[0]
	for _, condition := range []string{"KernelDeadlock", "ReadonlyFilesystem", "XfsShutdown"} {
		k.has(condition, "False")
		k.must(k.is(name, isNone, key))
		k.has(condition, "True")
		k.becomes(name, isClosed, key)
		k.has(condition, "False")
		k.becomes(name, isNone, key)
	}
	k.has("FrequentKubeletRestart", "True") // which is not among them
	k.settled()
	k.must(k.is(name, isNone, key))
}

// Preset out-of-service, unchanged, with the cloud's condition: a node is taken out of
// service if and only if it was preempted and is unreachable.
func TestPresetOutOfService(t *testing.T) {
	const name = "out-of-service"
	e := newEnv(t)
	e.startController(0)
	e.applyPreset(name)
	e.inForce(name)
	watched := e.neverTakenWhileSpeaking()
	nodes := e.registered("preempted", "silent")
	preempted, silent := nodes[0], nodes[1]
	preempted.has("Preempted", "True")
	preempted.inService("given notice")
	silent.silentSince(time.Hour)
	silent.inService("silent without notice")
	silent.report(corev1.ConditionTrue, "")
	preempted.silentSince(time.Hour)
	preempted.becomes(name, isClosed, v1alpha1.TaintOutOfService)
	if !carries(preempted.node(), v1alpha1.Taint{Key: v1alpha1.TaintOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}) {
		t.Errorf("the node has %s", keys(preempted.node()))
	}
	preempted.report(corev1.ConditionTrue, "")
	preempted.becomes(name, isNone, v1alpha1.TaintOutOfService)
	watched()
}
