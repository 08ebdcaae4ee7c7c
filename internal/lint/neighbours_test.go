// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/internal/descheduler"
)

// descheduling adds a policy that enables the plugin with some arguments.
func descheduling(arguments string, more ...string) func(*World) {
	p, err := descheduler.Parse("apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n" + strings.Join(more, "\n") + `
profiles:
- name: default
  pluginConfig: [{name: RemovePodsViolatingNodeTaints, args: ` + arguments + `}]
  plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}
`)
	if err != nil {
		panic(err)
	}
	p.ConfigMap = "kube-system/descheduler"
	return func(w *World) { w.DeschedulerPolicies = append(w.DeschedulerPolicies, *p) }
}

// resourceFlavor adds a ResourceFlavor.
func resourceFlavor(spec string) func(*World) {
	var u unstructured.Unstructured
	if err := yaml.Unmarshal([]byte("metadata: {name: tas}\nspec: "+spec), &u.Object); err != nil {
		panic(err)
	}
	return func(w *World) { w.ResourceFlavors = append(w.ResourceFlavors, u) }
}

// spread returns a pod spec with a strict constraint.
func spread(topologyKey string, change ...func(*corev1.PodSpec)) corev1.PodSpec {
	pod := corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: topologyKey, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{},
	}}}
	for _, c := range change {
		c(&pod)
	}
	return pod
}

func taintsPolicy(p corev1.NodeInclusionPolicy) func(*corev1.PodSpec) {
	return func(pod *corev1.PodSpec) { pod.TopologySpreadConstraints[0].NodeTaintsPolicy = &p }
}

func spreadDeployment(pod corev1.PodSpec) func(*World) {
	return deployments(deployment("web", func(d *appsv1.Deployment) { d.Spec.Template.Spec = pod }))
}

// inZones replaces the nodes by two in each of the zones a and b, with their hostnames.
func inZones(w *World) {
	w.Nodes = nil
	for name, zone := range map[string]string{"a1": "a", "a2": "a", "b1": "b", "b2": "b"} {
		w.Nodes = append(w.Nodes, node(name, labels.Set{"zone": zone, hostname: name}))
	}
}

// withControlPlane adds a control plane, on which no pod without a toleration runs.
func withControlPlane(zone string) func(*World) {
	return func(w *World) {
		w.Nodes = append(w.Nodes, node("cp", labels.Set{"zone": zone, hostname: "cp"}, corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}))
	}
}

const (
	hostname = corev1.LabelHostname
	once     = "  reclosePolicy: Never\n"
	existing = "  existingNodes: Close\n"
	closing  = "metadata: {name: agent}\nspec:\n  nodeSelector: {}\n  taint: {key: example.com/a, effect: NoSchedule}\n  closeWhen: [{name: l, label: {key: l}}]\n"
	reclosed = "  recloseTaint: {key: example.com/b, effect: NoSchedule}\n"
	// outOfService is a gate that closes only on nodes that are unreachable.
	outOfService = "metadata: {name: agent}\nspec:\n  nodeSelector: {}\n  taint: {key: node.kubernetes.io/out-of-service, effect: NoExecute}\n  closeWhen: [{name: l, label: {key: l}}]\n  acknowledge: [VolumeDetach]\n"
)

// effect returns the gate agent with another effect.
func effect(name, more string) string { return strings.Replace(agent(more), "NoSchedule", name, 1) }

