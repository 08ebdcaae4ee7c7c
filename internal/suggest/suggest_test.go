// SPDX-License-Identifier: Apache-2.0

package suggest_test

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gatefile"
	"github.com/nodegate/nodegate/internal/preview"
	"github.com/nodegate/nodegate/internal/printer"
	"github.com/nodegate/nodegate/internal/suggest"
	"github.com/nodegate/nodegate/presets"
)

// asGate returns a manifest of a gate with these signals, in YAML.
func asGate(name, key, signals string) string {
	return "# " + name + ": a gate for tests.\napiVersion: nodegate.dev/v1alpha1\nkind: NodeGate\nmetadata: {name: " + name + "}\nspec:\n" +
		"  nodeSelector: {matchLabels: {kubernetes.io/os: linux}}\n  taint: {key: " + key + ", effect: NoSchedule}\n  openWhen:\n  " + signals + "\n"
}

// The presets of the tests.
var (
	netPreset = asGate("net", "node.cilium.io/agent-not-ready", "- {name: agent, daemonSet: {namespace: kube-system, name: net-agent}}")
	meshOne   = asGate("mesh", "example.com/mesh", "- {name: cni, daemonSet: {namespace: mesh, name: mesh-cni}}")
	meshTwo   = asGate("mesh-ambient", "example.com/mesh-ambient", "- {name: cni, daemonSet: {namespace: mesh, name: mesh-cni}}\n  - {name: tunnel, daemonSet: {namespace: mesh, name: tunnel}}")
	gpuPreset = asGate("acme-gpu", "example.com/gpu", "- {name: gpus, resource: {name: gpu.acme.com/gpu}}")
	diskA     = asGate("disk-a", "example.com/disk-a", "- {name: driver, daemonSet: {namespace: kube-system, name: disk-a-node}}\n  - {name: limit, csiDriver: {name: disk-a.example.com}}")
	labelled  = asGate("required", "example.com/required", "- {name: required, daemonSets: {namespaces: [kube-system], selector: {matchLabels: {example.com/required: \"true\"}}}}")
	testOnes  = []string{netPreset, meshOne, meshTwo, gpuPreset, diskA, labelled}
)

func asPresets(t *testing.T, texts ...string) (all []suggest.Preset) {
	t.Helper()
	for _, text := range texts {
		g := clitest.Decode(t, text)[0]
		all = append(all, suggest.Preset{Name: g.Name, Text: text, Gate: g})
	}
	return all
}

// daemonSet returns a DaemonSet. pod is its pod's spec, in YAML.
func daemonSet(t *testing.T, name, pod string, labels ...string) appsv1.DaemonSet {
	t.Helper()
	namespace, short, _ := strings.Cut(name, "/")
	ds := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: short, UID: types.UID(name), Labels: map[string]string{}}}
	for _, label := range labels {
		ds.Labels[label] = "true"
	}
	ds.Spec.Template.Labels = ds.Labels
	if err := yaml.UnmarshalStrict([]byte(pod), &ds.Spec.Template.Spec); err != nil {
		t.Fatal(err)
	}
	return ds
}

// Pod specs.
const (
	toleratesAll = "tolerations: [{operator: Exists}]\n"
	plain        = "containers: [{name: main, image: example.com/main}]\n"
)

// mounts returns a pod spec that mounts a hostPath.
func mounts(at string, readOnly bool) string {
	return fmt.Sprintf("containers: [{name: main, image: example.com/main, volumeMounts: [{name: host, mountPath: /host, readOnly: %t}]}]\nvolumes: [{name: host, hostPath: {path: %s}}]\n", readOnly, at)
}

// registers returns a pod spec with a registrar of a CSI driver.
func registers(driver string) string {
	return "containers:\n- {name: driver, image: example.com/driver}\n- name: registrar\n  image: registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.15.0\n" +
		"  args: [--csi-address=/csi/csi.sock, --kubelet-registration-path=$(SOCKET)]\n  env: [{name: SOCKET, value: /var/lib/kubelet/plugins/" + driver + "/csi.sock}]\n"
}

// world returns a world with the presets of the tests and three nodes, one of which is
// recent.
func world(t *testing.T, sets ...appsv1.DaemonSet) *suggest.World {
	t.Helper()
	w := &suggest.World{Now: clitest.Now, Presets: asPresets(t, testOnes...), DaemonSets: sets, CSIDrivers: map[string]bool{"disk-a.example.com": true, "disk-b.example.com": true}}
	for i, age := range []time.Duration{time.Hour, 2 * time.Hour, 48 * time.Hour} {
		w.Nodes = append(w.Nodes, &gate.Node{Name: fmt.Sprintf("n%d", i+1), UID: "uid", BootID: "b", Created: clitest.Now.Add(-age), Labels: map[string]string{corev1.LabelOSStable: "linux"}})
	}
	return w
}

// previewed adds the previews, as the command does. change is applied to the facts of each node.
func previewed(t *testing.T, w *suggest.World, r *suggest.Report, change ...func(*gate.Facts)) {
	t.Helper()
	sets := &gate.DaemonSets{Observed: map[string]bool{}}
	for i := range w.DaemonSets {
		ds := &w.DaemonSets[i]
		sets.Observed[ds.Namespace] = true
		sets.Items = append(sets.Items, gate.DaemonSet{Namespace: ds.Namespace, Name: ds.Name, UID: ds.UID, Labels: ds.Labels, Tolerations: ds.Spec.Template.Spec.Tolerations})
	}
	slices.SortFunc(sets.Items, func(a, b gate.DaemonSet) int { return strings.Compare(a.String(), b.String()) })
	pw := &preview.World{Now: w.Now, Declared: w.Gates, Policy: w.Policy}
	for _, n := range w.Nodes {
		facts := gate.Facts{Node: *n, DaemonSets: sets}
		for _, f := range change {
			f(&facts)
		}
		pw.Nodes = append(pw.Nodes, facts)
	}
	c := preview.Change{DaemonSets: r.Labelled(sets)}
	for i := range r.Suggestions {
		if s := &r.Suggestions[i]; s.Manifest != "" {
			c.Apply = append(c.Apply, clitest.Decode(t, s.Manifest)...)
		} else {
			for _, g := range w.Gates {
				if g.Name == s.Gate {
					c.Apply = append(c.Apply, g)
				}
			}
		}
	}
	r.SetPreview(preview.Of(pw, c))
}

