// SPDX-License-Identifier: Apache-2.0

package preview_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/descheduler"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/preview"
)

// previews are changes in a cluster with twelve nodes: eight in zone a, two of which
// lack the label fit, and four in zone b, one of which lacks it. Existing gates are
// closed on the first two nodes of zone a and open on the others.
var previews = []struct {
	name string
	// before and apply are NodeGates, in YAML.
	before, apply []string
	delete        []string
	pods          map[string]*gate.PodList
	policy        gate.KeyPolicy
	// descheduler is the arguments of the descheduler's plugin, in YAML; none if empty.
	descheduler string
}{
	{name: "new-ignores", apply: []string{clitest.Manifest("agent", "")}},
	{name: "new-adopts", apply: []string{clitest.Manifest("agent", "existingNodes: Adopt")}},
	{name: "new-closes", apply: []string{clitest.Manifest("agent", "existingNodes: Close\n  budget: {maxReclosed: 1}")}},
	{name: "new-waits", apply: []string{clitest.Manifest("agent", "timing: {openAfterSeconds: 30, minClosedSeconds: 60}")}},
	{name: "new-dry-run", apply: []string{clitest.Manifest("agent", "existingNodes: Close\n  mode: DryRun")}},
	{name: "not-allowed", apply: []string{clitest.Manifest("agent", "")}, policy: gate.KeyPolicy{Allowed: gate.AllowedTaints{{Key: "example.com/z", Effect: "NoSchedule"}: true}}},
	{name: "evicts", apply: []string{evicting}, pods: twoPods},
	{name: "evicts-unread", apply: []string{evicting}},
	{name: "descheduled", apply: []string{closing}, pods: ownedPods, descheduler: "{}"},
	{name: "descheduled-none", apply: []string{closing}, pods: twoPods, descheduler: "{includedTaints: [example.com/a, b]}"},
	{name: "descheduled-unread", apply: []string{closing}, descheduler: "{excludedTaints: [b]}"},
	{name: "descheduled-excluded", apply: []string{closing}, pods: ownedPods, descheduler: "{excludedTaints: [example.com/a]}"},
	{name: "descheduled-opens-only", apply: []string{clitest.Manifest("agent", "")}, pods: ownedPods, descheduler: "{}"},
	{name: "retaints", before: []string{clitest.Manifest("agent", "")}, apply: []string{strings.Replace(evicting, "existingNodes: Close", "existingNodes: Ignore", 1)}, pods: twoPods},
	{name: "deleted", before: []string{clitest.Manifest("agent", "")}, delete: []string{"agent"}},
	{name: "same", before: []string{clitest.Manifest("agent", "")}, apply: []string{clitest.Manifest("agent", "")}},
	{name: "narrowed", before: []string{clitest.Manifest("agent", "")}, apply: []string{narrowed}},
	{name: "regression", before: []string{clitest.Manifest("agent", "")}, apply: []string{clitest.Manifest("agent", "reclosePolicy: OnRegression")}},
	{name: "to-dry-run", before: []string{clitest.Manifest("agent", "")}, apply: []string{clitest.Manifest("agent", "mode: DryRun")}},
	{name: "closes-together", before: []string{clitest.Manifest("agent", "")}, apply: []string{clitest.Manifest("agent", "openTogether: {labelKey: topology.kubernetes.io/zone, atLeast: 7}\n  closeTogether: WhenIncomplete")}},
	{name: "conflict", before: []string{clitest.Manifest("agent", "")}, apply: []string{conflicting}},
	{name: "waits-for-no-daemon", apply: []string{waitsForPod}},
}