// neighbourCases contains the cases of the rules about controllers that read taints.
var neighbourCases = map[string]ruleCases{
	"descheduler-evicts": {
		bad: map[string]*World{
			"after a regression":    with([]string{agent(onRegression)}, descheduling("{}")),
			"after a reboot":        with([]string{agent("")}, descheduling("{}")),
			"existing nodes":        with([]string{agent(once + existing)}, descheduling("{}")),
			"closeWhen":             with([]string{closing}, descheduling("{}")),
			"another key":           with([]string{agent("")}, descheduling("{excludedTaints: [example.com/b]}")),
			"the second taint":      with([]string{agent(reclosed)}, descheduling("{excludedTaints: [example.com/a]}")),
			"included":              with([]string{agent("")}, descheduling("{includedTaints: [example.com/a]}")),
			"PreferNoSchedule":      with([]string{effect("PreferNoSchedule", onRegression)}, descheduling("{includePreferNoSchedule: true}")),
			"the nodes of the gate": with([]string{by("{matchLabels: {a: b}}")}, descheduling("{}", "nodeSelector: a=b")),
			"no nodes yet":          with([]string{by("{matchLabels: {a: c}}")}, descheduling("{}", "nodeSelector: a=b")),
			"one of two policies":   with([]string{agent("")}, descheduling("{excludedTaints: [example.com/a]}"), descheduling("{}")),
		},
		good: map[string]*World{
			"no policy":         with([]string{agent(onRegression)}),
			"excluded":          with([]string{agent(onRegression)}, descheduling("{excludedTaints: [example.com/a]}")),
			"not included":      with([]string{agent(onRegression)}, descheduling("{includedTaints: [example.com/b]}")),
			"only new nodes":    with([]string{agent(once)}, descheduling("{}")),
			"other nodes":       with([]string{by("{matchLabels: {a: b}}")}, descheduling("{}", "nodeSelector: a!=b")),
			"NoExecute":         with([]string{effect("NoExecute", onRegression)}, descheduling("{}")),
			"PreferNoSchedule":  with([]string{effect("PreferNoSchedule", onRegression)}, descheduling("{}")),
			"paused":            with([]string{agent(onRegression + "  mode: Paused\n")}, descheduling("{}")),
			"its second taint":  with([]string{agent(reclosed)}, descheduling("{excludedTaints: [example.com/b]}")),
			"plugin is unknown": with([]string{agent("")}, func(w *World) { w.DeschedulerPolicies = []descheduler.Policy{{Nodes: labels.Everything()}} }),
		},
	},
	"kueue-replaces-nodes": {
		bad: map[string]*World{
			"after a regression":    with([]string{agent(onRegression)}, resourceFlavor("{topologyName: t, nodeLabels: {a: b}}")),
			"closeWhen":             with([]string{closing}, resourceFlavor("{topologyName: t, nodeLabels: {a: b}}")),
			"existing nodes":        with([]string{agent(once + existing)}, resourceFlavor("{topologyName: t, nodeLabels: {a: b}}")),
			"another toleration":    with([]string{agent(onRegression)}, resourceFlavor("{topologyName: t, nodeLabels: {a: b}, tolerations: [{key: example.com/b, operator: Exists}]}")),
			"only nodeTaints":       with([]string{agent(onRegression)}, resourceFlavor("{topologyName: t, nodeLabels: {a: b}, nodeTaints: [{key: example.com/a, effect: NoSchedule}]}")),
			"tolerates for a while": with([]string{effect("NoExecute", onRegression)}, resourceFlavor("{topologyName: t, nodeLabels: {a: b}, tolerations: [{key: example.com/a, operator: Exists, effect: NoExecute, tolerationSeconds: 60}]}")),
		},
		good: map[string]*World{
			"no topology":         with([]string{agent(onRegression)}, resourceFlavor("{nodeLabels: {a: b}}")),
			"other nodes":         with([]string{agent(onRegression)}, resourceFlavor("{topologyName: t, nodeLabels: {a: c}}")),
			"not the gate's":      with([]string{strings.Replace(agent(onRegression), "nodeSelector: {}", "nodeSelector: {matchLabels: {c: d}}", 1)}, resourceFlavor("{topologyName: t, nodeLabels: {a: b}}")),
			"it tolerates":        with([]string{agent(onRegression)}, resourceFlavor("{topologyName: t, nodeLabels: {a: b}, tolerations: [{key: example.com/a, operator: Exists}]}")),
			"only after a reboot": with([]string{agent("")}, resourceFlavor("{topologyName: t, nodeLabels: {a: b}}")),
			"PreferNoSchedule":    with([]string{effect("PreferNoSchedule", onRegression)}, resourceFlavor("{topologyName: t, nodeLabels: {a: b}}")),
			"on lost nodes":       with([]string{outOfService}, resourceFlavor("{topologyName: t, nodeLabels: {a: b}}")),
			"paused":              with([]string{agent(onRegression + "  mode: Paused\n")}, resourceFlavor("{topologyName: t, nodeLabels: {a: b}}")),
		},
	},
	"spread-counts-closed-nodes": {
		bad: map[string]*World{
			"over nodes":           with([]string{agent("")}, inZones, spreadDeployment(spread(hostname))),
			"over zones":           with([]string{agent("")}, inZones, spreadDeployment(spread("zone"))),
			"explicitly":           with([]string{agent("")}, inZones, spreadDeployment(spread(hostname, taintsPolicy(corev1.NodeInclusionPolicyIgnore)))),
			"all of one zone":      with([]string{by("{matchLabels: {zone: a}}")}, inZones, spreadDeployment(spread("zone"))),
			"except control plane": with([]string{by("{matchLabels: {zone: a}}")}, inZones, withControlPlane("a"), spreadDeployment(spread("zone"))),
			"a StatefulSet": with([]string{agent("")}, inZones, func(w *World) {
				w.StatefulSets = []appsv1.StatefulSet{{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "db"}}}
				w.StatefulSets[0].Spec.Template.Spec = spread(hostname)
			}),
			"tolerates one of two": with([]string{agent(reclosed)}, inZones, spreadDeployment(spread(hostname, func(p *corev1.PodSpec) { p.Tolerations = []corev1.Toleration{key("example.com/a")} }))),
		},
		good: map[string]*World{
			"honors taints":  with([]string{agent("")}, inZones, spreadDeployment(spread(hostname, taintsPolicy(corev1.NodeInclusionPolicyHonor)))),
			"it tolerates":   with([]string{agent("")}, inZones, spreadDeployment(spread(hostname, func(p *corev1.PodSpec) { p.Tolerations = everything }))),
			"soft":           with([]string{agent("")}, inZones, spreadDeployment(spread(hostname, func(p *corev1.PodSpec) { p.TopologySpreadConstraints[0].WhenUnsatisfiable = corev1.ScheduleAnyway }))),
			"counts no pods": with([]string{agent("")}, inZones, spreadDeployment(spread(hostname, func(p *corev1.PodSpec) { p.TopologySpreadConstraints[0].LabelSelector = nil }))),
			"no constraint":  with([]string{agent("")}, inZones, spreadDeployment(corev1.PodSpec{})),
			"other nodes":    with([]string{by("{matchLabels: {zone: a}}")}, inZones, spreadDeployment(spread(hostname, func(p *corev1.PodSpec) { p.NodeSelector = map[string]string{"zone": "b"} }))),
			"dedicated nodes": with([]string{by("{matchLabels: {zone: a}}")}, nodes(node("a1", labels.Set{hostname: "a1", "zone": "a"}, dedicated(corev1.TaintEffectNoSchedule)),
				node("b1", labels.Set{hostname: "b1", "zone": "b"}), node("b2", labels.Set{hostname: "b2", "zone": "b"})), spreadDeployment(spread(hostname))),
			"a part of a zone": with([]string{by("{matchLabels: {" + hostname + ": a1}}")}, inZones, spreadDeployment(spread("zone"))),
			"one zone":         with([]string{agent("")}, inZones, spreadDeployment(spread("zone", func(p *corev1.PodSpec) { p.NodeSelector = map[string]string{"zone": "b"} }))),
			"no such label":    with([]string{agent("")}, inZones, spreadDeployment(spread("rack"))),
			"PreferNoSchedule": with([]string{effect("PreferNoSchedule", "")}, inZones, spreadDeployment(spread(hostname))),
			"paused":           with([]string{agent("  mode: Paused\n")}, inZones, spreadDeployment(spread(hostname))),
			"on lost nodes":    with([]string{outOfService}, inZones, spreadDeployment(spread(hostname))),
		},
	},
}