// testdata contains the text, the data and the gates for a cluster in which DaemonSets need
// all kinds of suggestions, for one without anything to suggest, and for one about which
// little is known.
func TestOutput(t *testing.T) {
	full := world(t,
		daemonSet(t, "kube-system/net-agent", mounts("/etc/cni/net.d/", false)+toleratesAll),
		daemonSet(t, "kube-system/disk-b-node", registers("disk-b.example.com")+"nodeSelector: {kubernetes.io/os: linux}\n"),
		daemonSet(t, "kube-system/fpga", mounts("/var/lib/kubelet/device-plugins", false)),
		daemonSet(t, "kube-system/proxy", plain+"priorityClassName: system-node-critical\n"),
		daemonSet(t, "mesh/node-critical", plain+"priorityClassName: system-node-critical\n"),
		daemonSet(t, "logging/shipper", mounts("/var/log", true)+toleratesAll),
		daemonSet(t, "kube-system/dns", "hostNetwork: true\ncontainers: [{name: cache, image: example.com/cache, ports: [{containerPort: 53, protocol: UDP}]}]\n", "example.com/required"),
		daemonSet(t, "other/paused", plain),
	)
	affine := daemonSet(t, "net/net-agent", mounts("/etc/cni/net.d/", false)+toleratesAll+
		"affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [a]}]}, {matchExpressions: [{key: b, operator: Exists}]}]}}}\n")
	multi := affine.DeepCopy()
	multi.Name, multi.Labels = "multi", map[string]string{"app": "multi", "version": "1"}
	multi.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "multi"}}
	bare := affine.DeepCopy()
	bare.Name = "bare"
	elsewhere := world(t, affine, *multi, *bare, daemonSet(t, "mesh/mesh-cni", plain+toleratesAll), daemonSet(t, "mesh/tunnel", plain))
	elsewhere.DaemonSets[4].Status.ObservedGeneration = 1
	elsewhere.Gates = clitest.Decode(t, asGate("net", "example.com/net", "- {name: s, label: {key: fit}}"))
	full.Gates = clitest.Decode(t, labelled, asGate("paused", "example.com/paused", "- {name: s, daemonSet: {namespace: other, name: paused}}\n  mode: Paused"))
	full.Policy.Allowed = gate.AllowedTaints{{Key: "example.com/required", Effect: corev1.TaintEffectNoSchedule}: true, {Key: "node.cilium.io/agent-not-ready", Effect: corev1.TaintEffectNoSchedule}: true}
	nothing := world(t, daemonSet(t, "logging/shipper", plain))
	little := world(t, daemonSet(t, "kube-system/net-agent", plain))
	little.Nodes, little.CSIDrivers = nil, nil
	little.Unread = []suggest.Gap{{What: "Nodes", Error: "listing nodes: forbidden", Hides: "the order of starts, and which nodes gates and presets select"}}
	for name, w := range map[string]*suggest.World{"full": full, "elsewhere": elsewhere, "nothing": nothing, "little": little} {
		t.Run(name, func(t *testing.T) {
			r := suggest.Of(w)
			if w.Nodes != nil {
				previewed(t, w, r)
			}
			clitest.Golden(t, name+".txt", r.Text())
			clitest.Golden(t, name+".gates.yaml", r.Gates(false))
			raw, err := printer.JSON(r)
			if err != nil {
				t.Fatal(err)
			}
			clitest.Golden(t, name+".json", string(raw))
		})
	}
}

// The preview of a label compares the cluster without the label with the one that has it: the
// gate would close on nodes on which it is open, and evict pods.
func TestPreviewOfLabels(t *testing.T) {
	gates := clitest.Decode(t, strings.Replace(labelled, "NoSchedule", "NoExecute", 1)+"  acknowledge: [PodEviction]\n  reclosePolicy: OnRegression\n  budget: {maxReclosed: \"100%\"}\n")
	w := world(t, daemonSet(t, "kube-system/x", mounts("/etc/cni/net.d/", false)+toleratesAll))
	w.Presets, w.Gates = nil, gates
	for _, n := range w.Nodes {
		n.Records = map[string]string{"required": `{"state":"Open","reason":"SignalsHold","since":"2026-03-01T02:10:00Z","boot":"b","taint":"example.com/required:NoExecute","source":"crd"}`}
	}
	r := suggest.Of(w)
	previewed(t, w, r, func(f *gate.Facts) { f.Pods = map[gate.PodQuery][]gate.Pod{{}: {}} }) // it has no pods
	p := r.Suggestions[0].Preview
	if p == nil || p.Action != preview.Keep || len(p.Groups) != 1 || p.Groups[0].What != preview.Lapses || p.Groups[0].Anyway || p.Evictions == nil {
		t.Fatalf("the preview is %+v", p)
	}
	if text := r.Text(); !strings.Contains(text, "3 of the 3 existing nodes that the gate selects would change") || strings.Contains(text, "also without the change") {
		t.Errorf("the text is\n%s", text)
	}
}

// ownAgent returns nodegate's agent as it is installed.
func ownAgent(t *testing.T) (agent appsv1.DaemonSet) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/agent/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if strings.Contains(document, "\nkind: DaemonSet\n") {
			if err := yaml.UnmarshalStrict([]byte(document), &agent); err != nil {
				t.Fatal(err)
			}
		}
	}
	if agent.Namespace != metav1.NamespaceSystem || agent.Spec.Template.Spec.PriorityClassName != "system-node-critical" {
		t.Fatalf("the agent is %+v", agent)
	}
	return agent
}

// summary returns a suggestion in a short form.
func summary(s *suggest.Suggestion) string {
	text := fmt.Sprintf("%s: %s %s %s", strings.Join(s.DaemonSets, "+"), s.Certainty, s.Use, s.Gate)
	for _, e := range s.Why {
		if e.Kind != suggest.KnownByPreset {
			text += " " + string(e.Kind)
		}
	}
	return text
}