const (
	agentHead   = "apiVersion: nodegate.dev/v1alpha1\nkind: NodeGate\nmetadata: {name: agent}\nspec:\n"
	evicting    = agentHead + "  nodeSelector: {}\n  taint: {key: example.com/a, effect: NoExecute}\n  acknowledge: [PodEviction]\n  existingNodes: Close\n  budget: {maxReclosed: \"100%\"}\n  openWhen: [{name: fit, label: {key: fit}}]\n"
	narrowed    = agentHead + "  nodeSelector: {matchLabels: {topology.kubernetes.io/zone: b}}\n  taint: {key: example.com/a, effect: NoSchedule}\n  openWhen: [{name: fit, label: {key: fit}}]\n"
	closing     = agentHead + "  nodeSelector: {}\n  taint: {key: example.com/a, effect: NoSchedule}\n  existingNodes: Close\n  budget: {maxReclosed: \"100%\"}\n  openWhen: [{name: fit, label: {key: fit}}]\n"
	waitsForPod = agentHead + "  nodeSelector: {}\n  taint: {key: example.com/a, effect: NoSchedule}\n  openWhen: [{name: pod, daemonSet: {namespace: kube-system, name: agent}}]\n"
	conflicting = "apiVersion: nodegate.dev/v1alpha1\nkind: NodeGate\nmetadata: {name: rival}\nspec:\n  nodeSelector: {}\n  taint: {key: example.com/a, value: b, effect: NoSchedule}\n  openWhen: [{name: fit, label: {key: fit}}]\n"
)

