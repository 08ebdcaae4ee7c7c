// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// agent returns a gate that waits for a DaemonSet. more is appended to its spec.
func agent(more string) string {
	return "metadata: {name: agent}\nspec:\n  nodeSelector: {}\n  taint: {key: example.com/a, effect: NoSchedule}\n" +
		"  openWhen: [{name: pod, daemonSet: {namespace: kube-system, name: agent}}]\n" + more
}

// by returns the same gate with another selector, and keyed with another key.
func by(selector string) string {
	return strings.Replace(agent(""), "nodeSelector: {}", "nodeSelector: "+selector, 1)
}

// otherBy returns otherGate with another selector.
func otherBy(selector string) string {
	return strings.Replace(otherGate, "nodeSelector: {}", "nodeSelector: "+selector, 1)
}

func keyed(key, more string) string { return strings.Replace(agent(more), "example.com/a", key, 1) }

// anyOf returns a gate that waits for one of these signals.
func anyOf(alternatives string) string {
	return strings.Replace(labelled, "label: {key: l}", "anyOf: ["+alternatives+"]", 1)
}

const (
	labelled = "metadata: {name: agent}\nspec:\n  nodeSelector: {}\n  taint: {key: example.com/a, effect: NoSchedule}\n  openWhen: [{name: l, label: {key: l}}]\n"
	several  = "metadata: {name: agent}\nspec:\n  nodeSelector: {}\n  taint: {key: example.com/a, effect: NoSchedule}\n" +
		"  openWhen: [{name: all, daemonSets: {namespaces: [kube-system], selector: {matchLabels: {wait: for}}}}]\n"
	// ofPods waits for pods by their labels.
	ofPods = "metadata: {name: agent}\nspec:\n  nodeSelector: {}\n  taint: {key: example.com/a, effect: NoSchedule}\n" +
		"  openWhen: [{name: pods, pods: {namespace: kube-system, selector: {matchLabels: {app: agent}}}}]\n"
	startup = "startup-taint.cluster-autoscaler.kubernetes.io/a"
	status  = "status-taint.cluster-autoscaler.kubernetes.io/a"
	// readinessKey is a key that Karpenter recognizes since version 1.13.
	readinessKey = "readiness.k8s.io/a"
	// onRegression makes a gate close on nodes in use.
	onRegression = "  reclosePolicy: OnRegression\n"
)

var (
	everything = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	taintA     = corev1.Taint{Key: "example.com/a", Effect: corev1.TaintEffectNoSchedule}
	// onLinux is a gate that does not select nodes without labels.
	onLinux = by("{matchLabels: {kubernetes.io/os: linux}}")
)

func daemon(name string, change ...func(*gate.DaemonSet)) gate.DaemonSet {
	ds := gate.DaemonSet{Namespace: "kube-system", Name: name, Tolerations: everything, Affinity: nodeaffinity.NewRequiredNodeAffinity(nil, nil)}
	for _, c := range change {
		c(&ds)
	}
	return ds
}

func tolerating(tolerations ...corev1.Toleration) func(*gate.DaemonSet) {
	return func(ds *gate.DaemonSet) { ds.Tolerations = tolerations }
}

func podLabel(k, v string) func(*gate.DaemonSet) {
	return func(ds *gate.DaemonSet) { ds.PodLabels = labels.Set{k: v} }
}

// tolerant is a DaemonSet that tolerates only the taint of the gate agent.
var tolerant = daemon("agent", tolerating(key("example.com/a")))

// selfish adds the DaemonSets of agent and otherGate, which tolerate only the taint of their own gate.
var selfish = daemonSets(daemon("agent", tolerating(key("example.com/a"))), daemon("other", tolerating(key("example.com/b"))))

// dedicated returns a permanent taint.
func dedicated(effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: "dedicated", Value: "ml", Effect: effect}
}

func key(k string) corev1.Toleration {
	return corev1.Toleration{Key: k, Operator: corev1.TolerationOpExists}
}

func deployment(name string, change ...func(*appsv1.Deployment)) appsv1.Deployment {
	d := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, Labels: map[string]string{}}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "registry.example.com/" + name + ":v1"}}
	for _, c := range change {
		c(&d)
	}
	return d
}

func scaled(d appsv1.Deployment, replicas int32) appsv1.Deployment {
	d.Spec.Replicas = &replicas
	return d
}

func withTolerations(tolerations ...corev1.Toleration) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Template.Spec.Tolerations = tolerations }
}

func withLabel(k, v string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Labels[k] = v }
}

// withEnv adds an environment variable.
func withEnv(name, value string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		c := &d.Spec.Template.Spec.Containers[0]
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
	}
}

// withContainer adds a container with these arguments.
func withContainer(args ...string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		spec := &d.Spec.Template.Spec
		spec.Containers = append(spec.Containers, corev1.Container{Args: args})
	}
}

func node(name string, set labels.Set, taints ...corev1.Taint) *gate.Node {
	return &gate.Node{Name: name, Labels: set, Taints: taints}
}

// recorded adds a gate's record to a node.
func recorded(n *gate.Node, gateName string) *gate.Node {
	n.Records = map[string]string{gateName: "Closed"}
	return n
}

// closed adds the record of a gate that has closed with the node's first taint.
func closed(n *gate.Node, gateName string) *gate.Node {
	r := gate.Record{State: v1alpha1.StateClosed, Taint: gate.TaintText(v1alpha1.TaintOf(n.Taints[0]))}
	n.Records = map[string]string{gateName: r.String()}
	return n
}

func nodePool(text string) unstructured.Unstructured {
	var u unstructured.Unstructured
	if err := yaml.Unmarshal([]byte("metadata: {name: pool}\nspec:\n  template:\n"+text), &u.Object); err != nil {
		panic(err)
	}
	return u
}

// requiring adds a NodePool with these requirements.
func requiring(requirements string) func(*World) {
	return pools(nodePool("    spec: {requirements: [" + requirements + "]}"))
}

// with returns a world with six nodes, the DaemonSet agent that tolerates everything, and
// these gates.
func with(gates []string, change ...func(*World)) *World {
	w := &World{
		DaemonSets: &gate.DaemonSets{Observed: map[string]bool{"kube-system": true}, Items: []gate.DaemonSet{daemon("agent")}},
		Nodes:      []*gate.Node{node("n1", labels.Set{"a": "b"}), node("n2", nil), node("n3", nil), node("n4", nil), node("n5", nil), node("n6", nil)},
	}
	for _, text := range gates {
		var ng v1alpha1.NodeGate
		if err := yaml.UnmarshalStrict([]byte(text), &ng); err != nil {
			panic(err)
		}
		w.Gates = append(w.Gates, ng)
	}
	for _, c := range change {
		c(w)
	}
	return w
}

func withUnconfinedAgent(w *World) { w.UnconfinedAgent = true }

func withoutAgent(w *World) { w.AgentMissing = true }

func withTolerationsPolicy(w *World) { w.TolerationsPolicy = true }

func daemonSets(items ...gate.DaemonSet) func(*World) {
	return func(w *World) { w.DaemonSets.Items = items }
}

func deployments(items ...appsv1.Deployment) func(*World) {
	return func(w *World) { w.Deployments = items }
}