func TestSuggestions(t *testing.T) {
	always := "kube-system/x"
	for name, c := range map[string]struct {
		sets []appsv1.DaemonSet
		want []string
	}{
		"a preset":                                {[]appsv1.DaemonSet{daemonSet(t, "kube-system/net-agent", plain)}, []string{"kube-system/net-agent: Certain Preset net"}},
		"a preset, elsewhere":                     {[]appsv1.DaemonSet{daemonSet(t, "net/net-agent", plain)}, []string{"net/net-agent: Likely Preset net"}},
		"a preset, elsewhere, but it is a CNI":    {[]appsv1.DaemonSet{daemonSet(t, "net/net-agent", mounts("/opt/cni/bin", false))}, []string{"net/net-agent: Certain Preset net CNI"}},
		"the preset of one of two":                {[]appsv1.DaemonSet{daemonSet(t, "mesh/mesh-cni", plain)}, []string{"mesh/mesh-cni: Certain Preset mesh"}},
		"the preset of both":                      {[]appsv1.DaemonSet{daemonSet(t, "mesh/mesh-cni", plain), daemonSet(t, "mesh/tunnel", plain)}, []string{"mesh/mesh-cni+mesh/tunnel: Certain Preset mesh-ambient"}},
		"a renamed CSI driver of a preset":        {[]appsv1.DaemonSet{daemonSet(t, "disks/renamed", registers("disk-a.example.com"))}, []string{"disks/renamed: Certain Preset disk-a CSI"}},
		"a CSI driver":                            {[]appsv1.DaemonSet{daemonSet(t, always, registers("disk-b.example.com"))}, []string{"kube-system/x: Likely NodeGate x CSI"}},
		"a CSI driver without a CSIDriver object": {[]appsv1.DaemonSet{daemonSet(t, always, registers("disk-c.example.com"))}, []string{"kube-system/x: Likely NodeGate x CSI"}},
		"a device plugin of a preset":             {[]appsv1.DaemonSet{daemonSet(t, "gpu/acme-plugin", mounts("/var/lib/kubelet/device-plugins", false))}, []string{"gpu/acme-plugin: Certain Preset acme-gpu DevicePlugin"}},
		"another device plugin":                   {[]appsv1.DaemonSet{daemonSet(t, "gpu/other", mounts("/var/lib/kubelet/device-plugins", false))}, []string{"gpu/other: Likely NodeGate other DevicePlugin"}},
		"a kubelet plugin":                        {[]appsv1.DaemonSet{daemonSet(t, always, mounts("/var/lib/kubelet/plugins_registry", false))}, []string{"kube-system/x: Likely NodeGate x KubeletPlugin"}},
		"a DNS server":                            {[]appsv1.DaemonSet{daemonSet(t, always, "containers: [{name: c, image: i, ports: [{containerPort: 5353, hostPort: 53}]}]")}, []string{"kube-system/x: Likely NodeGate x DNS"}},
		"a DNS server in the pod network":         {[]appsv1.DaemonSet{daemonSet(t, always, "containers: [{name: c, image: i, ports: [{containerPort: 53}]}]")}, nil},
		"a reader of the CNI configuration":       {[]appsv1.DaemonSet{daemonSet(t, always, mounts("/etc/cni/net.d", true))}, nil},
		"the label of a preset":                   {[]appsv1.DaemonSet{daemonSet(t, always, plain, "example.com/required")}, []string{"kube-system/x: Certain Preset required"}},
		"the label, in another namespace":         {[]appsv1.DaemonSet{daemonSet(t, "other/x", plain, "example.com/required")}, nil},
		"the same name twice": {[]appsv1.DaemonSet{daemonSet(t, "a/x", mounts("/opt/cni/bin", false)), daemonSet(t, "b/x", mounts("/opt/cni/bin", false))},
			[]string{"a/x: Likely NodeGate x CNI", "b/x: Likely NodeGate b-x CNI"}},
		"a long name with dots": {[]appsv1.DaemonSet{daemonSet(t, "a/"+strings.Repeat("long.", 20)+"x", mounts("/opt/cni/bin", false))},
			[]string{"a/" + strings.Repeat("long.", 20) + "x: Likely NodeGate " + strings.Repeat("long-", 12) + "lon CNI"}},
		"nodegate's own agent": {[]appsv1.DaemonSet{ownAgent(t)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := suggest.Of(world(t, c.sets...))
			var got []string
			for i := range r.Suggestions {
				s := &r.Suggestions[i]
				got = append(got, summary(s))
				if s.Manifest == "" || clitest.Decode(t, s.Manifest)[0].Name != s.Gate {
					t.Errorf("the manifest is %s", s.Manifest)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// pod is a pod on a node that was created at minute 0. Times are in seconds after that; 0 is
// unknown.
type pod struct {
	name                          string
	bound, started, ready, failed int
	daemon                        string
	restarted                     bool
	// init is the start of an init container, which failed at initFailed before it succeeded.
	init, initFailed int
}

func TestOrderOfStarts(t *testing.T) {
	created := clitest.Now.Add(-time.Hour)
	daemon := func(ready int) pod {
		return pod{name: "daemon", bound: 1, started: 2, ready: ready, daemon: "kube-system/x"}
	}
	for name, c := range map[string]struct {
		on1, on2 []pod
		want     []string
	}{
		"waited on two nodes": {[]pod{daemon(30), {name: "web", bound: 10, started: 31}}, []pod{daemon(30), {name: "db", bound: 10, started: 40}},
			[]string{"kube-system/x: Likely NodeGate x StartOrder"}},
		"waited on one node":             {[]pod{daemon(30), {name: "web", bound: 10, started: 31}}, []pod{daemon(30)}, []string{"kube-system/x: Possible NodeGate x StartOrder"}},
		"failed on both nodes":           {[]pod{daemon(30), {name: "web", bound: 10, started: 12, failed: 15}}, []pod{daemon(30), {name: "web", bound: 10, started: 12, failed: 15}}, []string{"kube-system/x: Likely NodeGate x Failures"}},
		"an init container did not wait": {[]pod{daemon(30), {name: "web", bound: 10, init: 12, started: 31}}, []pod{daemon(30), {name: "db", bound: 10, init: 12, started: 31}}, nil},
		"an init container waited": {[]pod{daemon(30), {name: "web", bound: 10, init: 31, started: 33}}, []pod{daemon(30), {name: "db", bound: 10, init: 31, started: 33}},
			[]string{"kube-system/x: Likely NodeGate x StartOrder"}},
		"an init container failed": {[]pod{daemon(30), {name: "web", bound: 10, init: 12, initFailed: 15, started: 36}}, []pod{daemon(30), {name: "db", bound: 10, init: 12, initFailed: 15, started: 36}},
			[]string{"kube-system/x: Likely NodeGate x Failures"}},
		"init container recovered":  {[]pod{daemon(30), {name: "web", bound: 10, init: 12, initFailed: 13, started: 16}}, []pod{daemon(30), {name: "db", bound: 10, init: 12, initFailed: 13, started: 16}}, nil},
		"failed later":              {[]pod{daemon(30), {name: "web", bound: 10, started: 12, failed: 35}}, nil, nil},
		"recovered before":          {[]pod{daemon(40), {name: "web", bound: 10, started: 12, failed: 15}}, []pod{daemon(40), {name: "db", bound: 10, started: 12, failed: 15}}, nil},
		"one pod did not wait":      {[]pod{daemon(30), {name: "web", bound: 10, started: 31}}, []pod{daemon(30), {name: "db", bound: 10, started: 12}}, nil},
		"bound after it was ready":  {[]pod{daemon(30), {name: "web", bound: 31, started: 32}}, nil, nil},
		"not ready":                 {[]pod{daemon(0), {name: "web", bound: 10, started: 31}}, nil, nil},
		"restarted":                 {[]pod{{name: "daemon", bound: 1, started: 2, ready: 30, daemon: "kube-system/x", restarted: true}, {name: "web", bound: 10, started: 31}}, nil, nil},
		"bound an hour later":       {[]pod{{name: "daemon", bound: 3000, started: 3001, ready: 3030, daemon: "kube-system/x"}, {name: "web", bound: 3010, started: 3031}}, nil, nil},
		"another daemon had waited": {[]pod{daemon(30), {name: "other", bound: 10, started: 31, ready: 32, daemon: "logging/shipper"}}, nil, nil},
		"another daemon explains it": {
			[]pod{daemon(30), {name: "cni", bound: 1, started: 2, ready: 29, daemon: "kube-system/net-agent"}, {name: "web", bound: 10, started: 31}}, nil,
			[]string{"kube-system/net-agent: Certain Preset net CNI StartOrder"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := world(t, daemonSet(t, "kube-system/x", plain), daemonSet(t, "logging/shipper", plain))
			if strings.HasPrefix(name, "another daemon explains") {
				w.DaemonSets = append(w.DaemonSets, daemonSet(t, "kube-system/net-agent", mounts("/opt/cni/bin", false)))
			}
			for i, pods := range [][]pod{c.on1, c.on2} {
				w.Nodes[i].Created = created
				for _, p := range pods {
					w.Pods = append(w.Pods, suggest.NewPod(p.object(w.Nodes[i].Name, created)))
				}
			}
			var got []string
			r := suggest.Of(w)
			for i := range r.Suggestions {
				got = append(got, summary(&r.Suggestions[i]))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// object returns the pod as an API server would.
func (p *pod) object(node string, created time.Time) *corev1.Pod {
	at := func(seconds int) metav1.Time {
		if seconds == 0 {
			return metav1.Time{}
		}
		return metav1.NewTime(created.Add(time.Duration(seconds) * time.Second))
	}
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: p.name, CreationTimestamp: at(p.bound)}, Spec: corev1.PodSpec{NodeName: node}}
	if p.daemon != "" {
		o.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", UID: types.UID(p.daemon), Controller: new(true)}}
	}
	o.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at(p.bound)}}
	if p.ready != 0 {
		o.Status.Conditions = append(o.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at(p.ready)})
	}
	c := corev1.ContainerStatus{Name: "main"}
	c.State.Running = &corev1.ContainerStateRunning{StartedAt: at(p.started)}
	if p.failed != 0 {
		c.RestartCount = 1
		c.State.Running.StartedAt = at(p.failed + 20)
		c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, StartedAt: at(p.started), FinishedAt: at(p.failed)}
	}
	if p.restarted {
		c.RestartCount = 1
	}
	o.Status.ContainerStatuses = []corev1.ContainerStatus{c}
	if p.init != 0 {
		c := corev1.ContainerStatus{Name: "init"}
		c.State.Terminated = &corev1.ContainerStateTerminated{StartedAt: at(p.init), FinishedAt: at(p.started - 1)}
		if p.initFailed != 0 {
			c.RestartCount = 1
			c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, StartedAt: at(p.init), FinishedAt: at(p.initFailed)}
			c.State.Terminated.StartedAt = at(p.started - 2)
		}
		o.Status.InitContainerStatuses = []corev1.ContainerStatus{c}
	}
	return o
}

// Every real preset that waits for DaemonSets by name is suggested in a cluster that has
// exactly these DaemonSets, unless another one waits for the same ones.
func TestEveryPresetIsSuggested(t *testing.T) {
	var all []suggest.Preset
	for _, name := range presets.Names() {
		text, err := presets.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		gates, err := gatefile.Declared(name, text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, suggest.Preset{Name: name, Text: string(text), Gate: *gates[0]})
	}
	found := 0
	for i := range all {
		w := world(t)
		w.Presets, w.Nodes = all, nil // any node may be selected
		seen := map[string]bool{}
		for _, s := range all[i].Gate.Spec.OpenWhen {
			sources := []v1alpha1.SignalSource{s.SignalSource}
			for _, other := range s.AnyOf {
				sources = append(sources, other.SignalSource)
			}
			for _, source := range sources {
				if ds := source.DaemonSet; ds != nil && !seen[ds.Namespace+"/"+ds.Name] {
					seen[ds.Namespace+"/"+ds.Name] = true
					w.DaemonSets = append(w.DaemonSets, daemonSet(t, ds.Namespace+"/"+ds.Name, plain))
				}
			}
		}
		if len(seen) == 0 {
			continue
		}
		found++
		r := suggest.Of(w)
		if len(r.Suggestions) != 1 || r.Suggestions[0].Use != suggest.UsePreset || r.Suggestions[0].Certainty != suggest.Certain || len(r.Suggestions[0].DaemonSets) != len(seen) {
			t.Errorf("preset %s: the suggestions for %v are %+v", all[i].Name, seen, r.Suggestions)
		}
	}
	if found < 7 {
		t.Errorf("%d presets wait for DaemonSets by name, want at least 7", found)
	}
}

// A gate covers a DaemonSet if it waits for it, or for what it provides.
func TestCoverage(t *testing.T) {
	driver := daemonSet(t, "kube-system/x", registers("disk-b.example.com"))
	plugin := daemonSet(t, "kube-system/acme-fpga", mounts("/var/lib/kubelet/device-plugins", false))
	pods := daemonSet(t, "kube-system/x", mounts("/opt/cni/bin", false), "example.com/init")
	for name, c := range map[string]struct {
		signals string
		set     appsv1.DaemonSet
		want    string
	}{
		"its name":          {"- {name: s, daemonSet: {namespace: kube-system, name: x}}", driver, "[g true ]"},
		"another namespace": {"- {name: s, daemonSet: {namespace: other, name: x}}", driver, ""},
		"an alternative":    {"- {name: s, anyOf: [{name: a, daemonSet: {namespace: kube-system, name: x}}, {name: b, label: {key: fit}}]}", driver, "[g true ]"},
		"its CSI driver":    {"- {name: s, csiDriver: {name: disk-b.example.com}}", driver, "[g true ]"},
		"its devices":       {"- {name: s, resource: {name: acme.com/fpga}}", plugin, "[g true ]"},
		"other devices":     {"- {name: s, resource: {name: other.com/fpga}}", plugin, ""},
		"its vendor's":      {"- {name: s, resource: {name: acme.com/gpu}}", plugin, ""},
		"its pods":          {"- {name: s, pods: {namespace: kube-system, selector: {matchLabels: {example.com/init: \"true\"}}}}", pods, "[g true ]"},
		"other pods":        {"- {name: s, pods: {namespace: kube-system, selector: {matchLabels: {example.com/other: \"true\"}}}}", pods, ""},
		"in dry run":        {"- {name: s, daemonSet: {namespace: kube-system, name: x}}\n  mode: DryRun", driver, "[g false its mode is DryRun]"},
	} {
		w := world(t, c.set)
		w.Gates = clitest.Decode(t, asGate("g", "example.com/g", c.signals))
		r := suggest.Of(w)
		got := ""
		for _, v := range r.Covered {
			got += fmt.Sprint([]any{v.Gate, v.InForce, v.Message})
		}
		if got != c.want || len(r.Covered)+len(r.Suggestions) != 1 {
			t.Errorf("%s: covered %q, want %q, and the suggestions are %+v", name, got, c.want, r.Suggestions)
		}
	}
}

// A device plugin provides a resource if words of its name or image say so. The registry and parts
// of words do not count, and neither does the vendor alone.
func TestDevicePlugins(t *testing.T) {
	for _, c := range []struct {
		resource, name, image string
		want                  bool
	}{
		{"nvidia.com/gpu", "nvidia-device-plugin-daemonset", "nvcr.io/nvidia/k8s-device-plugin:v0.17.0", true},
		{"nvidia.com/gpu", "plugin", "nvcr.io/nvidia/k8s-device-plugin:v0.17.0", true},
		{"nvidia.com/gpu", "nvidia-gpu-device-plugin-small-cos", "gke.gcr.io/device-plugin@sha256:00", true},
		{"nvidia.com/gpu", "rdma-shared-dp-ds", "nvcr.io/nvidia/cloud-native/k8s-rdma-shared-dev-plugin:v1.5.2", false},
		{"nvidia.com/gpu", "plugin", "nvidia/nvidia-device-plugin:v0.17.0", true},
		{"amd.com/gpu", "nvidia-gpu-device-plugin-small-cos", "gke.gcr.io/device-plugin@sha256:00", false},
		{"gpu.intel.com/i915", "intel-gpu-plugin", "intel/intel-gpu-plugin:0.32.0", true},
		{"gpu.intel.com/i915", "intel-qat-plugin", "intel/intel-qat-plugin:0.32.0", false},
		{"intel.com/intel_sriov_netdevice", "intel-qat-plugin", "intel/intel-qat-plugin:0.32.0", false},
		{"intel.com/intel_sriov_netdevice", "kube-sriov-device-plugin", "ghcr.io/k8snetworkplumbingwg/sriov-network-device-plugin:v3.9.0", true},
		{"example.com/video_card", "video-card-plugin", "plugin:v1", true},
		{"example.com/video_card", "video-decoder-plugin", "plugin:v1", false},
		{"amd.com/gpu", "x", "registry.example.com:5000/gpu-plugin-amd64:v1", false},
		{"amd.com/gpu", "x", "localhost/amd/gpu-plugin", true},
		{"aws.amazon.com/neuron", "neuron-device-plugin", "public.ecr.aws/neuron/neuron-device-plugin:2.1", true},
		{"aws.amazon.com/neuron", "aws-efa-k8s-device-plugin", "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/aws-efa-k8s-device-plugin:v0.5.3", false},
		{"vpc.amazonaws.com/efa", "aws-efa-k8s-device-plugin", "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/aws-efa-k8s-device-plugin:v0.5.3", true},
		{"vpc.amazonaws.com/efa", "neuron-device-plugin", "public.ecr.aws/neuron/neuron-device-plugin:2.1", false},
		{"habana.ai/gaudi", "habanalabs-device-plugin-daemonset", "vault.habana.ai/docker-k8s-device-plugin/docker-k8s-device-plugin:1.20", true},
	} {
		pod := strings.Replace(mounts("/var/lib/kubelet/device-plugins", false), "example.com/main", c.image, 1)
		w := world(t, daemonSet(t, "kube-system/"+c.name, pod))
		w.Presets = asPresets(t, asGate("p", "example.com/p", "- {name: s, resource: {name: "+c.resource+"}}"))
		if s := suggest.Of(w).Suggestions; len(s) != 1 || (s[0].Preset == "p") != c.want {
			t.Errorf("%s: %s with %s: the suggestions are %+v, want the preset: %t", c.resource, c.name, c.image, s, c.want)
		}
		w.Gates, w.Presets = clitest.Decode(t, w.Presets[0].Text), nil
		if r := suggest.Of(w); (len(r.Covered) == 1) != c.want {
			t.Errorf("%s: %s with %s: covered is %+v, want %t", c.resource, c.name, c.image, r.Covered, c.want)
		}
	}
}

// A preset that names its DaemonSet does not wait for other device plugins.
func TestDevicePluginsOfNamedDaemonSets(t *testing.T) {
	w := world(t, daemonSet(t, "kube-system/acme-plugin", mounts("/var/lib/kubelet/device-plugins", false)), daemonSet(t, "other/acme-gpu", mounts("/var/lib/kubelet/device-plugins", false)))
	w.Presets = asPresets(t, asGate("p", "example.com/p", "- {name: s, daemonSet: {namespace: kube-system, name: acme-plugin}}\n  - {name: r, resource: {name: acme.com/gpu}}"))
	var got []string
	r := suggest.Of(w)
	for i := range r.Suggestions {
		got = append(got, summary(&r.Suggestions[i]))
	}
	if want := []string{"kube-system/acme-plugin: Certain Preset p DevicePlugin", "other/acme-gpu: Likely NodeGate acme-gpu DevicePlugin"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A gate's own DaemonSets must tolerate its taint. Those of other gates must tolerate it if
// they are needed first.
func TestTolerations(t *testing.T) {
	const own, other = "kube-system/net-agent", "kube-system/x"
	tolerates := func(keys ...string) string {
		return "tolerations: [{operator: Exists, key: " + strings.Join(keys, "}, {operator: Exists, key: ") + "}]\n"
	}
	const netKey = "node.cilium.io/agent-not-ready"
	gateX := asGate("x", "example.com/x", "- {name: s, daemonSet: {namespace: kube-system, name: x}}")
	gateA := strings.ReplaceAll(strings.Replace(gateX, "name: x}", "name: a}", 1), "example.com/x", "example.com/a")
	onNodes := func(selector string) string {
		return strings.Replace(gateX, "{matchLabels: {kubernetes.io/os: linux}}", selector, 1)
	}
	elsewhere, inPool := onNodes("{matchLabels: {kubernetes.io/os: windows}}"), onNodes("{matchLabels: {pool: gpu}}")
	for name, c := range map[string]struct {
		own, other, gate string
		want             []string
	}{
		"neither tolerates anything": {"", "", gateX, []string{own + " true", other + " true"}},
		"all is tolerated":           {toleratesAll, toleratesAll, gateX, nil},
		"each tolerates its own":     {tolerates(netKey), tolerates("example.com/x"), gateX, []string{other + " true"}},
		"the other one waits":        {toleratesAll, tolerates("example.com/x"), gateX, []string{other + " false"}},
		"the same taint":             {toleratesAll, "", strings.ReplaceAll(gateX, "example.com/x", netKey), []string{other + " true"}},
		"the other gate is paused":   {toleratesAll, "", gateX + "  mode: Paused\n", nil},
		"two gates wait for it":      {tolerates(netKey, "example.com/a"), tolerates("example.com/x", "example.com/a"), gateA + "---\n" + gateX, []string{other + " true"}},
		"gates on different nodes":   {tolerates(netKey), tolerates("example.com/x"), elsewhere, nil},
		"on no existing node":        {tolerates(netKey), tolerates("example.com/x"), inPool, []string{other + " true"}},
		"its DaemonSet is elsewhere": {tolerates(netKey), tolerates("example.com/x") + "nodeSelector: {kubernetes.io/os: windows}\n", onNodes("{}"), nil},
	} {
		w := world(t, daemonSet(t, own, plain+c.own), daemonSet(t, other, plain+c.other))
		w.Gates = clitest.Decode(t, c.gate)
		r := suggest.Of(w)
		var got []string
		for _, v := range r.Suggestions[0].Tolerations {
			got = append(got, fmt.Sprint(v.DaemonSet, " ", v.Deadlock))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: tolerations %q, want %q", name, got, c.want)
		}
	}
}

// The text refers to 'kubectl gate tolerate' only if that adds one of the tolerations: it adds
// those of a gate's taints to the DaemonSets that the gate names or selects.
func TestHintToTolerate(t *testing.T) {
	const hint = "'kubectl gate tolerate --all' adds missing tolerations"
	byPods := asGate("init", "example.com/init", "- {name: init, pods: {namespace: kube-system, selector: {matchLabels: {example.com/init: \"true\"}}}}")
	plugin := mounts("/var/lib/kubelet/device-plugins", false)
	for name, c := range map[string]struct {
		set          appsv1.DaemonSet
		preset, gate string
		want         bool
	}{
		"a preset by name":        {daemonSet(t, "kube-system/net-agent", plain), netPreset, "", true},
		"a renamed DaemonSet":     {daemonSet(t, "disks/renamed", registers("disk-a.example.com")), diskA, "", true},
		"a preset by labels":      {daemonSet(t, "kube-system/x", plain, "example.com/required"), labelled, "", true},
		"a preset by devices":     {daemonSet(t, "gpu/acme-plugin", plugin), gpuPreset, "", false},
		"a preset by pods":        {daemonSet(t, "kube-system/x", plain, "example.com/init"), byPods, "", false},
		"a new gate":              {daemonSet(t, "gpu/other", plugin), netPreset, "", true},
		"a label":                 {daemonSet(t, "kube-system/x", plugin), netPreset, labelled, true},
		"only that of other gate": {daemonSet(t, "kube-system/net-agent", plain+toleratesAll), netPreset, asGate("x", "example.com/x", "- {name: s, daemonSet: {namespace: logging, name: shipper}}"), false},
	} {
		w := world(t, c.set, daemonSet(t, "logging/shipper", plain))
		w.Presets = asPresets(t, c.preset)
		if c.gate != "" {
			w.Gates = clitest.Decode(t, c.gate)
		}
		r := suggest.Of(w)
		if len(r.Suggestions) != 1 || len(r.Suggestions[0].Tolerations) != 1 {
			t.Fatalf("%s: the suggestions are %+v", name, r.Suggestions)
		}
		if text := r.Text(); strings.Contains(text, hint) != c.want {
			t.Errorf("%s: refers to the command: %t, want %t, in\n%s", name, !c.want, c.want, text)
		}
	}
}

// A DaemonSet need not tolerate the taint of a gate that shares no existing node with the gate that
// waits for it.
func TestTolerationsOnExistingNodes(t *testing.T) {
	for pool, want := range map[string]int{"gpu": 0, "all": 1} {
		w := world(t, daemonSet(t, "kube-system/net-agent", plain+toleratesAll), daemonSet(t, "kube-system/x", plain))
		w.Nodes[0].Labels = map[string]string{"pool": "gpu"}
		if pool == "all" {
			w.Nodes[1].Labels["pool"] = "gpu"
		}
		w.Gates = clitest.Decode(t, strings.Replace(asGate("x", "example.com/x", "- {name: s, daemonSet: {namespace: kube-system, name: x}}"), "kubernetes.io/os: linux", "pool: gpu", 1))
		if s := suggest.Of(w).Suggestions; len(s) != 1 || len(s[0].Tolerations) != want {
			t.Errorf("with nodes of pool %s, the suggestions are %+v, want %d tolerations", pool, s, want)
		}
	}
}

// If the API server adds the tolerations of a gate's taints, a DaemonSet gets them with the label
// that is suggested, and a DaemonSet that exists needs one command after the gate has been applied.
func TestTolerationsByPolicy(t *testing.T) {
	const own, other, run = "kube-system/net-agent", "kube-system/x", " by kubectl gate tolerate --gate "
	const tolerate = "  tolerate: true\n"
	existing := labelled + tolerate
	structural := mounts("/etc/cni/net.d/", false)
	for name, c := range map[string]struct {
		policy       bool
		preset, gate string
		labels       []string // of the other DaemonSet
		want, text   string
	}{
		"a preset with tolerate":                  {true, netPreset + tolerate, "", nil, own + " true" + run + "net", "then run   kubectl gate tolerate --gate net; it adds the toleration to DaemonSet " + own},
		"without the policy":                      {false, netPreset + tolerate, "", nil, own + " true", "first tolerate  add {key: node.cilium.io/agent-not-ready, operator: Exists}"},
		"in dry run":                              {true, netPreset + tolerate + "  mode: DryRun\n", "", nil, own + " true", "first tolerate"},
		"a preset without tolerate":               {true, netPreset, "", nil, own + " true", "first tolerate"},
		"a label for a gate with tolerate":        {true, "", existing, nil, "", "the label example.com/required=true"},
		"the same, without the policy":            {false, "", existing, nil, own + " true", "first tolerate"},
		"another DaemonSet of that gate lacks it": {true, "", existing, []string{"example.com/required"}, other + " true" + run + "required", "then run   kubectl gate tolerate --gate required"},
	} {
		w := world(t, daemonSet(t, own, structural), daemonSet(t, other, plain, c.labels...))
		w.TolerationsPolicy, w.Presets = c.policy, nil
		if c.preset != "" {
			w.Presets = asPresets(t, c.preset)
		}
		if c.gate != "" {
			w.Gates = clitest.Decode(t, c.gate)
		}
		r := suggest.Of(w)
		var got []string
		for _, v := range r.Suggestions[0].Tolerations {
			text := fmt.Sprint(v.DaemonSet, " ", v.Deadlock)
			if v.Command != "" {
				text += " by " + v.Command
			}
			got = append(got, text)
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: tolerations %q, want %q", name, got, c.want)
		}
		if text := strings.Join(strings.Fields(r.Text()), " "); !strings.Contains(text, strings.Join(strings.Fields(c.text), " ")) {
			t.Errorf("%s: %q is missing in\n%s", name, c.text, r.Text())
		}
		if gates := r.Gates(false); strings.Contains(c.text, "first tolerate") != strings.Contains(gates, "# First: add {key: ") || strings.Contains(c.text, "then run") != strings.Contains(gates, "# Then: run 'kubectl gate tolerate --gate ") {
			t.Errorf("%s: the tolerations of the text are missing in\n%s", name, gates)
		}
	}
}

// The commands for a label contain what it requires first. A label that is only possible is named
// in a comment, unless its DaemonSet is an argument.
func TestGatesWithLabels(t *testing.T) {
	const first = "# First: add {key: example.com/required, operator: Exists} to the tolerations of DaemonSet kube-system/x; "
	const needs = "# DaemonSet kube-system/x needs no gate of its own: add the label example.com/required=true, for which gate required waits.\n"
	const may = "# DaemonSet kube-system/x may need the label example.com/required=true, for which gate required waits: kubectl gate suggest kube-system/x -o gates\n"
	for name, c := range map[string]struct {
		pod, some string
	}{
		"likely":   {mounts("/etc/cni/net.d/", false), needs + first},
		"possible": {plain + "priorityClassName: system-node-critical\n", may},
	} {
		w := world(t, daemonSet(t, "kube-system/x", c.pod))
		w.Presets, w.Gates = nil, clitest.Decode(t, labelled)
		r := suggest.Of(w)
		if some := r.Gates(false); !strings.HasPrefix(some, c.some) || strings.Contains(some, "First") != strings.Contains(c.some, "First") {
			t.Errorf("%s: the gates are\n%s\nwant\n%s", name, some, c.some)
		}
		if all := r.Gates(true); !strings.HasPrefix(all, needs+first) {
			t.Errorf("%s: the gates with an argument are\n%s\nwant\n%s", name, all, needs+first)
		}
	}
}

// If presets wait for the same DaemonSet, the one that selects nodes of the cluster is
// suggested.
func TestPresetOfTheEnvironment(t *testing.T) {
	w := world(t, daemonSet(t, "kube-system/acme-plugin", mounts("/var/lib/kubelet/device-plugins", false)))
	cloud := strings.ReplaceAll(asGate("cloud-gpu", "example.com/cloud", "- {name: plugin, daemonSet: {namespace: kube-system, name: acme-plugin}}"), "kubernetes.io/os: linux", "example.com/cloud: \"true\"")
	w.Presets = asPresets(t, gpuPreset, cloud)
	if s := suggest.Of(w).Suggestions; len(s) != 1 || s[0].Preset != "acme-gpu" {
		t.Errorf("elsewhere, the suggestions are %+v", s)
	}
	w.Presets = asPresets(t, cloud)
	if s := suggest.Of(w).Suggestions; len(s) != 1 || len(s[0].Notes) != 1 || !strings.Contains(s[0].Notes[0], "selects no existing node") {
		t.Errorf("without another preset, the suggestions are %+v", s)
	}
	w.Presets = asPresets(t, gpuPreset, cloud)
	nodes := w.Nodes
	w.Nodes = nil
	if s := suggest.Of(w).Suggestions; len(s) != 1 || len(s[0].Notes) != 1 || !strings.Contains(s[0].Notes[0], "no node is known") {
		t.Errorf("without nodes, the suggestions are %+v", s)
	}
	w.Nodes = nodes
	w.Nodes[0].Labels["example.com/cloud"] = "true"
	if s := suggest.Of(w).Suggestions; len(s) != 1 || s[0].Preset != "cloud-gpu" {
		t.Errorf("in the cloud, the suggestions are %+v", s)
	}
}

// A preset that waits for a DaemonSet by name never opens on nodes on which the DaemonSet does not run.
func TestPresetWithMoreNodesThanItsDaemonSet(t *testing.T) {
	preset := asGate("acme", "example.com/acme", "- {name: agent, daemonSet: {namespace: kube-system, name: acme-agent}}")
	byLabels := strings.Replace(preset, "daemonSet: {namespace: kube-system, name: acme-agent}", "daemonSets: {namespaces: [kube-system], selector: {matchLabels: {acme: 'true'}}}", 1)
	for _, c := range []struct {
		preset, pod string
		note        bool
	}{
		{preset, toleratesAll, false},
		{preset, toleratesAll + "nodeSelector: {pool: a}\n", true},
		{byLabels, toleratesAll + "nodeSelector: {pool: a}\n", false},
	} {
		w := world(t, daemonSet(t, "kube-system/acme-agent", mounts("/opt/cni/bin", false)+c.pod, "acme"))
		w.Presets = asPresets(t, c.preset)
		w.Nodes[0].Labels["pool"] = "a"
		s := suggest.Of(w).Suggestions
		if len(s) != 1 || s[0].Preset != "acme" {
			t.Fatalf("the suggestions are %+v", s)
		}
		if notes := strings.Join(s[0].Notes, "\n"); strings.Contains(notes, "selects 2 existing nodes on which DaemonSet kube-system/acme-agent does not run") != c.note {
			t.Errorf("with %q, the notes are %q", c.pod, notes)
		}
	}
}

// A label is suggested only if it neither identifies another DaemonSet nor replaces a value.
func TestLabels(t *testing.T) {
	owner := daemonSet(t, "kube-system/owner", plain, "example.com/required")
	identified := *owner.DeepCopy()
	identified.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"example.com/required": "true", "app": "owner"}}
	expressed := *owner.DeepCopy()
	expressed.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "example.com/required", Operator: metav1.LabelSelectorOpIn, Values: []string{"true"}}}}
	other := *owner.DeepCopy()
	other.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "owner"}}
	elsewhere := *identified.DeepCopy()
	elsewhere.Namespace = "other"
	set := daemonSet(t, "kube-system/x", mounts("/opt/cni/bin", false))
	excluded := *set.DeepCopy()
	excluded.Labels = map[string]string{"example.com/required": "false"}
	for name, c := range map[string]struct {
		sets []appsv1.DaemonSet
		want suggest.Use
	}{
		"no DaemonSet has it":             {[]appsv1.DaemonSet{set}, suggest.UseLabel},
		"a DaemonSet has it":              {[]appsv1.DaemonSet{set, other}, suggest.UseLabel},
		"it identifies another":           {[]appsv1.DaemonSet{set, identified}, suggest.UseNodeGate},
		"it identifies another, as a set": {[]appsv1.DaemonSet{set, expressed}, suggest.UseNodeGate},
		"it identifies one elsewhere":     {[]appsv1.DaemonSet{set, elsewhere}, suggest.UseLabel},
		"it has another value":            {[]appsv1.DaemonSet{excluded}, suggest.UseNodeGate},
	} {
		w := world(t, c.sets...)
		w.Presets, w.Gates = nil, clitest.Decode(t, labelled)
		if s := suggest.Of(w).Suggestions; len(s) != 1 || s[0].Use != c.want {
			t.Errorf("%s: the suggestions are %+v, want %s", name, s, c.want)
		}
	}
}