// A finding about the descheduler contains the list to configure, and says when it evicts.
func TestDeschedulerFinding(t *testing.T) {
	for _, c := range []struct {
		gate, arguments string
		want            []string
	}{
		{agent(""), "{excludedTaints: [example.com/c]}", []string{
			"profile default of the descheduler (ConfigMap kube-system/descheduler)", "example.com/a:NoSchedule", "nodes that have rebooted",
			"excludedTaints: [example.com/c, example.com/a]",
		}},
		{closing, "{}", []string{"nodes in use", "excludedTaints: [example.com/a]"}},
		{agent(onRegression + reclosed), "{includedTaints: [example.com/b, c]}", []string{"example.com/b:NoSchedule", "its includedTaints are [example.com/b, c]: remove example.com/b"}},
	} {
		what := strings.Join(found(with([]string{c.gate}, descheduling(c.arguments)), "descheduler-evicts"), "\n")
		for _, want := range c.want {
			if !strings.Contains(what, want) {
				t.Errorf("finding %q does not contain %q", what, want)
			}
		}
	}
}

// All workloads are in one finding.
func TestSpreadFinding(t *testing.T) {
	var all []appsv1.Deployment
	for _, name := range []string{"a", "b", "c", "d"} {
		all = append(all, deployment(name, func(d *appsv1.Deployment) { d.Spec.Template.Spec = spread(hostname) }))
	}
	what := found(with([]string{agent("")}, inZones, deployments(all...)), "spread-counts-closed-nodes")
	if len(what) != 1 || !strings.Contains(what[0], "4 workloads count nodes") || !strings.Contains(what[0], "Deployment kube-system/a, ") || !strings.Contains(what[0], "and 1 more") {
		t.Errorf("finds %q", what)
	}
}