var twoPods = map[string]*gate.PodList{
	"a0": {At: clitest.Now, Pods: []gate.BoundPod{
		{Namespace: "web", Name: "shop"},
		{Namespace: "kube-system", Name: "agent-1", Daemon: true},
		{Namespace: "kube-system", Name: "static", Mirror: true},
		{Namespace: "web", Name: "done", Finished: true},
		{Namespace: "web", Name: "hardy", Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
	}},
	"a5": {At: clitest.Now, Pods: []gate.BoundPod{{Namespace: "web", Name: "elsewhere"}}},
}

// The descheduler evicts only web/shop of ownedPods: its policy does not select node a1.
var ownedPods = map[string]*gate.PodList{
	"a0": {At: clitest.Now, Pods: []gate.BoundPod{
		{Namespace: "web", Name: "shop", Owned: true},
		{Namespace: "web", Name: "unowned"},
		{Namespace: "kube-system", Name: "agent-1", Daemon: true, Owned: true},
		{Namespace: "web", Name: "done", Owned: true, Finished: true},
		{Namespace: "web", Name: "leaving", Owned: true, Terminating: true},
		{Namespace: "web", Name: "hardy", Owned: true, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
	}},
	"a1": {At: clitest.Now, Pods: []gate.BoundPod{{Namespace: "web", Name: "spared", Owned: true}}},
	"a5": {At: clitest.Now, Pods: []gate.BoundPod{{Namespace: "web", Name: "elsewhere", Owned: true}}},
}

// twelve returns the twelve nodes, one hour old, with records of these gates.
func twelve(gates []v1alpha1.NodeGate) []gate.Facts {
	var all []gate.Facts
	for i := range 12 {
		zone, number := "a", i
		if i >= 8 {
			zone, number = "b", i-8
		}
		n := gate.Node{
			Name: fmt.Sprintf("%s%d", zone, number), UID: "uid", BootID: "b", Created: clitest.Now.Add(-time.Hour),
			Labels:     map[string]string{corev1.LabelTopologyZone: zone, "fit": ""},
			Conditions: []gate.Condition{{Type: string(corev1.NodeReady), Status: corev1.ConditionTrue, Transition: clitest.Now.Add(-time.Hour)}},
		}
		closed := zone == "a" && number < 2
		if closed || zone == "b" && number == 0 {
			delete(n.Labels, "fit")
		}
		for j := range gates {
			record := `{"state":"Open","reason":"SignalsHold","since":"2026-03-01T02:10:00Z","boot":"b","taint":"example.com/a:NoSchedule","source":"crd"}`
			if closed {
				record = clitest.Birth
				n.Taints = []corev1.Taint{{Key: "example.com/a", Effect: corev1.TaintEffectNoSchedule}}
			}
			n.Records = map[string]string{gates[j].Name: record}
		}
		all = append(all, gate.Facts{Node: n, DaemonSets: &gate.DaemonSets{Observed: map[string]bool{"kube-system": true}}})
	}
	return all
}

// testdata contains the expected output of each case, as text and as JSON.
func TestText(t *testing.T) {
	for _, c := range previews {
		t.Run(c.name, func(t *testing.T) {
			w := &preview.World{Declared: clitest.Decode(t, c.before...), Pods: c.pods, Policy: c.policy, Now: clitest.Now}
			w.Nodes = twelve(w.Declared)
			if c.descheduler != "" {
				w.Nodes[1].Node.Labels["descheduler"] = "off"
				w.Deschedulers = []descheduler.Policy{descheduling(t, c.descheduler)}
			}
			p := preview.Of(w, preview.Change{Apply: clitest.Decode(t, c.apply...), Delete: c.delete})
			raw, err := json.MarshalIndent(p, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			clitest.Golden(t, c.name+".txt", p.Text())
			clitest.Golden(t, c.name+".json", string(raw)+"\n")
		})
	}
}

// descheduling returns a descheduler's policy that enables its plugin with some arguments.
func descheduling(t *testing.T, arguments string) descheduler.Policy {
	t.Helper()
	p, err := descheduler.Parse(`{apiVersion: descheduler/v1alpha2, kind: DeschedulerPolicy, nodeSelector: descheduler!=off, profiles: [{name: default,
  pluginConfig: [{name: RemovePodsViolatingNodeTaints, args: ` + arguments + `}], plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}}]}`)
	if err != nil {
		t.Fatal(err)
	}
	p.ConfigMap = "kube-system/policy"
	return *p
}

// Waits do not count for new nodes: a label has no time since which it has held, and the
// waits of the existing nodes would start now.
func TestNewNodesOfAGateThatWaits(t *testing.T) {
	for _, timing := range []string{"openAfterSeconds: 30", "minClosedSeconds: 86400"} {
		w := &preview.World{Now: clitest.Now, Nodes: twelve(nil)}
		for i := range w.Nodes {
			w.Nodes[i].Node.Labels["fit"] = ""
		}
		p := preview.Of(w, preview.Change{Apply: clitest.Decode(t, clitest.Manifest("agent", "timing: {"+timing+"}"))})
		if n := p.Gates[0].NewNodes; n.Open != n.Nodes || n.Nodes != 12 {
			t.Errorf("%s: the gate would open on %d of %d nodes, want all of 12", timing, n.Open, n.Nodes)
		}
	}
}

// A taint of the gate itself does not mean that a new node is still being set up, also if the
// gate is in dry run, or may not use its key yet: no set of keys has it then.
func TestNewNodesOfAGateWithoutDaemonSets(t *testing.T) {
	const key = "startup-taint.cluster-autoscaler.kubernetes.io/x"
	for name, policy := range map[string]gate.KeyPolicy{"": {}, "mode: DryRun": {}, "mode: Enforce": {Allowed: gate.AllowedTaints{}}} {
		w := &preview.World{Now: clitest.Now, Nodes: twelve(nil), Policy: policy}
		text := strings.NewReplacer("example.com/a", key, "label: {key: fit}", "daemonSets: {namespaces: [kube-system], selector: {matchLabels: {required: 'true'}}}").
			Replace(clitest.Manifest("agent", name))
		p := preview.Of(w, preview.Change{Apply: clitest.Decode(t, text)})
		if n := p.Gates[0].NewNodes; n == nil || n.Open != 12 {
			t.Errorf("%q: the gate would open on %+v, want all of 12 nodes", name, n)
		}
	}
}

// A node that an override keeps closed has the gate's taint, so it gets a changed taint like
// any other closed node, and pods are evicted.
func TestRetaintsOverriddenNode(t *testing.T) {
	w := &preview.World{Declared: clitest.Decode(t, clitest.Manifest("agent", "")), Pods: twoPods, Now: clitest.Now}
	w.Nodes = twelve(w.Declared)
	n := &w.Nodes[5].Node
	n.Records = map[string]string{"agent": `{"state":"Open","reason":"SignalsHold","since":"2026-03-01T02:10:00Z","boot":"b","taint":"example.com/a:NoSchedule",` +
		`"source":"crd","override":"Closed","overrideSince":"2026-03-01T02:50:00Z"}`}
	n.Overrides = map[string]string{"agent": gate.Override{State: v1alpha1.StateClosed, Until: clitest.Now.Add(time.Hour), Reason: "repair", UID: n.UID}.String()}
	n.Taints = []corev1.Taint{{Key: "example.com/a", Effect: corev1.TaintEffectNoSchedule}}
	p := preview.Of(w, preview.Change{Apply: clitest.Decode(t, strings.Replace(evicting, "existingNodes: Close", "existingNodes: Ignore", 1))})
	g := p.Gates[0]
	if len(g.Groups) == 0 || g.Groups[0].What != preview.Retaints || strings.Join(g.Groups[0].Nodes, " ") != "a0 a1 a5" {
		t.Errorf("groups %+v, want nodes a0, a1 and a5 to change their taint", g.Groups)
	}
	if e := g.Evictions; e == nil || e.Nodes != 2 || e.Examples[len(e.Examples)-1] != "web/elsewhere" {
		t.Errorf("evictions %+v, want those on a0 and a5", e)
	}
}

// An override that has ended while the gate was paused, and a taint that a user has removed meanwhile, take
// effect when the pause ends.
func TestEndOfAPause(t *testing.T) {
	const (
		closed = `{"state":"Closed","reason":"Birth","boot":"b","taint":"example.com/a:NoSchedule","source":"crd"`
		open   = `{"state":"Open","reason":"SignalsHold","since":"2026-03-01T02:10:00Z","boot":"b","taint":"example.com/a:NoSchedule","source":"crd"`
	)
	manual := strings.NewReplacer("openWhen", "closeWhen").Replace(clitest.Manifest("agent", "reopen: Manual"))
	for _, c := range []struct {
		manifest, record string
		tainted          bool
		what             preview.What
		why              string
	}{
		{clitest.Manifest("agent", ""), closed + `,"override":"Open","overrideSince":"2026-03-01T02:50:00Z"}`, false,
			preview.Closes, "a manual override that kept it open has ended (OverrideEnded)"},
		{clitest.Manifest("agent", ""), open + `,"override":"Closed","overrideSince":"2026-03-01T02:50:00Z"}`, true,
			preview.Opens, "a manual override that kept it closed has ended (OverrideEnded)"},
		{manual, closed + "}", false, preview.Opens, "a user has removed the taint (OpenedByHand)"},
	} {
		paused := clitest.Decode(t, c.manifest+"\n  mode: Paused")
		w := &preview.World{Declared: paused, Now: clitest.Now, Nodes: twelve(nil)[:1]}
		n := &w.Nodes[0].Node
		n.Records, n.Taints = map[string]string{"agent": c.record}, nil
		if c.tainted {
			n.Taints = []corev1.Taint{{Key: "example.com/a", Effect: corev1.TaintEffectNoSchedule}}
		}
		p := preview.Of(w, preview.Change{Apply: clitest.Decode(t, c.manifest)})
		if g := p.Gates[0].Groups; len(g) != 1 || g[0].What != c.what || g[0].Why != c.why {
			t.Errorf("%s: groups %+v, want %s, because %s", c.record, g, c.what, c.why)
		}
	}
}

// The descheduler evicts pods because of the taint that the gate adds: the first one on nodes that are
// new to it, and recloseTaint on others.
func TestExemptionOfBothTaints(t *testing.T) {
	both := strings.Replace(closing, "  existingNodes", "  recloseTaint: {key: example.com/b, effect: NoSchedule}\n  existingNodes", 1)
	for name, c := range map[string]struct {
		young map[string]bool // names of nodes
		want  string
	}{
		"new nodes":    {map[string]bool{"a0": true, "a1": true, "b0": true}, "[example.com/a]"},
		"old nodes":    {nil, "[example.com/b]"},
		"one new node": {map[string]bool{"a0": true}, "[example.com/a, example.com/b]"},
	} {
		w := &preview.World{Declared: clitest.Decode(t, closing), Pods: ownedPods, Now: clitest.Now, Deschedulers: []descheduler.Policy{descheduling(t, "{}")}}
		w.Nodes = twelve(nil)
		for i := range w.Nodes {
			if n := &w.Nodes[i].Node; c.young[n.Name] {
				n.Created = clitest.Now.Add(-time.Minute)
			}
		}
		p := preview.Of(w, preview.Change{Apply: clitest.Decode(t, both)})
		if d := p.Gates[0].Descheduled; len(d) != 1 || !strings.HasSuffix(d[0].Exemption, "excludedTaints: "+c.want) {
			t.Errorf("%s: descheduled is %+v, want the exemption of %s", name, d, c.want)
		}
	}
}

// Gates that each wait for a daemon that the other's taint keeps off the node are a problem only if
// they can be on the same node.
func TestDeadlocksOnCommonNodes(t *testing.T) {
	gate1 := strings.Replace(waitsForPod, "nodeSelector: {}", "nodeSelector: {matchLabels: {pool: a}}", 1)
	gate2 := strings.NewReplacer("name: agent}", "name: other}", "example.com/a", "example.com/b").Replace(waitsForPod)
	on := func(selector string) string {
		return strings.Replace(gate2, "nodeSelector: {}", "nodeSelector: "+selector, 1)
	}
	daemon := func(name, key string) gate.DaemonSet {
		return gate.DaemonSet{Namespace: "kube-system", Name: name, Tolerations: []corev1.Toleration{{Key: "example.com/" + key, Operator: corev1.TolerationOpExists}}}
	}
	sets := &gate.DaemonSets{Observed: map[string]bool{"kube-system": true}, Items: []gate.DaemonSet{daemon("agent", "a"), daemon("other", "b")}}
	for name, c := range map[string]struct {
		other  string
		labels []map[string]string // of the nodes
		want   bool
	}{
		"all nodes":                {gate2, []map[string]string{{"pool": "a"}, {}}, true},
		"other nodes":              {on("{matchExpressions: [{key: pool, operator: DoesNotExist}]}"), []map[string]string{{"pool": "a"}, {"pool": "a"}}, false},
		"other existing nodes":     {on("{matchLabels: {type: b}}"), []map[string]string{{"pool": "a"}, {"type": "b"}}, false},
		"other nodes, none so far": {on("{matchLabels: {type: b}}"), []map[string]string{{"pool": "a"}, {}}, true},
		"one node of both":         {on("{matchLabels: {type: b}}"), []map[string]string{{"pool": "a"}, {"type": "b", "pool": "a"}}, true},
	} {
		w := &preview.World{Declared: clitest.Decode(t, c.other), Now: clitest.Now}
		for i, set := range c.labels {
			w.Nodes = append(w.Nodes, gate.Facts{Node: gate.Node{Name: fmt.Sprint("n", i), UID: "uid", BootID: "b", Created: clitest.Now.Add(-time.Hour), Labels: set}, DaemonSets: sets})
		}
		p := preview.Of(w, preview.Change{Apply: clitest.Decode(t, gate1)})
		if got := strings.Contains(strings.Join(p.Gates[0].Problems, "\n"), "deadlock: the gate waits for"); got != c.want {
			t.Errorf("%s: the problems are %q, want a deadlock: %t", name, p.Gates[0].Problems, c.want)
		}
	}
}
