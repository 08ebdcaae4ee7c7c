// SPDX-License-Identifier: Apache-2.0

package pending_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/pending"
	"github.com/nodegate/nodegate/internal/report"
)

// closedAt is a record of gate agent that closed at a time of the day.
func closedAt(at string) string {
	return `{"state":"Closed","reason":"Rebooted","since":"2026-03-01T` + at + `Z","boot":"b","taint":"example.com/a:NoSchedule","source":"crd"}`
}

// node returns a ready node with 4 CPUs and room for 10 pods. No gate holds it, and its name is
// also a label.
func node(name string, change ...func(*pending.Node)) pending.Node {
	n := pending.Node{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}}
	n.Status.Allocatable = resources("4", "10")
	n.Facts.DaemonSets = &gate.DaemonSets{Observed: map[string]bool{"kube-system": true}}
	n.Facts.Node = gate.Node{
		Name: name, UID: "uid", BootID: "b", Created: clitest.Now.Add(-time.Hour), Labels: n.Labels, Records: map[string]string{"agent": clitest.Opened},
		Conditions: []gate.Condition{{Type: string(corev1.NodeReady), Status: corev1.ConditionTrue, Transition: clitest.Now.Add(-time.Hour)}},
	}
	for _, c := range change {
		c(&n)
	}
	n.Facts.Node.Taints = n.Spec.Taints
	return n
}

func resources(cpu, pods string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourcePods: resource.MustParse(pods)}
}

// held adds the taint and the record of gate agent.
func held(record string) func(*pending.Node) {
	return func(n *pending.Node) {
		n.Facts.Node.Records = map[string]string{"agent": record}
		tainted("example.com/a")(n)
	}
}

func tainted(key string) func(*pending.Node) {
	return func(n *pending.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}
}

func labeled(key string) func(*pending.Node) {
	return func(n *pending.Node) { n.Labels[key] = "" }
}

func uses(cpu, pods string) func(*pending.Node) {
	return func(n *pending.Node) { n.Requested = resources(cpu, pods) }
}

// pod returns a pending pod that requests one CPU.
func pod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
	}}}}}
	for _, c := range change {
		c(p)
	}
	return p
}

// failed binds the pod to a node whose kubelet ended it, or did not admit it, for a reason.
func failed(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.NodeName = "n1"
		p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, Message: "Pod was rejected: 1 device of example.com/gpu was requested, 0 are available"}
	}
}

// birthOfOther is a record of gate other.
const birthOfOther = `{"state":"Closed","reason":"Birth","boot":"b","taint":"example.com/b:NoSchedule","source":"crd"}`

const agent = `
metadata: {name: agent}
spec:
  taint: {key: example.com/a, effect: NoSchedule}
  openWhen:
  - {name: pod, daemonSet: {namespace: kube-system, name: agent}}
  - {name: sysctl, label: {key: sysctl}}`

const other = `
metadata: {name: other}
spec:
  taint: {key: example.com/b, effect: NoSchedule}
  openWhen: [{name: fit, label: {key: fit}}]`

// gpus waits for devices by their number, plugin by the daemon that registers them, nics for other
// devices, and sick closes on nodes that have a label. They select nodes by the label pool.
const gpus = `
metadata: {name: gpus}
spec:
  nodeSelector: {matchLabels: {pool: gpus}}
  taint: {key: example.com/gpus, effect: NoSchedule}
  openWhen: [{name: gpus, resource: {name: example.com/gpu, atLeast: 4}}]`

const plugin = `
metadata: {name: plugin}
spec:
  nodeSelector: {matchLabels: {pool: plugin}}
  taint: {key: example.com/plugin, effect: NoSchedule}
  openWhen: [{name: plugin, daemonSet: {namespace: kube-system, name: plugin}}]`

const nics = `
metadata: {name: nics}
spec:
  nodeSelector: {matchLabels: {pool: nics}}
  taint: {key: example.com/nics, effect: NoSchedule}
  openWhen: [{name: nics, resource: {name: example.com/nic}}]`

