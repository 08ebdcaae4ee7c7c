// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/presets"
	"github.com/nodegate/nodegate/presets/upstream"
)

// presetNode is a node that a preset's gate selects, and the DaemonSets of the cluster.
type presetNode struct {
	*kubelet
	shipped *upstream.Objects
	daemons map[string]*appsv1.DaemonSet
	// check is the pod of the preset preflight.
	check *corev1.Pod
}

func ofPreflight(p *corev1.Pod) {
	p.Labels = map[string]string{"app.kubernetes.io/name": "preflight"}
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

// registersDevices reports the devices of a device plugin; first none.
func registersDevices(name string) []presetStep {
	return []presetStep{
		{v1alpha1.ReadingMissing, func(n *presetNode) { n.reportsResource(name, 0) }},
		{v1alpha1.ReadingInsufficient, func(n *presetNode) { n.reportsResource(name, 8) }},
	}
}

// presetSteps are the steps until the gate opens on a new node, for each preset with openWhen.
var presetSteps = map[string][]presetStep{
	"aks-gpu":             append(startsDaemon("gpu-resources/nvidia-device-plugin-daemonset"), registersDevices("nvidia.com/gpu")...),
	"amd-gpu":             append(startsDaemon("kube-system/amdgpu-device-plugin-daemonset"), registersDevices("amd.com/gpu")...),
	"calico":              startsDaemon("calico-system/calico-node"),
	"cilium":              startsDaemon("kube-system/cilium"),
	"ebs-csi":             append(startsDaemon("kube-system/ebs-csi-node"), registersDriver("ebs.csi.aws.com", 24)),
	"efs-csi":             append(startsDaemon("kube-system/efs-csi-node"), registersDriver("efs.csi.aws.com")),
	"eks-gpu":             append(startsDaemon("kube-system/nvidia-device-plugin-daemonset"), registersDevices("nvidia.com/gpu")...),
	"eks-neuron":          append(startsDaemon("kube-system/neuron-device-plugin"), registersDevices("aws.amazon.com/neuron")...),
	"falco":               startsDaemon("falco/falco"),
	"gcp-pd-csi":          append(startsDaemon("kube-system/pdcsi-node"), registersDriver("pd.csi.storage.gke.io", 15)),
	"gke-gpu":             registersDevices("nvidia.com/gpu"),
	"image-warm-up":       startsDaemon("kube-system/image-warm-up"),
	"init-daemonset":      startsDaemon("kube-system/node-init"),
	"istio-ambient":       append(startsDaemon("istio-system/istio-cni-node"), startsDaemon("istio-system/ztunnel")...),
	"istio-cni":           startsDaemon("istio-system/istio-cni-node"),
	"kuma":                startsDaemon("kube-system/kuma-cni-node"),
	"linkerd-cni":         startsDaemon("linkerd-cni/linkerd-cni"),
	"multus":              startsDaemon("kube-system/kube-multus-ds"),
	"node-local-dns":      startsDaemon("kube-system/node-local-dns"),
	"nvidia-gpu":          registersDevices("nvidia.com/gpu"),
	"required-daemonsets": startsDaemon("kube-system/required"),
	"secrets-store-csi":   append(startsDaemon("kube-system/csi-secrets-store-secrets-store-csi-driver"), registersDriver("secrets-store.csi.k8s.io")),
	"spegel":              startsDaemon("spegel/spegel"),
	"tetragon":            startsDaemon("kube-system/tetragon"),
	"whereabouts":         startsDaemon("kube-system/whereabouts"),
	"intel-gpu": append(startsDaemon("default/intel-gpu-plugin"),
		presetStep{v1alpha1.ReadingNoneHolds, func(n *presetNode) { n.reportsResource("gpu.intel.com/xe", 1) }}),
	"kata": append(startsDaemon("kata-system/kata-deploy"),
		presetStep{v1alpha1.ReadingMissing, func(n *presetNode) { n.setLabel("katacontainers.io/kata-runtime", "false") }},
		presetStep{v1alpha1.ReadingDiffers, func(n *presetNode) { n.setLabel("katacontainers.io/kata-runtime", "true") }}),
	"preflight": {
		{v1alpha1.ReadingPodMissing, func(n *presetNode) {
			n.check = n.bind("check", time.Now(), n.inNamespace("preflight"), ofPreflight, inBoot(n.boot))
		}},
		{v1alpha1.ReadingPodNotCompleted, func(n *presetNode) { n.ends(n.check, true) }},
	},
	"node-condition": {
		{v1alpha1.ReadingMissing, func(n *presetNode) { n.setCondition("NodeChecked", "False") }},
		{v1alpha1.ReadingDiffers, func(n *presetNode) { n.setCondition("NodeChecked", "True") }},
	},
}

// presetLacks are the DaemonSets that do not tolerate the taint of the preset that waits for
// them, as shipped: the preset's comment contains the toleration to add.
var presetLacks = map[string]string{
	"aks-gpu":             "gpu-resources/nvidia-device-plugin-daemonset",
	"amd-gpu":             "kube-system/amdgpu-device-plugin-daemonset",
	"eks-gpu":             "kube-system/nvidia-device-plugin-daemonset",
	"eks-neuron":          "kube-system/neuron-device-plugin",
	"falco":               "falco/falco",
	"intel-gpu":           "default/intel-gpu-plugin",
	"kata":                "kata-system/kata-deploy",
	"required-daemonsets": "kube-system/required",
}

// closeWhenPresets do not close at birth; they have separate tests.
var closeWhenPresets = map[string]bool{"out-of-service": true, "node-problem-detector": true, "node-problem-detector-plugins": true}

// presetRounds returns the presets with openWhen in rounds that can be in force together:
// presets that share a key are alternatives, and a gate's status lists 10 waiting nodes.
func presetRounds(t *testing.T) (rounds [][]string) {
	t.Helper()
	used := []map[string]bool{}
	for _, name := range presets.Names() {
		if closeWhenPresets[name] {
			continue
		}
		key := presetGate(t, name).Spec.Taint.Key
		i := slices.IndexFunc(used, func(keys map[string]bool) bool { return len(keys) < 9 && !keys[key] })
		if i < 0 {
			i, used, rounds = len(used), append(used, map[string]bool{}), append(rounds, nil)
		}
		used[i][key] = true
		rounds[i] = append(rounds[i], name)
	}
	return rounds
}

// Every preset, unchanged, with the DaemonSets that its project ships: a node is created with
// its taint, which one write removes when the last signal holds, and not earlier. Many presets
// are in force at once, as on a cluster that uses several.
func TestPresetsOpen(t *testing.T) {
	for i, names := range presetRounds(t) {
		t.Run(fmt.Sprint("round ", i+1), func(t *testing.T) { presetsOpen(t, names) })
	}
}

func presetsOpen(t *testing.T, names []string) {
	e := newEnv(t)
	e.prepareSystemNamespaces()
	e.startController(0)
	daemons := e.shippedDaemons(names)
	gates := make(map[string]*v1alpha1.NodeGate)
	for _, name := range names {
		gates[name] = e.applyPreset(name)
	}
	for name, ng := range gates {
		if lacking := daemons[presetLacks[name]]; lacking != nil {
			e.eventually("gate "+name+" reports the missing toleration", func() error {
				return e.condition(name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDaemonDoesNotTolerateGate)
			})
			e.tolerate(lacking, ng.Spec.Taint.Key)
		}
		e.inForce(name)
	}
	t.Run("all at once", func(t *testing.T) {
		for name, ng := range gates {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				e := e.in(t)
				(&presetNode{kubelet: e.kubelet(name), shipped: e.shippedFor(name), daemons: daemons}).opens(ng)
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
	born := n.register(func(o *corev1.Node) { maps.Copy(o.Labels, n.shipped.Selected.Labels) })
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

// Presets do not change nodes on which what they wait for does not run.
func TestPresetsLeaveOut(t *testing.T) {
	e := newEnv(t)
	e.prepareSystemNamespaces()
	e.startController(0)
	daemons := e.shippedDaemons(presets.Names())
	for name, lacking := range presetLacks {
		e.tolerate(daemons[lacking], presetGate(t, name).Spec.Taint.Key)
	}
	for _, name := range presets.Names() {
		leftOut := e.shippedFor(name).LeftOut
		if len(leftOut) == 0 || closeWhenPresets[name] {
			continue
		}
		ng := e.applyPreset(name)
		e.inForce(name)
		for i := range leftOut {
			node := e.kubelet(name + "-" + leftOut[i].Name).newNode()
			node.Labels = leftOut[i].Labels // some of these a kubelet may not set
			e.must(e.admin.Create(t.Context(), node))
			if carries(node, ng.Spec.Taint) {
				t.Errorf("%s: a node with the labels %v was created with taints %s", name, node.Labels, keys(node))
			}
			e.must(e.admin.Delete(t.Context(), node))
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

// Conditions of custom plugins add a taint once they have lasted for a minute, and remove it.
func TestPresetNodeProblemDetectorPlugins(t *testing.T) {
	const name = "node-problem-detector-plugins"
	e := newEnv(t)
	e.startController(0)
	key := e.applyPreset(name).Spec.Taint.Key
	e.inForce(name)
	k := e.registered("n1")[0]
	for _, c := range e.shippedFor(name).Ready.Status.Conditions {
		k.setConditionTimes(string(c.Type), corev1.ConditionTrue, time.Now(), time.Now())
		k.settled()
		k.must(k.is(name, isNone, key))
		k.setConditionTimes(string(c.Type), corev1.ConditionTrue, time.Now(), time.Now().Add(-time.Minute))
		k.becomes(name, isClosed, key)
		k.setCondition(string(c.Type), "False")
		k.becomes(name, isNone, key)
	}
	for _, c := range e.shippedFor(name).Other.Status.Conditions {
		k.setConditionTimes(string(c.Type), corev1.ConditionTrue, time.Now(), time.Now().Add(-time.Hour))
	}
	k.settled()
	k.must(k.is(name, isNone, key))
}

// Preset out-of-service, unchanged, with the cloud provider's condition: a node is out of
// service if and only if it was preempted and is unreachable.
func TestPresetOutOfService(t *testing.T) {
	const name = "out-of-service"
	e := newEnv(t)
	stop := e.startController(0)
	e.applyPreset(name)
	e.inForce(name)
	done := e.watchOutOfService()
	nodes := e.registered("preempted", "unreachable", "lost", "steady-1", "steady-2")
	preempted, unreachable, lost := nodes[0], nodes[1], nodes[2]
	preempted.setCondition("Preempted", "True")
	preempted.expectInService("preempted, but reachable")
	lost.setCondition("Preempted", "True")
	// The budget is one node. Others that wait for it are first.
	lost.isOutOfServiceOnce(name)
	stop() // a controller that observes how a node becomes unreachable waits for a minute
	unreachable.unreachableSince(time.Hour)
	_, stop = e.startReconciled(0, name, len(nodes))
	lost.isOutOfServiceOnce(name)
	unreachable.expectInService("unreachable, but not preempted")
	unreachable.report(corev1.ConditionTrue, "")
	stop()
	preempted.unreachableSince(time.Hour)
	e.startController(0)
	preempted.becomes(name, isClosed, v1alpha1.TaintOutOfService)
	if !carries(preempted.node(), v1alpha1.Taint{Key: v1alpha1.TaintOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}) {
		t.Errorf("the node has taints %s", keys(preempted.node()))
	}
	preempted.report(corev1.ConditionTrue, "")
	preempted.becomes(name, isNone, v1alpha1.TaintOutOfService)
	done()
}