func pools(items ...unstructured.Unstructured) func(*World) {
	return func(w *World) { w.NodePools = items }
}

func nodes(items ...*gate.Node) func(*World) { return func(w *World) { w.Nodes = items } }

// zones replaces the nodes by so many in each zone.
func zones(sizes ...int) func(*World) {
	var all []*gate.Node
	for i, size := range sizes {
		for j := range size {
			all = append(all, node(fmt.Sprintf("n%d-%d", i, j), labels.Set{corev1.LabelTopologyZone: fmt.Sprintf("z%d", i)}))
		}
	}
	return nodes(all...)
}

// evicting returns a gate that closes on nodes in use, with NoExecute and this budget.
func evicting(maxReclosed string) string {
	return strings.Replace(agent(onRegression+"  budget: {maxReclosed: "+maxReclosed+"}\n"), "NoSchedule", "NoExecute", 1)
}

var created = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

// sample adds a complete Node whose label a was set by a manager some time after the
// Node's creation.
func sample(manager string, after time.Duration) func(*World) {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", CreationTimestamp: metav1.NewTime(created), Labels: map[string]string{"a": "b"}}}
	n.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: manager, Time: &metav1.Time{Time: created.Add(after)},
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}`),
	}}
	return func(w *World) { w.Samples = []corev1.Node{n} }
}

// inZone is a gate that selects nodes by their zone.
var inZone = by("{matchLabels: {topology.kubernetes.io/zone: z}}")

// zoned adds a complete Node for each manager, which set the Node's zone.
func zoned(managers ...string) func(*World) {
	var all []corev1.Node
	for i, manager := range managers {
		all = append(all, corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("n%d", i), CreationTimestamp: metav1.NewTime(created), Labels: map[string]string{corev1.LabelTopologyZone: "z"},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: manager, Time: &metav1.Time{Time: created}, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:topology.kubernetes.io/zone":{}}}}`),
			}},
		}})
	}
	return func(w *World) { w.Samples = all }
}