const sick = `
metadata: {name: sick}
spec:
  nodeSelector: {matchLabels: {pool: sick}}
  taint: {key: example.com/sick, effect: NoSchedule}
  closeWhen: [{name: sick, label: {key: pool}}]`

const broken = `
metadata: {name: broken}
spec:
  nodeSelector: {matchLabels: {pool: broken}}
  taint: {key: example.com/broken, effect: NoSchedule}
  closeWhen: [{name: broken, condition: {type: Broken, status: "True"}}]`

// inPool puts a node into the pool of a gate that is closed on it.
func inPool(gate string) func(*pending.Node) {
	return func(n *pending.Node) {
		n.Labels["pool"] = gate
		n.Facts.Node.Records[gate] = `{"state":"Closed","reason":"Birth","since":"2026-03-01T02:59:00Z","boot":"b","taint":"example.com/` + gate + `:NoSchedule","source":"crd"}`
		tainted("example.com/" + gate)(n)
	}
}

func ofType(instanceType string) func(*pending.Node) {
	return func(n *pending.Node) { n.Labels[corev1.LabelInstanceTypeStable] = instanceType }
}

// devices sets the numbers of devices that the node has, and that its pods request.
func devices(registered, requested string) func(*pending.Node) {
	return func(n *pending.Node) {
		n.Status.Allocatable[device] = resource.MustParse(registered)
		n.Requested = corev1.ResourceList{device: resource.MustParse(requested)}
		n.Facts.Node.Allocatable = map[string]resource.Quantity{device: resource.MustParse(registered)}
	}
}

// capacity sets the number of devices that the node has, including unhealthy ones.
func capacity(registered string) func(*pending.Node) {
	return func(n *pending.Node) { n.Status.Capacity = corev1.ResourceList{device: resource.MustParse(registered)} }
}

// created sets the node's age.
func created(ago time.Duration) func(*pending.Node) {
	return func(n *pending.Node) { n.Facts.Node.Created = clitest.Now.Add(-ago) }
}

// ready sets the status of the condition Ready, and for how long the node has had it.
func ready(status corev1.ConditionStatus, ago time.Duration) func(*pending.Node) {
	return func(n *pending.Node) {
		n.Facts.Node.Conditions[0].Status, n.Facts.Node.Conditions[0].Transition = status, clitest.Now.Add(-ago)
	}
}

const device = "example.com/gpu"

// usesDevices makes the pod request two devices.
func usesDevices(p *corev1.Pod) {
	p.Spec.Containers[0].Resources.Requests[device] = resource.MustParse("2")
}