// A DaemonSet that is being deleted needs no gate, and is not the one for which a preset waits.
func TestDeletedDaemonSet(t *testing.T) {
	deleted := daemonSet(t, "kube-system/net-agent", plain+"priorityClassName: system-node-critical")
	deleted.DeletionTimestamp = &metav1.Time{Time: clitest.Now}
	r := suggest.Of(world(t, deleted, daemonSet(t, "network/net-agent", plain)))
	if len(r.Suggestions) != 1 || !slices.Equal(r.Suggestions[0].DaemonSets, []string{"network/net-agent"}) || len(r.Others) != 0 {
		t.Errorf("the report is %+v", r)
	}
	if unknown := r.Select([]string{"kube-system/net-agent"}); unknown == "" {
		t.Error("the report contains the deleted DaemonSet")
	}
}

// A report can be limited to some DaemonSets.
func TestSelect(t *testing.T) {
	of := func() *suggest.Report {
		return suggest.Of(world(t, daemonSet(t, "kube-system/net-agent", plain), daemonSet(t, "kube-system/critical", plain+"priorityClassName: system-node-critical"), daemonSet(t, "logging/shipper", plain)))
	}
	r := of()
	if unknown := r.Select([]string{"kube-system/critical", "a/b"}); unknown != "a/b" {
		t.Errorf("unknown is %q", unknown)
	}
	if unknown := r.Select([]string{"kube-system/critical"}); unknown != "" || len(r.Suggestions) != 1 || len(r.Others) != 0 {
		t.Errorf("unknown is %q, the report is %+v", unknown, r)
	}
	if some, all := r.Gates(false), r.Gates(true); strings.Contains(some, "kind:") || !strings.Contains(some, "critical may need a gate") || !strings.Contains(all, "kind: NodeGate") {
		t.Errorf("the gates are %s, and for an argument %s", some, all)
	}
	const hint = "kubectl gate suggest kube-system/critical -o gates | kubectl gate lint -f -"
	if text := r.Text(); !strings.Contains(text, hint) {
		t.Errorf("%q is missing in\n%s", hint, text)
	}
	possible := suggest.Of(world(t, daemonSet(t, "kube-system/critical", plain+"priorityClassName: system-node-critical")))
	if text := possible.Text(); len(possible.Suggestions) != 1 || strings.Contains(text, "-o gates") {
		t.Errorf("the text refers to gates that are not printed:\n%s", text)
	}
	r = of()
	if r.Select(nil); !reflect.DeepEqual(r, of()) {
		t.Errorf("without names, the report is %+v", r)
	}
}