// withKubelet makes the samples' writer a process that contains the kubelet.
func withKubelet(w *World) {
	w.Samples[0].ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{".":{},"f:volumes.kubernetes.io/controller-managed-attach-detach":{}},"f:labels":{".":{},"f:a":{}}}}`)
}

// karpenter returns a Deployment of Karpenter for AWS, with the image tag or, without one,
// a digest.
func karpenter(tag string) appsv1.Deployment {
	return deployment("karpenter", func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Image = "public.ecr.aws/karpenter/controller:" + tag
		if tag == "" {
			d.Spec.Template.Spec.Containers[0].Image = "public.ecr.aws/karpenter/controller@sha256:00"
		}
	})
}

func autoscaler(args ...string) appsv1.Deployment {
	return deployment("ca", func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Image = "registry.k8s.io/autoscaling/cluster-autoscaler:v1.34.0"
		d.Spec.Template.Spec.Containers[0].Args = args
	})
}

type ruleCases struct{ bad, good map[string]*World }

// cases contains, by rule, bad worlds in which the rule has a finding about the gate agent,
// and good worlds in which it has none.
var cases = map[string]ruleCases{
	"not-accepted": {
		bad: map[string]*World{
			"key not allowed": with([]string{agent("")}, func(w *World) {
				w.Policy.Allowed = gate.AllowedTaints{{Key: "example.com/b", Effect: "NoSchedule"}: true}
			}),
			"a rule manages the key": with([]string{agent("")}, func(w *World) { w.Policy.Managed = map[string]string{"example.com/a": "rule"} }),
			"core's key":             with([]string{keyed("node.kubernetes.io/a", "")}),
			"conflict":               with([]string{strings.Replace(agent(""), "name: agent}\nspec", "name: a}\nspec", 1), strings.Replace(agent(""), "effect:", "value: b, effect:", 1)}),
			"invalid expression":     with([]string{strings.Replace(labelled, "label: {key: l}", "expression: '1 +'", 1)}),
		},
		good: map[string]*World{"allowed": with([]string{agent("")}, func(w *World) {
			w.Policy.Allowed = gate.AllowedTaints{{Key: "example.com/a", Effect: "NoSchedule"}: true}
		})},
	},
	"contended": {
		bad: map[string]*World{"in its status": with([]string{agent("status: {conditions: [{type: Contended, status: 'True', reason: Contended, message: by kubectl}]}")})},
		good: map[string]*World{
			"over":            with([]string{agent("status: {conditions: [{type: Contended, status: 'False', reason: Contended}]}")}),
			"no other writer": with([]string{agent("status: {conditions: [{type: Contended, status: 'True', reason: GatesContradict, message: gates a and b}]}")}),
		},
	},
	"gates-contradict": {
		bad: map[string]*World{"in its status": with([]string{agent("status: {conditions: [{type: Contended, status: 'True', reason: GatesContradict, message: gates a and b}]}")})},
		good: map[string]*World{
			"over":           with([]string{agent("status: {conditions: [{type: Contended, status: 'False', reason: GatesContradict}]}")}),
			"another writer": with([]string{agent("status: {conditions: [{type: Contended, status: 'True', reason: Contended, message: by kubectl}]}")}),
		},
	},
	"daemonset-missing": {
		bad: map[string]*World{
			"missing":          with([]string{agent("")}, daemonSets()),
			"is being deleted": with([]string{agent("")}, daemonSets(daemon("agent", func(ds *gate.DaemonSet) { ds.Deleting = true }))),
			"no alternative works": with([]string{anyOf("{name: a, daemonSet: {namespace: kube-system, name: agent}}, {name: b, daemonSet: {namespace: kube-system, name: none}}")},
				daemonSets(daemon("agent", tolerating()))),
		},
		good: map[string]*World{
			"exists":                         with([]string{agent("")}),
			"not observed":                   with([]string{agent("")}, func(w *World) { w.DaemonSets = &gate.DaemonSets{} }),
			"an alternative works":           with([]string{anyOf("{name: a, label: {key: l}}, {name: b, daemonSet: {namespace: kube-system, name: none}}")}),
			"an alternative is not observed": with([]string{anyOf("{name: a, daemonSet: {namespace: web, name: agent}}, {name: b, daemonSet: {namespace: kube-system, name: none}}")}),
			"it closes when it is ready":     with([]string{strings.Replace(agent(""), "openWhen", "closeWhen", 1)}, daemonSets()),
			"paused":                         with([]string{agent("  mode: Paused\n")}, daemonSets()),
		},
	},
	"daemonset-misses-nodes": {
		bad: map[string]*World{
			"by node selector": with([]string{agent("")}, daemonSets(daemon("agent", func(ds *gate.DaemonSet) {
				ds.Affinity = nodeaffinity.NewRequiredNodeAffinity(map[string]string{"a": "b"}, nil)
			}))),
			"by name":                with([]string{agent("")}, daemonSets(daemon("agent", func(ds *gate.DaemonSet) { ds.NodeName = "n1" }))),
			"by a taint":             with([]string{agent("")}, daemonSets(tolerant), nodes(node("n1", nil, dedicated(corev1.TaintEffectNoSchedule)))),
			"by a taint that evicts": with([]string{agent("")}, daemonSets(tolerant), nodes(node("n1", nil, dedicated(corev1.TaintEffectNoExecute)))),
		},
		good: map[string]*World{
			"it tolerates the taint":     with([]string{agent("")}, nodes(node("n1", nil, dedicated(corev1.TaintEffectNoSchedule)))),
			"the taint only repels":      with([]string{agent("")}, daemonSets(tolerant), nodes(node("n1", nil, dedicated(corev1.TaintEffectPreferNoSchedule)))),
			"a node that is not ready":   with([]string{agent("")}, daemonSets(tolerant), nodes(node("n1", nil, corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}))),
			"the gate's own taint":       with([]string{agent("  mode: DryRun\n")}, daemonSets(daemon("agent", tolerating())), nodes(node("n1", nil, taintA))),
			"another gate's taint":       with([]string{agent(""), otherGate}, daemonSets(tolerant), nodes(node("n1", nil, corev1.Taint{Key: "example.com/b", Effect: corev1.TaintEffectNoSchedule}))),
			"a deleted gate's taint":     with([]string{agent("")}, daemonSets(tolerant), nodes(closed(node("n1", nil, dedicated(corev1.TaintEffectNoSchedule)), "deleted"))),
			"the gate excludes the node": with([]string{by("{matchLabels: {a: b}}")}, daemonSets(tolerant), nodes(node("n1", labels.Set{"a": "b"}), node("n2", nil, dedicated(corev1.TaintEffectNoSchedule)))),
			"same selector in the gate": with([]string{by("{matchLabels: {a: b}}")}, daemonSets(daemon("agent", func(ds *gate.DaemonSet) {
				ds.Affinity = nodeaffinity.NewRequiredNodeAffinity(map[string]string{"a": "b"}, nil)
			}))),
		},
	},
	"daemon-does-not-tolerate": {
		bad: map[string]*World{
			"neither":               with([]string{agent("")}, daemonSets(daemon("agent", tolerating()))),
			"one of several":        with([]string{several}, daemonSets(daemon("agent"), daemon("other", tolerating(), func(ds *gate.DaemonSet) { ds.Labels = labels.Set{"wait": "for"} }))),
			"no alternative works":  with([]string{anyOf("{name: a, daemonSet: {namespace: kube-system, name: agent}}, {name: b, daemonSet: {namespace: kube-system, name: none}}")}, daemonSets(daemon("agent", tolerating()))),
			"only the first taint":  with([]string{agent("  recloseTaint: {key: example.com/b, effect: NoSchedule}\n")}, daemonSets(daemon("agent", tolerating(key("example.com/a"))))),
			"by the labels of pods": with([]string{ofPods}, daemonSets(daemon("agent", tolerating(), podLabel("app", "agent")))),
			"by both": with([]string{strings.Replace(ofPods, "openWhen: [", "openWhen: [{name: agent, daemonSet: {namespace: kube-system, name: agent}}, ", 1)},
				daemonSets(daemon("agent", tolerating(), podLabel("app", "agent")))),
		},
		good: map[string]*World{
			"pods that tolerate it":             with([]string{ofPods}, daemonSets(daemon("agent", podLabel("app", "agent")))),
			"pods of which others tolerate it":  with([]string{ofPods}, daemonSets(daemon("agent", podLabel("app", "agent")), daemon("other", tolerating(), podLabel("app", "agent")))),
			"other pods":                        with([]string{ofPods}, daemonSets(daemon("agent", tolerating(), podLabel("app", "other")))),
			"pods of another namespace":         with([]string{ofPods}, daemonSets(daemon("agent", tolerating(), podLabel("app", "agent"), func(ds *gate.DaemonSet) { ds.Namespace = "other" }))),
			"pods of one that is being deleted": with([]string{ofPods}, daemonSets(daemon("agent", tolerating(), podLabel("app", "agent"), func(ds *gate.DaemonSet) { ds.Deleting = true }))),
			"an alternative to pods":            with([]string{anyOf("{name: a, label: {key: l}}, {name: b, pods: {namespace: kube-system, selector: {matchLabels: {app: agent}}}}")}, daemonSets(daemon("agent", tolerating(), podLabel("app", "agent")))),
			"pods while it closes":              with([]string{strings.Replace(ofPods, "openWhen", "closeWhen", 1)}, daemonSets(daemon("agent", tolerating(), podLabel("app", "agent")))),
			"both":                              with([]string{agent("  recloseTaint: {key: example.com/b, effect: NoSchedule}\n")}, daemonSets(daemon("agent", tolerating(key("example.com/a"), key("example.com/b"))))),
			"not waited for":                    with([]string{labelled}, daemonSets(daemon("agent", tolerating()))),
			"an alternative works":              with([]string{anyOf("{name: a, label: {key: l}}, {name: b, daemonSet: {namespace: kube-system, name: agent}}")}, daemonSets(daemon("agent", tolerating()))),
		},
	},
	"daemon-without-probe": {
		bad:  map[string]*World{"none": with([]string{agent("")}, daemonSets(daemon("agent", func(ds *gate.DaemonSet) { ds.Unprobed = true })))},
		good: map[string]*World{"probed": with([]string{agent("")})},
	},
	"selects-no-daemonset": {
		bad: map[string]*World{
			"none":             with([]string{several}),
			"is being deleted": with([]string{several}, daemonSets(daemon("agent", func(ds *gate.DaemonSet) { ds.Labels, ds.Deleting = labels.Set{"wait": "for"}, true }))),
			"within anyOf":     with([]string{anyOf("{name: a, label: {key: l}}, {name: b, daemonSets: {namespaces: [kube-system], selector: {matchLabels: {wait: for}}}}")}),
		},
		good: map[string]*World{
			"it closes when they are ready": with([]string{strings.Replace(several, "openWhen", "closeWhen", 1)}),
			"paused":                        with([]string{several + "  mode: Paused\n"}),
			"one":                           with([]string{several}, daemonSets(daemon("agent", func(ds *gate.DaemonSet) { ds.Labels = labels.Set{"wait": "for"} }))), "not observed": with([]string{several}, func(w *World) { w.DaemonSets = &gate.DaemonSets{} }),
		},
	},
	"gates-deadlock": {
		bad: map[string]*World{
			"mutual":                with([]string{agent(""), otherGate}, selfish),
			"one has no nodes yet":  with([]string{by("{matchLabels: {pool: a}}"), otherBy("{matchLabels: {type: b}}")}, selfish, nodes(node("n1", labels.Set{"type": "b"}))),
			"on some nodes of both": with([]string{by("{matchLabels: {pool: a}}"), otherGate}, selfish, nodes(node("n1", labels.Set{"pool": "a"}), node("n2", nil))),
			"in other zones, for now": with([]string{by("{matchLabels: {topology.kubernetes.io/zone: a}}"), otherBy("{matchLabels: {type: b}}")}, selfish,
				nodes(node("n1", labels.Set{"topology.kubernetes.io/zone": "a"}), node("n2", labels.Set{"topology.kubernetes.io/zone": "b", "type": "b"}))),
		},
		good: map[string]*World{
			"one way":            with([]string{agent(""), otherGate}, daemonSets(daemon("agent", tolerating(key("example.com/a"))), daemon("other"))),
			"on different nodes": with([]string{by("{matchLabels: {pool: a}}"), otherBy("{matchExpressions: [{key: pool, operator: NotIn, values: [a]}]}")}, selfish),
			"on different existing nodes": with([]string{by("{matchLabels: {pool: a}}"), otherBy("{matchLabels: {type: b}}")}, selfish,
				nodes(node("n1", labels.Set{"pool": "a"}), node("n2", labels.Set{"type": "b"}))),
		},
	},
	"operator-does-not-tolerate": {
		bad: map[string]*World{
			"cilium": with([]string{cilium}, daemonSets(daemon("cilium")), deployments(deployment("cilium-operator"))),
			"calico's typha": with([]string{strings.Replace(cilium, "name: cilium}", "name: calico-node}", 1)}, daemonSets(daemon("calico-node")),
				deployments(deployment("calico-typha", withTolerations(key("CriticalAddonsOnly"), key(corev1.TaintNodeNotReady), key(corev1.TaintNodeNetworkUnavailable))))),
			"other nodes are dedicated": with([]string{strings.Replace(cilium, "nodeSelector: {}", "nodeSelector: {matchLabels: {a: b}}", 1)}, daemonSets(daemon("cilium")),
				nodes(node("n1", labels.Set{"a": "b"}), node("n2", nil, dedicated(corev1.TaintEffectNoSchedule))), deployments(deployment("cilium-operator"))),
			"the cluster's DNS": with([]string{strings.Replace(cilium, "name: cilium}", "name: ztunnel}", 1)}, daemonSets(daemon("ztunnel")),
				deployments(deployment("coredns", withTolerations(key("CriticalAddonsOnly"))))),
			"kube-dns": with([]string{strings.Replace(cilium, "name: cilium}", "name: ztunnel}", 1)}, daemonSets(daemon("ztunnel")),
				deployments(deployment("kube-dns", withTolerations(key("CriticalAddonsOnly"))))),
		},
		good: map[string]*World{
			"an alternative works": with([]string{anyOf("{name: a, label: {key: l}}, {name: b, daemonSet: {namespace: kube-system, name: cilium}}")}, daemonSets(daemon("cilium")), deployments(deployment("cilium-operator"))),
			"it tolerates":         with([]string{cilium}, daemonSets(daemon("cilium")), deployments(deployment("cilium-operator", withTolerations(key("example.com/a"))))),
			"another node remains": with([]string{strings.Replace(cilium, "nodeSelector: {}", "nodeSelector: {matchLabels: {a: b}}", 1)}, daemonSets(daemon("cilium")), deployments(deployment("cilium-operator"))),
			"a node with a temporary taint remains": with([]string{strings.Replace(cilium, "nodeSelector: {}", "nodeSelector: {matchLabels: {a: b}}", 1)}, daemonSets(daemon("cilium")),
				nodes(node("n1", labels.Set{"a": "b"}), node("n2", nil, corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule})), deployments(deployment("cilium-operator"))),
			"a node with a soft taint remains": with([]string{strings.Replace(cilium, "nodeSelector: {}", "nodeSelector: {matchLabels: {a: b}}", 1)}, daemonSets(daemon("cilium")),
				nodes(node("n1", labels.Set{"a": "b"}), node("n2", nil, dedicated(corev1.TaintEffectPreferNoSchedule))), deployments(deployment("cilium-operator"))),
			"an opted-out node remains": with([]string{cilium}, daemonSets(daemon("cilium")), nodes(node("n1", labels.Set{v1alpha1.OptOutLabel: v1alpha1.OptOutValue}), node("n2", nil)), deployments(deployment("cilium-operator"))),
		},
	},
	"sibling-does-not-tolerate": {
		bad: map[string]*World{"part of the same": with([]string{agent("")}, daemonSets(part), deployments(deployment("helper", withLabel(partOf, "net"))))},
		good: map[string]*World{
			"part of another":      with([]string{agent("")}, daemonSets(part), deployments(deployment("helper", withLabel(partOf, "web")))),
			"in another namespace": with([]string{agent("")}, daemonSets(part), deployments(deployment("helper", withLabel(partOf, "net"), func(d *appsv1.Deployment) { d.Namespace = "web" }))),
			"it tolerates":         with([]string{agent("")}, daemonSets(part), deployments(deployment("helper", withLabel(partOf, "net"), withTolerations(everything...)))),
		},
	},
	"nodegate-does-not-tolerate": {
		bad: map[string]*World{
			"selects all nodes":              with([]string{agent("")}, deployments(deployment("gatekeeper", withLabel(v1alpha1.AppLabel, v1alpha1.AppController)))),
			"other nodes are control planes": with([]string{by("{matchLabels: {a: b}}")}, nodes(node("n1", labels.Set{"a": "b"}), node("n2", nil, corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule})), deployments(deployment("gatekeeper", withLabel(v1alpha1.AppLabel, v1alpha1.AppController)))),
		},
		good: map[string]*World{
			"it tolerates": with([]string{agent("")}, deployments(deployment("gatekeeper", withLabel(v1alpha1.AppLabel, v1alpha1.AppController), withTolerations(key("example.com/a"))))),
			"another node": with([]string{by("{matchLabels: {a: b}}")}, deployments(deployment("gatekeeper", withLabel(v1alpha1.AppLabel, v1alpha1.AppController)))),
			"another's":    with([]string{agent("")}, deployments(deployment("web"))),
		},
	},
	"karpenter-startup-taint-missing": {
		bad: map[string]*World{
			"none":                                   with([]string{agent("")}, pools(nodePool("    spec: {}"))),
			"another effect":                         with([]string{agent("")}, pools(nodePool("    spec: {startupTaints: [{key: example.com/a, effect: NoExecute}]}"))),
			"by template label":                      with([]string{by("{matchLabels: {a: b}}")}, pools(nodePool("    metadata: {labels: {a: b}}\n    spec: {}"))),
			"by a requirement":                       with([]string{by("{matchLabels: {a: b}}")}, pools(nodePool("    spec: {requirements: [{key: a, operator: In, values: [c, b]}]}"))),
			"by a label of all":                      with([]string{by("{matchLabels: {kubernetes.io/os: linux}}")}, pools(nodePool("    spec: {}"))),
			"by an own label":                        with([]string{by("{matchLabels: {karpenter.sh/capacity-type: spot}}")}, pools(nodePool("    spec: {}"))),
			"by AWS's label":                         with([]string{by("{matchLabels: {karpenter.k8s.aws/instance-family: p5}}")}, pools(nodePool("    spec: {}"))),
			"by EKS's label":                         with([]string{by("{matchLabels: {eks.amazonaws.com/instance-gpu-name: h100}}")}, pools(nodePool("    spec: {}"))),
			"by the node class":                      with([]string{by("{matchLabels: {karpenter.k8s.aws/ec2nodeclass: gpu}}")}, pools(nodePool("    spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}}"))),
			"by EKS Auto Mode":                       with([]string{by("{matchLabels: {eks.amazonaws.com/compute-type: auto}}")}, pools(nodePool("    spec: {nodeClassRef: {group: eks.amazonaws.com, kind: NodeClass, name: default}}"))),
			"an old Karpenter":                       with([]string{keyed(readinessKey, "")}, pools(nodePool("    spec: {}")), deployments(karpenter("1.12.1"))),
			"Exists":                                 with([]string{by("{matchLabels: {a: b}}")}, requiring("{key: a, operator: Exists}")),
			"NotIn":                                  with([]string{by("{matchLabels: {a: b}}")}, requiring("{key: a, operator: NotIn, values: [c]}")),
			"Gt":                                     with([]string{by("{matchLabels: {a: '5'}}")}, requiring("{key: a, operator: Gt, values: ['4']}")),
			"Lt":                                     with([]string{by("{matchLabels: {a: '5'}}")}, requiring("{key: a, operator: Lt, values: ['6']}")),
			"Gte":                                    with([]string{by("{matchLabels: {a: '5'}}")}, requiring("{key: a, operator: Gte, values: ['5']}")),
			"Lte":                                    with([]string{by("{matchLabels: {a: '5'}}")}, requiring("{key: a, operator: Lte, values: ['5']}")),
			"Gt and Lt":                              with([]string{by("{matchExpressions: [{key: a, operator: Exists}]}")}, requiring("{key: a, operator: Gt, values: ['4']}, {key: a, operator: Lt, values: ['6']}")),
			"DoesNotExist":                           with([]string{by("{matchExpressions: [{key: a, operator: DoesNotExist}]}")}, requiring("{key: a, operator: DoesNotExist}")),
			"an unknown operator":                    with([]string{by("{matchLabels: {a: b}}")}, requiring("{key: a, operator: Near, values: [c]}")),
			"an invalid value":                       with([]string{by("{matchLabels: {a: b}}")}, requiring("{key: a, operator: Gt, values: [c]}")),
			"an invalid key of another label":        with([]string{by("{matchLabels: {a: b}}")}, requiring("{key: '-', operator: In, values: [c]}, {key: a, operator: Exists}")),
			"In, twice":                              with([]string{by("{matchLabels: {a: b}}")}, requiring("{key: a, operator: In, values: [b]}, {key: a, operator: In, values: [b, c]}")),
			"the gate excludes one value":            with([]string{by("{matchExpressions: [{key: a, operator: NotIn, values: [c]}]}")}, requiring("{key: a, operator: Exists}")),
			"the gate excludes the bound's neighbor": with([]string{by("{matchExpressions: [{key: a, operator: NotIn, values: ['5']}]}")}, requiring("{key: a, operator: Gt, values: ['4']}")),
			"one of two is old":                      with([]string{keyed(readinessKey, "")}, pools(nodePool("    spec: {}")), deployments(karpenter("1.13.0"), karpenter("1.12.1"))),
		},
		good: map[string]*World{
			"listed":                            with([]string{agent("")}, pools(nodePool("    spec: {startupTaints: [{key: example.com/a, effect: NoSchedule}]}"))),
			"other labels":                      with([]string{by("{matchLabels: {a: b}}")}, pools(nodePool("    metadata: {labels: {a: c}}\n    spec: {}"))),
			"no such label":                     with([]string{by("{matchLabels: {a: b}}")}, pools(nodePool("    spec: {}"))),
			"excluded by a requirement":         with([]string{by("{matchLabels: {kubernetes.io/os: linux}}")}, pools(nodePool("    spec: {requirements: [{key: kubernetes.io/os, operator: In, values: [windows]}]}"))),
			"excluded by capacity type":         with([]string{by("{matchLabels: {karpenter.sh/capacity-type: spot}}")}, pools(nodePool("    spec: {requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]}"))),
			"another pool":                      with([]string{by("{matchLabels: {karpenter.sh/nodepool: other}}")}, pools(nodePool("    spec: {}"))),
			"another node class":                with([]string{by("{matchLabels: {karpenter.k8s.aws/ec2nodeclass: gpu}}")}, pools(nodePool("    spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}"))),
			"a managed node group":              with([]string{by("{matchLabels: {eks.amazonaws.com/nodegroup: workers}}")}, pools(nodePool("    spec: {}"))),
			"hybrid nodes":                      with([]string{by("{matchLabels: {eks.amazonaws.com/compute-type: hybrid}}")}, pools(nodePool("    spec: {nodeClassRef: {group: eks.amazonaws.com, kind: NodeClass, name: default}}"))),
			"not by Exists":                     with([]string{by("{matchExpressions: [{key: a, operator: DoesNotExist}]}")}, requiring("{key: a, operator: Exists}")),
			"not by NotIn":                      with([]string{by("{matchLabels: {a: b}}")}, requiring("{key: a, operator: NotIn, values: [b]}")),
			"not by Gt":                         with([]string{by("{matchLabels: {a: '5'}}")}, requiring("{key: a, operator: Gt, values: ['5']}")),
			"not by Lt":                         with([]string{by("{matchLabels: {a: '5'}}")}, requiring("{key: a, operator: Lt, values: ['5']}")),
			"not by Gte":                        with([]string{by("{matchLabels: {a: '5'}}")}, requiring("{key: a, operator: Gte, values: ['6']}")),
			"not by Lte":                        with([]string{by("{matchLabels: {a: '5'}}")}, requiring("{key: a, operator: Lte, values: ['4']}")),
			"not by Gt, text":                   with([]string{by("{matchLabels: {a: b}}")}, requiring("{key: a, operator: Gt, values: ['5']}")),
			"not by Gt and Lt":                  with([]string{by("{matchExpressions: [{key: a, operator: NotIn, values: ['5']}]}")}, requiring("{key: a, operator: Gt, values: ['4']}, {key: a, operator: Lt, values: ['6']}")),
			"not by DoesNotExist":               with([]string{by("{matchLabels: {a: b}}")}, requiring("{key: a, operator: DoesNotExist}")),
			"not by In, twice":                  with([]string{by("{matchLabels: {a: b}}")}, requiring("{key: a, operator: In, values: [c, d]}, {key: a, operator: In, values: [b, c]}")),
			"not by In and NotIn":               with([]string{by("{matchLabels: {a: b}}")}, requiring("{key: a, operator: In, values: [b, c]}, {key: a, operator: NotIn, values: [b]}")),
			"not by all values of In":           with([]string{by("{matchExpressions: [{key: a, operator: NotIn, values: [b, c]}]}")}, requiring("{key: a, operator: In, values: [b, c]}")),
			"not by NotIn of Karpenter's label": with([]string{by("{matchLabels: {kubernetes.io/os: linux}}")}, requiring("{key: kubernetes.io/os, operator: NotIn, values: [linux]}")),
			"known to Karpenter":                with([]string{keyed(readinessKey, "")}, pools(nodePool("    spec: {}")), deployments(karpenter("1.13.0"))),
			"an unknown Karpenter":              with([]string{keyed(readinessKey, "")}, pools(nodePool("    spec: {}"))),
		},
	},
	"karpenter-version-unknown": {
		bad: map[string]*World{
			"no Deployment": with([]string{keyed(readinessKey, "")}, pools(nodePool("    spec: {}"))),
			"by digest":     with([]string{keyed(readinessKey, "")}, pools(nodePool("    spec: {}")), deployments(karpenter(""))),
			"of another provider": with([]string{keyed(readinessKey, "")}, pools(nodePool("    spec: {}")), deployments(deployment("karpenter", func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image = "mcr.microsoft.com/aks/karpenter/controller:1.7.0"
			}))),
		},
		good: map[string]*World{
			"new":         with([]string{keyed(readinessKey, "")}, pools(nodePool("    spec: {}")), deployments(karpenter("1.13.0"))),
			"newer":       with([]string{keyed(readinessKey, "")}, pools(nodePool("    spec: {}")), deployments(karpenter("2.0.1@sha256:00"))),
			"old":         with([]string{keyed(readinessKey, "")}, pools(nodePool("    spec: {}")), deployments(karpenter("1.12.1"))),
			"listed":      with([]string{keyed(readinessKey, "")}, pools(nodePool("    spec: {startupTaints: [{key: "+readinessKey+", effect: NoSchedule}]}"))),
			"another key": with([]string{agent("")}, pools(nodePool("    spec: {}"))),
			"no pools":    with([]string{keyed(readinessKey, "")}),
		},
	},
	"karpenter-permanent-taint": {
		bad:  map[string]*World{"among taints": with([]string{agent("")}, pools(nodePool("    spec: {taints: [{key: example.com/a, effect: NoSchedule}]}")))},
		good: map[string]*World{"among startupTaints": with([]string{agent("")}, pools(nodePool("    spec: {startupTaints: [{key: example.com/a, effect: NoSchedule}]}")))},
	},
	"reclose-with-startup-key": {
		bad: map[string]*World{
			"Cluster Autoscaler's": with([]string{keyed(startup, onRegression)}),
			"existing nodes":       with([]string{keyed(startup, "  reclosePolicy: Never\n  existingNodes: Close\n")}),
			"the second taint":     with([]string{agent(onRegression + "  recloseTaint: {key: " + startup + ", effect: NoSchedule}\n")}),
		},
		good: map[string]*World{
			"Karpenter's startupTaints":             with([]string{agent(onRegression)}, pools(nodePool("    spec: {startupTaints: [{key: example.com/a, effect: NoSchedule}]}"))),
			"another key for it":                    with([]string{keyed(startup, onRegression+"  recloseTaint: {key: "+status+", effect: NoSchedule}\n")}),
			"only for a reboot":                     with([]string{keyed(startup, "")}),
			"it never closes again":                 with([]string{keyed(startup, "  reclosePolicy: Never\n")}),
			"paused":                                with([]string{keyed(startup, onRegression+"  mode: Paused\n")}),
			"only for a reboot, while it is paused": with([]string{keyed(startup, "  mode: Paused\n")}),
		},
	},
	"tolerations-not-added": {
		bad: map[string]*World{
			"no policy": with([]string{agent("  tolerate: true\n")}),
			"paused":    with([]string{agent("  tolerate: true\n  mode: Paused\n")}),
		},
		good: map[string]*World{
			"installed":     with([]string{agent("  tolerate: true\n")}, withTolerationsPolicy),
			"not requested": with([]string{agent("")}),
			"dry run":       with([]string{agent("  tolerate: true\n  mode: DryRun\n")}),
			"unread": with([]string{agent("  tolerate: true\n")}, func(w *World) {
				w.Unread = map[Kind]error{TolerationsPolicy: errors.New("forbidden")}
			}),
		},
	},
	"agent-not-confined": {
		bad: map[string]*World{
			"no policy": with([]string{agent("")}, withUnconfinedAgent),
		},
		good: map[string]*World{
			"confined, or no agent":                 with([]string{agent("")}),
			"the gate does not close for shutdowns": with([]string{agent("  reclosePolicy: Never\n")}, withUnconfinedAgent),
			"paused":                                with([]string{agent("  mode: Paused\n")}, withUnconfinedAgent),
		},
	},
	"hold-without-agent": {
		bad: map[string]*World{
			"no agent": with([]string{agent("  bypassedPods: Hold\n")}, withoutAgent),
			"paused":   with([]string{agent("  bypassedPods: Hold\n  mode: Paused\n")}, withoutAgent), // it stays closed on nodes
		},
		good: map[string]*World{
			"installed, or unread": with([]string{agent("  bypassedPods: Hold\n")}),
			"it holds nothing":     with([]string{agent("  bypassedPods: Report\n")}, withoutAgent),
			"dry run":              with([]string{agent("  bypassedPods: Hold\n  mode: DryRun\n")}, withoutAgent),
			"not accepted":         with([]string{agent("  bypassedPods: Hold\n")}, withoutAgent, func(w *World) { w.Policy.Managed = map[string]string{"example.com/a": "rule"} }),
		},
	},
	"autoscaler-does-not-know-key": {
		bad: map[string]*World{
			"not configured": with([]string{agent("")}, deployments(autoscaler("--startup-taint=example.com/b"))),
			"no prefix":      with([]string{keyed(readinessKey, "")}, deployments(autoscaler("--startup-taint-prefix="))),
			"one replica":    with([]string{agent("")}, deployments(scaled(autoscaler(), 1))),
		},
		good: map[string]*World{
			"configured":                  with([]string{agent("")}, deployments(autoscaler("--startup-taint=example.com/a"))),
			"configured in two arguments": with([]string{agent("")}, deployments(autoscaler("--startup-taint", "example.com/a"))),
			"by its name":                 with([]string{keyed(startup, "")}, deployments(autoscaler())),
			"by a prefix":                 with([]string{keyed(readinessKey, "")}, deployments(autoscaler("--startup-taint-prefix=x/", "--startup-taint-prefix=readiness.k8s.io/"))),
			"there is none":               with([]string{agent("")}, deployments(deployment("web"))),
			"on lost nodes":               with([]string{outOfService}, deployments(autoscaler())),
			"it is stopped":               with([]string{agent("")}, deployments(scaled(autoscaler(), 0))),
		},
	},
	"late-label": {
		bad: map[string]*World{
			"a role":                          with([]string{by("{matchLabels: {node-role.kubernetes.io/worker: ''}}")}),
			"a protected label":               with([]string{by("{matchLabels: {node-restriction.kubernetes.io/pool: gpu}}")}),
			"of a GPU":                        with([]string{by("{matchLabels: {nvidia.com/gpu.present: 'true'}}")}),
			"excluded":                        with([]string{by("{matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}]}")}),
			"written by the cloud controller": with([]string{inZone}, zoned("cloud-controller-manager")),
			"of one kubelet":                  with([]string{inZone}, zoned("kubelet", "cloud-controller-manager")),
			"of no kubelet":                   with([]string{inZone}, zoned("k3s")),
			"on no Node":                      with([]string{inZone}, sample("kubelet", 0)),
		},
		good: map[string]*World{
			"of the kubelet":         with([]string{by("{matchLabels: {kubernetes.io/os: linux, pool: p}}")}),
			"kubelets register with": with([]string{inZone}, zoned("kubelet")),
			"of unknown nodes":       with([]string{inZone}, func(w *World) { w.Unread = map[Kind]error{Nodes: errors.New("forbidden")} }),
		},
	},
	"label-set-by-others": {
		bad: map[string]*World{"by a user": with([]string{by("{matchLabels: {a: b}}")}, sample("kubectl-label", time.Minute))},
		good: map[string]*World{
			"by k3s":          with([]string{by("{matchLabels: {a: b}}")}, sample("k3s", time.Minute), withKubelet),
			"by the kubelet":  with([]string{by("{matchLabels: {a: b}}")}, sample("kubelet", time.Minute)),
			"at its creation": with([]string{by("{matchLabels: {a: b}}")}, sample("cluster-api", time.Second)),
			"another label":   with([]string{agent("")}, sample("kubectl-label", time.Minute)),
		},
	},
	"other-writer": {
		bad: map[string]*World{
			"Cilium by default":        with([]string{keyed("node.cilium.io/agent-not-ready", "")}, deployments(deployment("cilium-operator"))),
			"Cilium sets it":           with([]string{keyed("node.cilium.io/agent-not-ready", "")}, deployments(deployment("cilium-operator")), config("remove-cilium-node-taints", "false", "set-cilium-node-taints", "true")),
			"Cilium with another key":  with([]string{agent("")}, deployments(deployment("cilium-operator")), config("agent-not-ready-taint-key", "example.com/a")),
			"istiod":                   with([]string{keyed("cni.istio.io/not-ready", "")}, deployments(deployment("istiod", withEnv("PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS", "true")))),
			"a revision of istiod":     with([]string{keyed("cni.istio.io/not-ready", "")}, deployments(deployment("istiod-1-27-0", withEnv("PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS", "true")))),
			"istiod with another key":  with([]string{agent("")}, deployments(deployment("istiod", withEnv("PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS", "true"), withEnv("PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME", "example.com/a")))),
			"Kuma":                     with([]string{keyed("NodeReadiness", "")}, deployments(deployment("kuma-control-plane", withEnv("KUMA_RUNTIME_KUBERNETES_NODE_TAINT_CONTROLLER_ENABLED", "true")))),
			"the PD driver":            with([]string{keyed("pd.csi.storage.gke.io/not-ready", "")}, deployments(deployment("csi-gce-pd-controller", withContainer("--v=5", "--run-taint-controller=true")))),
			"the PD driver, bare flag": with([]string{keyed("pd.csi.storage.gke.io/not-ready", "")}, deployments(deployment("csi-gce-pd-controller", withContainer("--v=5", "--run-taint-controller")))),
		},
		good: map[string]*World{
			"disabled":               with([]string{keyed("node.cilium.io/agent-not-ready", "")}, deployments(deployment("cilium-operator")), config("remove-cilium-node-taints", "false", "set-cilium-node-taints", "false")),
			"not installed":          with([]string{keyed("node.cilium.io/agent-not-ready", "")}),
			"another key":            with([]string{agent("")}, deployments(deployment("cilium-operator"))),
			"istiod is off":          with([]string{keyed("cni.istio.io/not-ready", "")}, deployments(deployment("istiod"), deployment("istiod-1-27-0"))),
			"istiod has another key": with([]string{keyed("cni.istio.io/not-ready", "")}, deployments(deployment("istiod", withEnv("PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS", "true"), withEnv("PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME", "example.com/a")))),
			"a similar name":         with([]string{keyed("cni.istio.io/not-ready", "")}, deployments(deployment("istiods", withEnv("PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS", "true")))),
			"Kuma is off":            with([]string{keyed("NodeReadiness", "")}, deployments(deployment("kuma-control-plane"))),
			"the PD driver without its taint controller": with([]string{keyed("pd.csi.storage.gke.io/not-ready", "")}, deployments(deployment("csi-gce-pd-controller", withContainer("--v=5", "--run-taint-controller=false")))),
		},
	},
	"stray-taint": {
		bad: map[string]*World{
			"another effect":         with([]string{agent("")}, nodes(node("n1", nil, corev1.Taint{Key: "example.com/a", Effect: corev1.TaintEffectNoExecute}))),
			"a node of no gate":      with([]string{onLinux}, nodes(node("n1", nil, taintA))),
			"a node of another gate": with([]string{onLinux, keyed("example.com/b", "")}, nodes(node("n1", nil, taintA))),
		},
		good: map[string]*World{
			"its own":                   with([]string{agent("")}, nodes(node("n1", nil, corev1.Taint{Key: "example.com/a", Value: "true", Effect: corev1.TaintEffectNoSchedule}))),
			"an excluded node":          with([]string{agent("")}, nodes(node("n1", labels.Set{v1alpha1.OptOutLabel: v1alpha1.OptOutValue}, taintA))),
			"a node that has just left": with([]string{onLinux}, nodes(recorded(node("n1", nil, taintA), "agent"))),
			"another gate has it":       with([]string{onLinux, strings.Replace(agent(""), "name: agent", "name: other", 1)}, nodes(node("n1", nil, taintA))),
		},
	},
	"evicts-widely": {
		bad: map[string]*World{
			"half of a zone":   with([]string{strings.Replace(agent("  reclosePolicy: OnRegression\n  budget: {maxReclosed: 50%}\n"), "NoSchedule", "NoExecute", 1)}),
			"the second taint": with([]string{agent(onRegression + "  recloseTaint: {key: example.com/b, effect: NoExecute}\n  budget: {maxReclosed: 50%}\n")}),
			"a number":         with([]string{evicting("3")}),
			"of a small zone":  with([]string{evicting("1")}, zones(9, 2)),
			"without nodes":    with([]string{evicting("50%")}, nodes()),
		},
		good: map[string]*World{
			"a small number":                 with([]string{evicting("2")}),
			"a number, large zones":          with([]string{evicting("60")}, zones(150, 121)),
			"a number, without nodes":        with([]string{evicting("60")}, nodes()),
			"a fifth":                        with([]string{strings.Replace(agent("  reclosePolicy: OnRegression\n"), "NoSchedule", "NoExecute", 1)}),
			"only at birth":                  with([]string{strings.Replace(agent("  budget: {maxReclosed: 50%}\n"), "NoSchedule", "NoExecute", 1)}),
			"another effect on nodes in use": with([]string{strings.Replace(agent(onRegression+"  recloseTaint: {key: example.com/b, effect: NoSchedule}\n  budget: {maxReclosed: 50%}\n"), "NoSchedule", "NoExecute", 1)}),
			"paused":                         with([]string{strings.Replace(agent(onRegression+"  mode: Paused\n  budget: {maxReclosed: 50%}\n"), "NoSchedule", "NoExecute", 1)}),
		},
	},
	"budget-is-all": {
		bad: map[string]*World{
			"by percentage": with([]string{agent("  reclosePolicy: OnRegression\n  budget: {maxReclosed: 100%}\n")}),
			"by number":     with([]string{agent("  reclosePolicy: OnRegression\n  budget: {maxReclosed: 6}\n")}),
			"a small zone":  with([]string{agent("  reclosePolicy: OnRegression\n  budget: {maxReclosed: 2}\n")}, zones(9, 2)),
			"rounded":       with([]string{agent("  reclosePolicy: OnRegression\n  budget: {maxReclosed: 60%}\n")}, zones(9, 2)),
		},
		good: map[string]*World{
			"fewer":               with([]string{agent("  reclosePolicy: OnRegression\n  budget: {maxReclosed: 5}\n")}),
			"a large fleet":       with([]string{agent("  reclosePolicy: OnRegression\n  budget: {maxReclosed: 1000}\n")}, zones(1001)),
			"without nodes":       with([]string{agent("  reclosePolicy: OnRegression\n  budget: {maxReclosed: 1000}\n")}, nodes()),
			"a zone of one":       with([]string{agent("  reclosePolicy: OnRegression\n")}, nodes(node("n1", nil))),
			"nothing is budgeted": with([]string{agent("  budget: {maxReclosed: 100%}\n")}),
		},
	},
	"budget-is-none": {
		bad: map[string]*World{"0": with([]string{agent("  existingNodes: Close\n  budget: {maxReclosed: 0}\n")})},
		good: map[string]*World{
			"1":      with([]string{agent("  existingNodes: Close\n  budget: {maxReclosed: 1}\n")}),
			"paused": with([]string{agent("  existingNodes: Close\n  mode: Paused\n  budget: {maxReclosed: 0}\n")}),
		},
	},
	"no-boot-evidence": {
		bad:  map[string]*World{"a label": with([]string{labelled})},
		good: map[string]*World{"a pod": with([]string{agent("")}), "once": with([]string{labelled + "  reclosePolicy: Never\n"})},
	},
	"selects-no-node": {
		bad:  map[string]*World{"none": with([]string{by("{matchLabels: {no: such}}")})},
		good: map[string]*World{"one": with([]string{by("{matchLabels: {a: b}}")})},
	},
}

const (
	otherGate = "metadata: {name: other}\nspec:\n  nodeSelector: {}\n  taint: {key: example.com/b, effect: NoSchedule}\n  openWhen: [{name: pod, daemonSet: {namespace: kube-system, name: other}}]\n"
	cilium    = "metadata: {name: agent}\nspec:\n  nodeSelector: {}\n  taint: {key: example.com/a, effect: NoSchedule}\n  openWhen: [{name: pod, daemonSet: {namespace: kube-system, name: cilium}}]\n"
)

var part = daemon("agent", func(ds *gate.DaemonSet) { ds.Labels = labels.Set{partOf: "net"} })

func config(pairs ...string) func(*World) {
	return func(w *World) {
		config := make(map[string]string)
		for i := 0; i < len(pairs); i += 2 {
			config[pairs[i]] = pairs[i+1]
		}
		w.CiliumConfigs = map[string]map[string]string{"kube-system": config}
	}
}

func found(w *World, id string) (what []string) {
	for _, f := range Of(w).Findings {
		if f.ID == id && f.Gate == "agent" {
			what = append(what, f.What)
		}
	}
	return what
}

// Every rule has one finding in each bad case, and none in the good cases.
func TestRules(t *testing.T) {
	for _, rule := range Rules {
		c, has := cases[rule.ID]
		if !has {
			c, has = neighbourCases[rule.ID]
		}
		if !has {
			c = groupCases[rule.ID]
		}
		if len(c.bad) == 0 || len(c.good) == 0 {
			t.Errorf("rule %s has no bad and good case", rule.ID)
		}
		for name, w := range c.bad {
			if what := found(w, rule.ID); len(what) != 1 {
				t.Errorf("%s: %s: finds %q", rule.ID, name, what)
			}
		}
		for name, w := range c.good {
			if what := found(w, rule.ID); len(what) > 0 {
				t.Errorf("%s: %s: finds %q", rule.ID, name, what)
			}
		}
	}
}

// A kind that could not be read is reported with the findings that may be missing, and no
// rule treats it as empty.
func TestGaps(t *testing.T) {
	kinds := []Kind{TaintKeys, ReadinessRules, Nodes, DaemonSets, Deployments, NodePools, CiliumConfig, StatefulSets, CronJobs, DeschedulerPolicies, ResourceFlavors}
	w := with([]string{agent("  existingNodes: Close\n")}, func(w *World) {
		w.Nodes, w.DaemonSets, w.Unread = nil, &gate.DaemonSets{}, make(map[Kind]error)
		for _, kind := range kinds {
			w.Unread[kind] = errors.New("forbidden")
		}
	})
	r := Of(w)
	if len(r.Findings) > 0 {
		t.Errorf("findings %+v", r.Findings)
	}
	if len(r.Gaps) != len(kinds) {
		t.Errorf("gaps are %+v", r.Gaps)
	}
	for _, g := range r.Gaps {
		if len(g.Hides) == 0 || g.Error != "forbidden" {
			t.Errorf("gap %+v hides nothing", g)
		}
	}
}

// Only the requested gates are checked, in the context of all gates.
func TestJudged(t *testing.T) {
	w := with([]string{agent(""), otherGate}, daemonSets(daemon("agent", tolerating(key("example.com/a"))), daemon("other", tolerating(key("example.com/b")))))
	w.Checked = map[string]bool{"other": true}
	r := Of(w)
	if !slices.Equal(r.Gates, []string{"other"}) || !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.ID == "gates-deadlock" }) {
		t.Errorf("checked %v, findings %+v", r.Gates, r.Findings)
	}
	for _, f := range r.Findings {
		if f.Gate != "other" {
			t.Errorf("finding %+v", f)
		}
	}
}

// The API rejects recloseTaint, reclosePolicy and existingNodes in a gate with closeWhen, and
// reclosePolicy does not affect existing nodes.
func TestFixesForCloseWhen(t *testing.T) {
	for id, want := range map[string][]string{
		"reclose-with-startup-key": {"A gate with closeWhen has neither: ", "OnReboot (a node that reboots is starting again), and existingNodes to Ignore or Adopt"},
		"budget-is-none":           {"A gate with closeWhen has neither: "},
	} {
		for _, rule := range Rules {
			for _, text := range want {
				if rule.ID == id && !strings.Contains(rule.Do, text) {
					t.Errorf("%s: the fix %q does not contain %q", id, rule.Do, text)
				}
			}
		}
	}
}

// commandInMessage matches a command, which messages quote and pages write as code.
var commandInMessage = regexp.MustCompile(`'(kubectl [^']*)'`)

// docs/lint.md has a section about each rule, with its severity, fix and what it reads, and no
// other.
func TestEveryRuleIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/lint.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented, want []string
	sections := make(map[string]string)
	for _, section := range strings.Split(string(page), "\n### ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		documented = append(documented, title)
		sections[title] = strings.Join(strings.Fields(text), " ")
	}
	for _, rule := range Rules {
		title := fmt.Sprintf("%s (%s)", rule.ID, rule.Severity)
		want = append(want, title)
		var kinds []string
		for _, kind := range rule.Needs {
			kinds = append(kinds, string(kind))
		}
		reads := cmp.Or(strings.Join(kinds, ", "), "only the gates")
		for _, text := range []string{"- **Do:** " + commandInMessage.ReplaceAllString(rule.Do, "`$1`"), "- **Reads:** " + reads + "."} {
			if !strings.Contains(sections[title], text) {
				t.Errorf("docs/lint.md: %s: missing: %s", rule.ID, text)
			}
		}
	}
	if !slices.Equal(documented, want) {
		t.Errorf("docs/lint.md has the rules\n%v\nwant\n%v", documented, want)
	}
}