// scenarios are pods, and fleets that they do not run on.
var scenarios = map[string]struct {
	pod    *corev1.Pod
	nodes  []pending.Node
	usual  map[string]report.Spread
	unread []string
	// wouldFit and fit are the expected numbers of nodes.
	wouldFit, fit int
}{
	"held": {
		pod: pod(),
		nodes: []pending.Node{
			node("n1", held(closedAt("02:59:00"))),
			node("n2", held(closedAt("02:50:00")), labeled("sysctl")),
			node("n3", held(closedAt("02:58:00")), uses("3500m", "2")),
			node("n4", held(closedAt("02:58:00")), tainted("dedicated")),
			node("n5", uses("3500m", "2")),
			node("n6", tainted("dedicated")),
			node("n7", uses("0", "10")),
		},
		usual:    map[string]report.Spread{"agent": {Count: 31, P50: 42, P90: 65}},
		wouldFit: 2,
	},
	"two-gates": {
		pod: pod(),
		nodes: []pending.Node{
			node("n1", func(n *pending.Node) {
				held(closedAt("02:59:00"))(n)
				n.Facts.Node.Records["other"] = birthOfOther
				tainted("example.com/b")(n)
			}),
			node("n2"),
		},
		wouldFit: 1, fit: 1,
	},
	"about-to-open": {
		pod: pod(),
		nodes: []pending.Node{node("n1", labeled("fit"), tainted("example.com/b"), func(n *pending.Node) {
			n.Facts.Node.Records["other"] = birthOfOther
		})},
		wouldFit: 1,
	},
	"overridden": {
		pod: pod(),
		nodes: []pending.Node{
			node("n1", labeled("fit"), tainted("example.com/b"), func(n *pending.Node) { n.Facts.Node.Records["other"] = birthOfOther }),
			node("n2", tainted("example.com/b"), func(n *pending.Node) {
				n.Facts.Node.Records["other"] = `{"state":"Open","reason":"SignalsHold","boot":"b","taint":"example.com/b:NoSchedule","source":"crd","override":"Closed","overrideSince":"2026-03-01T02:50:00Z"}`
				o := gate.Override{State: "Closed", Until: clitest.Now.Add(time.Hour), Reason: "ticket 7", UID: "uid"}
				n.Facts.Node.Overrides = map[string]string{"other": o.String()}
			}),
		},
		wouldFit: 2,
	},
	"unlisted-overridden": { // the gate keeps its state, and the end of the override changes nothing
		pod: pod(),
		nodes: []pending.Node{node("n1", tainted("example.com/f"), func(n *pending.Node) {
			n.Facts.Node.Records["file"] = `{"state":"Open","reason":"SignalsHold","boot":"b","taint":"example.com/f:NoSchedule","source":"files","override":"Closed","overrideSince":"2026-03-01T02:50:00Z"}`
		})},
		wouldFit: 1,
	},
	"reclose-taint": { // the record has the taint that is on the node, and the gate is about to open
		pod: pod(),
		nodes: []pending.Node{node("n1", labeled("fit"), tainted("example.com/again"), func(n *pending.Node) {
			n.Facts.Node.Records["other"] = `{"state":"Closed","reason":"Rebooted","since":"2026-03-01T02:59:00Z","boot":"b","taint":"example.com/again:NoSchedule","source":"crd"}`
		})},
		wouldFit: 1,
	},
	"unlisted": { // a gate from a file, which only the controller reads
		pod: pod(),
		nodes: []pending.Node{node("n1", tainted("example.com/f"), func(n *pending.Node) {
			n.Facts.Node.Records["file"] = `{"state":"Closed","reason":"Birth","boot":"b","taint":"example.com/f:NoSchedule","source":"files"}`
		})},
		wouldFit: 1,
	},
	"devices": {
		pod: pod(usesDevices),
		nodes: []pending.Node{
			node("none", inPool("gpus")),
			node("some", inPool("gpus"), devices("1", "0")),
			node("none-free", inPool("gpus"), devices("4", "4")), // the gate is about to open
			node("no-plugin", inPool("plugin")),
			node("no-plugin-no-cpu", inPool("plugin"), uses("4", "0")),
			node("first-of-type", inPool("plugin"), ofType("large")),
			node("deleted", inPool("deleted")),
			node("file", inPool("file"), func(n *pending.Node) {
				n.Facts.Node.Records["file"] = strings.Replace(n.Facts.Node.Records["file"], "crd", "files", 1)
			}),
			node("nics", inPool("nics")),
			node("sick", inPool("sick")),
			node("cpus", ofType("small")),
			node("cpus-held", held(closedAt("02:59:00")), ofType("small")),
			node("gpus", ofType("medium"), devices("4", "4")),
			node("gpus-held", held(closedAt("02:59:00")), ofType("medium"), devices("0", "0")),
		},
		wouldFit: 6,
	},
	"unproven-types": { // only a node on which devices would have registered proves that its type has none
		pod: pod(usesDevices, func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "example.com/gpus", Operator: corev1.TolerationOpExists}, {Key: "example.com/agent-not-ready", Operator: corev1.TolerationOpExists}}
		}),
		nodes: []pending.Node{
			node("new", ofType("new"), created(10*time.Minute)),
			node("new-held", held(closedAt("02:59:00")), ofType("new")),
			node("rebooted", ofType("rebooted"), ready(corev1.ConditionTrue, time.Minute)),
			node("rebooted-held", held(closedAt("02:59:00")), ofType("rebooted")),
			node("not-ready", ofType("not-ready"), ready(corev1.ConditionFalse, time.Hour)),
			node("not-ready-held", held(closedAt("02:59:00")), ofType("not-ready")),
			node("starting", ofType("starting"), tainted("example.com/agent-not-ready")),
			node("starting-held", held(closedAt("02:59:00")), ofType("starting")),
			node("tolerated", ofType("tolerated"), inPool("gpus")),
			node("tolerated-held", held(closedAt("02:59:00")), ofType("tolerated")),
			node("plugin-restarts", ofType("plugin-restarts"), capacity("4"), devices("0", "0")),
			node("plugin-restarts-held", held(closedAt("02:59:00")), ofType("plugin-restarts")),
			node("small", ofType("small"), created(11*time.Minute)),
			node("small-held", held(closedAt("02:59:00")), ofType("small")),
		},
		wouldFit: 6,
	},
	"too-many-devices": { // the type has devices, but not as many as the pod requests
		pod: pod(usesDevices),
		nodes: []pending.Node{
			node("one", ofType("small"), devices("1", "0")),
			node("one-held", held(closedAt("02:59:00")), ofType("small")),
			node("one-held-by-number", inPool("gpus"), ofType("small")),
			node("two", ofType("medium"), devices("1", "0"), capacity("2")),
			node("two-held", held(closedAt("02:59:00")), ofType("medium")),
			node("two-held-by-number", inPool("gpus"), ofType("medium")),
			node("two-in-use", held(closedAt("02:59:00")), ofType("medium"), devices("0", "1")),
		},
		wouldFit: 2,
	},
	"being-set-up": {
		pod: pod(),
		nodes: []pending.Node{
			node("n1", held(closedAt("02:59:00")), tainted(corev1.TaintNodeNotReady)),
			node("n2", held(closedAt("02:59:00")), tainted("node.cloudprovider.kubernetes.io/uninitialized"), tainted(corev1.TaintNodeNotReady)),
			node("dedicated", held(closedAt("02:59:00")), tainted(corev1.TaintNodeNotReady), tainted("dedicated")),
			node("cordoned", held(closedAt("02:59:00")), func(n *pending.Node) { n.Spec.Unschedulable = true }),
			node("unreachable", held(closedAt("02:59:00")), tainted(corev1.TaintNodeUnreachable)),
			node("open", tainted(corev1.TaintNodeNotReady)),
		},
		wouldFit: 2,
	},
	"follows-unknown": { // the gate stays closed until the signal is known
		pod: pod(),
		nodes: []pending.Node{node("n1", tainted("example.com/broken"), func(n *pending.Node) {
			n.Labels["pool"] = "broken"
			n.Facts.Node.Records["broken"] = `{"state":"Closed","reason":"SignalsHold","since":"2026-03-01T02:10:00Z","taint":"example.com/broken:NoSchedule","source":"crd"}`
			n.Facts.Node.Conditions = append(n.Facts.Node.Conditions, gate.Condition{Type: "Broken", Status: corev1.ConditionUnknown, Transition: clitest.Now.Add(-time.Minute)})
		})},
		wouldFit: 1,
	},
	"tolerates": {
		pod: pod(func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "example.com/a", Operator: corev1.TolerationOpExists}}
		}),
		nodes: []pending.Node{node("n1", held(closedAt("02:59:00")))},
		fit:   1,
	},
	"selects": {
		pod: pod(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"name": "n2"} }),
		nodes: []pending.Node{
			node("n1", held(closedAt("02:59:00"))),
			node("n2", func(n *pending.Node) { n.Spec.Unschedulable = true }),
		},
	},
	"scheduling-gates": {
		pod:      pod(func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}} }),
		nodes:    []pending.Node{node("n1", held(closedAt("02:59:00")))},
		unread:   []string{"listing all pods: forbidden"},
		wouldFit: 1,
	},
	"bound":    {pod: pod(func(p *corev1.Pod) { p.Spec.NodeName = "n1" }), nodes: []pending.Node{node("n1", held(closedAt("02:59:00")))}},
	"rejected": {pod: pod(failed("UnexpectedAdmissionError"))},
	"rejected-and-owned": {pod: pod(failed("OutOfnvidia.com/gpu"), func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "training", Controller: new(true)}}
	})},
	"failed-otherwise": {pod: pod(failed("Evicted"))},
}

