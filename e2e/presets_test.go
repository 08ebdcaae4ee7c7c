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

// presetNode is a node that a preset's gate selects, and the daemons of the cluster.
type presetNode struct {
	*kubelet
	daemons map[string]*appsv1.DaemonSet
}

// presetStep is a reason why a gate is closed, and what resolves it.
type presetStep struct {
	waitsFor v1alpha1.ReadingReason
	resolve  func(*presetNode)
}

// startsDaemon creates the daemon's pod and then makes it ready.
func startsDaemon(name string) []presetStep {
	var pod *corev1.Pod
	return []presetStep{
		{v1alpha1.ReadingPodMissing, func(n *presetNode) {
			pod = n.daemonPod(n.daemons[name])
			n.run(pod, false)
		}},
		{v1alpha1.ReadingPodNotReady, func(n *presetNode) { n.run(pod, true) }},
	}
}

// registersDriver registers a CSI driver; if it has a limit, first without.
func registersDriver(name string, limit ...int32) presetStep {
	return presetStep{v1alpha1.ReadingMissing, func(n *presetNode) {
		if len(limit) > 0 {
			n.registersDrivers(csiDriver(name))
		}
		n.registersDrivers(csiDriver("other.example.com"), csiDriver(name, limit...))
	}}
}

// presetSteps are the steps until the gate opens on a new node, for each preset with openWhen.
var presetSteps = map[string][]presetStep{
	"calico":              startsDaemon("calico-node"),
	"cilium":              startsDaemon("cilium"),
	"ebs-csi":             append(startsDaemon("ebs-csi-node"), registersDriver("ebs.csi.aws.com", 24)),
	"efs-csi":             append(startsDaemon("efs-csi-node"), registersDriver("efs.csi.aws.com")),
	"gcp-pd-csi":          append(startsDaemon("pdcsi-node"), registersDriver("pd.csi.storage.gke.io", 15)),
	"image-warm-up":       startsDaemon("image-warm-up"),
	"init-daemonset":      startsDaemon("node-init"),
	"istio-cni":           startsDaemon("istio-cni-node"),
	"required-daemonsets": startsDaemon("required"),
	"node-condition": {
		{v1alpha1.ReadingMissing, func(n *presetNode) { n.setCondition("NodeChecked", "False") }},
		{v1alpha1.ReadingDiffers, func(n *presetNode) { n.setCondition("NodeChecked", "True") }},
	},
	"nvidia-gpu": {
		{v1alpha1.ReadingMissing, func(n *presetNode) { n.reportsResource("nvidia.com/gpu", 0) }},
		{v1alpha1.ReadingInsufficient, func(n *presetNode) { n.reportsResource("nvidia.com/gpu", 8) }},
	},
}

// closeWhenPresets do not close at birth; they have separate tests.
var closeWhenPresets = map[string]bool{"out-of-service": true, "node-problem-detector": true}

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
		if !closeWhenPresets[name] {
			gates[name] = e.applyPreset(name)
		}
	}
	for name := range gates {
		e.inForce(name)
	}
	t.Run("all at once", func(t *testing.T) {
		for name, ng := range gates {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				e := &env{T: t, cluster: e.cluster, admin: e.admin}
				(&presetNode{kubelet: e.kubelet(name), daemons: daemons}).opens(ng)
			})
		}
	})
}

// opens registers the node, on which the gate must open after its last step.
func (n *presetNode) opens(ng *v1alpha1.NodeGate) {
	n.Helper()
	steps, known := presetSteps[ng.Name]
	if !known {
		n.Fatal("presetSteps does not contain the preset")
	}
	born := n.register(func(o *corev1.Node) {
		if ng.Name == "nvidia-gpu" {
			o.Labels["nvidia.com/gpu.present"] = "true"
		}
	})
	if !carries(born, ng.Spec.Taint) {
		n.Fatalf("the node was created with taints %s", keys(born))
	}
	before := len(born.Spec.Taints)
	for _, s := range steps {
		n.waitsFor(ng.Name, n.name, s.waitsFor)
		n.must(n.is(ng.Name, isClosed, ng.Spec.Taint.Key))
		s.resolve(n)
	}
	n.becomes(ng.Name, isOpen, ng.Spec.Taint.Key)
	if after := len(n.node().Spec.Taints); after != before-1 {
		n.Errorf("the node has taints %s; it was created with %s", keys(n.node()), keys(born))
	}
	n.wrote(1)
	n.must(n.admin.Delete(n.Context(), n.node()))
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
			t.Errorf("%s: a node with the labels %v was created with taints %s", name, labels, keys(born))
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
		k.setCondition(condition, "False")
		k.must(k.is(name, isNone, key))
		k.setCondition(condition, "True")
		k.becomes(name, isClosed, key)
		k.setCondition(condition, "False")
		k.becomes(name, isNone, key)
	}
	k.setCondition("FrequentKubeletRestart", "True") // the preset does not use this condition
	k.settled()
	k.must(k.is(name, isNone, key))
}

// Preset out-of-service, unchanged, with the cloud provider's condition: a node is out of
// service if and only if it was preempted and is unreachable.
func TestPresetOutOfService(t *testing.T) {
	const name = "out-of-service"
	e := newEnv(t)
	e.startController(0)
	e.applyPreset(name)
	e.inForce(name)
	done := e.watchOutOfService()
	nodes := e.registered("preempted", "unreachable")
	preempted, unreachable := nodes[0], nodes[1]
	preempted.setCondition("Preempted", "True")
	preempted.expectInService("preempted, but reachable")
	unreachable.unreachableSince(time.Hour)
	unreachable.expectInService("unreachable, but not preempted")
	unreachable.report(corev1.ConditionTrue, "")
	preempted.unreachableSince(time.Hour)
	preempted.becomes(name, isClosed, v1alpha1.TaintOutOfService)
	if !carries(preempted.node(), v1alpha1.Taint{Key: v1alpha1.TaintOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}) {
		t.Errorf("the node has taints %s", keys(preempted.node()))
	}
	preempted.report(corev1.ConditionTrue, "")
	preempted.becomes(name, isNone, v1alpha1.TaintOutOfService)
	done()
}