func TestExplanations(t *testing.T) {
	for name, s := range scenarios {
		t.Run(name, func(t *testing.T) {
			e := pending.Of(&pending.Facts{
				Object: "pod web/frontend", Pod: s.pod, Nodes: s.nodes, Gates: gateset.Reported(clitest.Declare(t, agent, other, gpus, plugin, nics, sick, broken)),
				Usual: s.usual, Unread: s.unread, Now: clitest.Now,
			})
			if e.WouldFit != s.wouldFit || len(e.Fit) != s.fit {
				t.Errorf("%d nodes would fit if gates were open, and %d fit; want %d and %d", e.WouldFit, len(e.Fit), s.wouldFit, s.fit)
			}
			raw, err := json.MarshalIndent(e, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			clitest.Golden(t, name+".txt", e.Text())
			clitest.Golden(t, name+".json", string(raw)+"\n")
		})
	}
}

// Neither the user's reason nor what a kubelet or a pod's owner wrote can forge lines of the
// text.
func TestTextHasNoForgedLines(t *testing.T) {
	const forged = "x\nNo gate keeps it off any node.\tThe end"
	overridden := node("n1", tainted("example.com/b"), func(n *pending.Node) {
		n.Facts.Node.Records["other"] = `{"state":"Open","reason":"SignalsHold","boot":"b","taint":"example.com/b:NoSchedule","source":"crd","override":"Closed"}`
		o := gate.Override{State: "Closed", Until: clitest.Now.Add(time.Hour), Reason: forged, UID: "uid"}
		n.Facts.Node.Overrides = map[string]string{"other": o.String()}
	})
	rejected := pod(failed("OutOf"+forged), func(p *corev1.Pod) {
		isController := true
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: forged, Controller: &isController}}
	})
	for name, f := range map[string]*pending.Facts{
		"overridden": {Object: "pod web/frontend", Pod: pod(), Nodes: []pending.Node{overridden}, Gates: gateset.Reported(clitest.Declare(t, agent, other)), Now: clitest.Now},
		"rejected":   {Object: "pod web/frontend", Pod: rejected, Gates: gateset.Reported(nil), Now: clitest.Now},
	} {
		text := pending.Of(f).Text()
		if want := `x\nNo gate keeps it off any node.\tThe end`; !strings.Contains(text, want) || strings.Contains(text, "\nNo gate keeps") {
			t.Errorf("%s: the text does not contain %s on one line:\n%s", name, want, text)
		}
	}
}

// Pods that have finished use no resources, and restartable init containers count like
// containers.
func TestAdd(t *testing.T) {
	requested := map[string]corev1.ResourceList{}
	always := corev1.ContainerRestartPolicyAlways
	for _, p := range []*corev1.Pod{
		pod(),
		pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		pod(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{p.Spec.Containers[0]}
			p.Spec.InitContainers[0].RestartPolicy = &always
		}),
	} {
		p.Spec.NodeName = "n1"
		pending.Add(requested, p)
	}
	if cpu, pods := requested["n1"][corev1.ResourceCPU], requested["n1"][corev1.ResourcePods]; cpu.Value() != 3 || pods.Value() != 2 {
		t.Errorf("requested are %s CPUs and %s pods, want 3 and 2", &cpu, &pods)
	}
}
