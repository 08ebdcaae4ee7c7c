// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// podOnNode is a pod on the node of a test.
type podOnNode struct {
	namespace string
	labels    labels.Set
	ready     bool
}

// observe adds the pods that the gates need to the facts.
func observe(t tester, f *gate.Facts, gates []gate.Gate, pods []podOnNode) {
	t.Helper()
	f.Pods = map[gate.PodQuery][]gate.Pod{}
	for i := range gates {
		for _, q := range gates[i].Needs(f.DaemonSets).Pods {
			selector, err := labels.Parse(q.Selector)
			if err != nil {
				t.Fatalf("%v", err)
			}
			f.Pods[q] = nil
			for n, p := range pods {
				if p.namespace == q.Namespace && selector.Matches(p.labels) {
					f.Pods[q] = append(f.Pods[q], gate.Pod{
						UID: types.UID(fmt.Sprint(n)), Name: q.Namespace + "/" + fmt.Sprint(n), Created: epoch.Add(-time.Second),
						Ready: p.ready, ReadySince: epoch, Incarnation: gate.Incarnation(n + 1),
					})
				}
			}
		}
	}
}

var readyNode = gate.Condition{Type: string(corev1.NodeReady), Status: corev1.ConditionTrue}

// Istio's controller splits selectors at commas: each part requires a ready pod of its own.
func TestSeedIstioConvertCommaRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type entry struct{ namespace, selector string }
		part := rapid.SampledFrom([]string{"app=istio", "app=istio-cni", "app!=istio", "tier", "!tier", "tier==x", "app=agent"})
		entries := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) entry {
			parts := rapid.SliceOfN(part, 1, 3).Draw(t, "parts")
			return entry{
				rapid.SampledFrom([]string{"kube-system", "cni"}).Draw(t, "namespace"),
				strings.Join(parts, rapid.SampledFrom([]string{",", ", ", " , "}).Draw(t, "comma")),
			}
		}), 1, rapid.SampledFrom([]int{1, 2, 7}).Draw(t, "most")).Draw(t, "entries")
		pods := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) podOnNode {
			p := podOnNode{rapid.SampledFrom([]string{"kube-system", "cni", "default"}).Draw(t, "of"), labels.Set{}, rapid.IntRange(0, 3).Draw(t, "ready") > 0}
			p.labels["app"] = rapid.SampledFrom([]string{"istio", "istio-cni", "agent"}).Draw(t, "app")
			if rapid.Bool().Draw(t, "tiered") {
				p.labels["tier"] = "x"
			}
			return p
		}), 0, 12).Draw(t, "pods")

		var text strings.Builder
		open := true
		for _, e := range entries {
			fmt.Fprintf(&text, "- name: a\n  namespace: %s\n  selector: '%s'\n", e.namespace, e.selector)
			for part := range strings.SplitSeq(e.selector, ",") { // Istio's controller
				selector, err := labels.Parse(strings.TrimSpace(part))
				if err != nil {
					t.Fatal(err)
				}
				open = open && slices.ContainsFunc(pods, func(p podOnNode) bool {
					return p.ready && p.namespace == e.namespace && selector.Matches(p.labels)
				})
			}
		}
		r := Istio(Source{Name: "list.yaml", Data: []byte(text.String())})
		gates := compileAll(t, checkGates(t, r))
		f := freshNode(gates, []gate.Condition{readyNode})
		observe(t, f, gates, pods)
		if got := len(gate.Decide(gates, f, epoch).Taints) == 0; got != open {
			t.Fatalf("open: %v, with Istio %v\npods %+v\n%s\n%s", got, open, pods, text.String(), findingsText(r))
		}
		f.Node.Conditions = []gate.Condition{{Type: readyNode.Type, Status: corev1.ConditionFalse}}
		if len(gate.Decide(gates, f, epoch).Taints) != 1 {
			t.Fatalf("open on a node that is not ready")
		}
	})
}

// The example in the documentation of Istio's controller.
func TestSeedIstioConvertExample(t *testing.T) {
	r := Istio(Source{Name: "list.yaml", Data: []byte("- name: istio-cni\n  selector: app=istio, app=istio-cni\n  namespace: kube-system\n")})
	gates := compileAll(t, checkGates(t, r))
	pod := func(app string, ready bool) podOnNode { return podOnNode{"kube-system", labels.Set{"app": app}, ready} }
	for _, test := range []struct {
		pods []podOnNode
		open bool
	}{
		{nil, false},
		{[]podOnNode{pod("istio", true)}, false},
		{[]podOnNode{pod("istio", true), pod("istio-cni", false)}, false},
		{[]podOnNode{pod("istio", true), pod("istio-cni", true)}, true},
		{[]podOnNode{pod("istio", true), pod("istio", false), pod("istio-cni", true)}, true},
		{[]podOnNode{pod("istio", true), {"default", labels.Set{"app": "istio-cni"}, true}}, false},
	} {
		f := freshNode(gates, []gate.Condition{readyNode})
		observe(t, f, gates, test.pods)
		if got := len(gate.Decide(gates, f, epoch).Taints) == 0; got != test.open {
			t.Errorf("%+v: open %v, want %v", test.pods, got, test.open)
		}
	}
}

// node-readiness-controller treats a missing condition as if it had its default status, or
// Unknown.
func TestSeedNodeReadinessControllerConvertKeepsMeaning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type want struct{ kind, status, byDefault string }
		status := rapid.SampledFrom([]string{"True", "False", "Unknown"})
		anyOf := rapid.Bool().Draw(t, "any")
		all := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) want {
			w := want{kind: rapid.SampledFrom([]string{"a.b", "a/b", "axb", "c"}).Draw(t, "type"), status: status.Draw(t, "required")}
			if !anyOf && rapid.Bool().Draw(t, "defaulted") {
				w.byDefault = status.Draw(t, "default")
			}
			return w
		}), 1, 4, func(w want) string { return w.kind }).Draw(t, "conditions")
		has := map[string]string{}
		for _, kind := range []string{"a.b", "a/b", "axb", "c"} {
			if rapid.Bool().Draw(t, "has "+kind) {
				has[kind] = status.Draw(t, kind)
			}
		}

		var text strings.Builder
		text.WriteString("apiVersion: readiness.node.x-k8s.io/v1alpha1\nkind: NodeReadinessRule\nmetadata: {name: a}\nspec:\n" +
			"  taint: {key: readiness.k8s.io/a, effect: NoSchedule}\n  enforcementMode: continuous\n  nodeSelector: {}\n")
		if anyOf {
			text.WriteString("  conditionPolicy: anyOf\n")
		}
		text.WriteString("  conditions:\n")
		met := 0
		conditions := []gate.Condition{readyNode}
		for _, w := range all {
			fmt.Fprintf(&text, "  - type: %q\n    requiredStatus: %q\n", w.kind, w.status)
			is, found := has[w.kind]
			if !found {
				is = "Unknown"
			}
			if w.byDefault != "" {
				fmt.Fprintf(&text, "    defaultStatus: %q\n", w.byDefault)
				if !found {
					is = w.byDefault
				}
			}
			if is == w.status {
				met++
			}
		}
		for kind, status := range has {
			conditions = append(conditions, gate.Condition{Type: kind, Status: corev1.ConditionStatus(status)})
		}
		open := met == len(all) || anyOf && met > 0

		r := NodeReadinessRules(Source{Name: "rule.yaml", Data: []byte(text.String())})
		gates := compileAll(t, checkGates(t, r))
		if len(gates) != 1 {
			t.Fatalf("%d gates:\n%s", len(gates), findingsText(r))
		}
		if got := len(gate.Decide(gates, freshNode(gates, conditions), epoch).Taints) == 0; got != open {
			t.Fatalf("open: %v, with node-readiness-controller %v; conditions %v\n%s", got, open, conditions, text.String())
		}
		if got := len(gate.Decide(gates, openNode(gates, conditions), epoch).Taints) == 0; got != open {
			t.Fatalf("still open: %v, with node-readiness-controller %v; conditions %v\n%s", got, open, conditions, text.String())
		}
	})
}

// openNode returns the facts about a node on which the gates are open, with conditions that
// have just changed.
func openNode(gates []gate.Gate, conditions []gate.Condition) *gate.Facts {
	f := freshNode(gates, conditions)
	f.Node.Records = map[string]string{}
	for i := range gates {
		record := gate.Record{State: v1alpha1.StateOpen, Since: epoch.Add(-time.Second), Reason: v1alpha1.ReasonSignalsHold, Boot: f.Node.BootID, Source: v1alpha1.SourceCRD}
		f.Node.Records[gates[i].Name] = record.String()
	}
	return f
}

// A rule may have twice as many conditions as a gate has signals. All of them must be met at
// the same time.
func TestSeedNodeReadinessControllerConvertManyConditions(t *testing.T) {
	for name, c := range map[string]struct {
		mode, prefix string
		n            int
	}{
		"bootstrap, few":   {"bootstrap-only", "example.com/A", 16},
		"bootstrap, many":  {"bootstrap-only", "example.com/A", 32},
		"continuous, few":  {"continuous", "example.com/A", 16},
		"continuous, many": {"continuous", "example.com/" + strings.Repeat("A", 80), 32},
	} {
		var text strings.Builder
		text.WriteString("apiVersion: readiness.node.x-k8s.io/v1alpha1\nkind: NodeReadinessRule\nmetadata: {name: a}\nspec:\n" +
			"  taint: {key: readiness.k8s.io/a, effect: NoSchedule}\n  nodeSelector: {}\n  enforcementMode: " + c.mode + "\n  conditions:\n")
		conditions := []gate.Condition{readyNode}
		for i := range c.n {
			kind := fmt.Sprint(c.prefix, i)
			fmt.Fprintf(&text, "  - {type: %s, requiredStatus: 'True'}\n", kind)
			conditions = append(conditions, gate.Condition{Type: kind, Status: corev1.ConditionTrue})
		}
		r := NodeReadinessRules(Source{Name: "rule.yaml", Data: []byte(text.String())})
		gates := compileAll(t, checkGates(t, r))
		if len(gates) != 1 {
			t.Errorf("%s: %d gates:\n%s", name, len(gates), findingsText(r))
			continue
		}
		if len(gate.Decide(gates, freshNode(gates, conditions), epoch).Taints) > 0 {
			t.Errorf("%s: closed, although all conditions are met", name)
		}
		for i := 1; i < len(conditions); i++ {
			not := slices.Clone(conditions)
			not[i].Status = corev1.ConditionUnknown
			if len(gate.Decide(gates, freshNode(gates, not), epoch).Taints) == 0 {
				t.Errorf("%s: open, although condition %d is not met", name, i)
			}
			if c.mode == "continuous" && len(gate.Decide(gates, openNode(gates, not), epoch).Taints) == 0 {
				t.Errorf("%s: still open, although condition %d is Unknown", name, i)
			}
		}
	}
}

// After a node has finished bootstrapping, node-readiness-controller never applies a
// bootstrap-only rule to it again, even if its condition is missing. Existing nodes that still
// carry the rule's taint have not finished.
func TestSeedNodeReadinessControllerConvertBootstrapOnlyExistingNodes(t *testing.T) {
	for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
		taint := corev1.Taint{Key: "readiness.k8s.io/a", Effect: effect}
		text := "apiVersion: readiness.node.x-k8s.io/v1alpha1\nkind: NodeReadinessRule\nmetadata: {name: a}\nspec:\n" +
			"  taint: {key: readiness.k8s.io/a, effect: " + string(effect) + "}\n  nodeSelector: {}\n  enforcementMode: bootstrap-only\n" +
			"  conditions: [{type: Fit, requiredStatus: 'True'}]\n"
		r := NodeReadinessRules(Source{Name: "rule.yaml", Data: []byte(text)})
		gates := compileAll(t, checkGates(t, r))
		if len(gates) != 1 || !strings.Contains(findingsText(r), "existingNodes: Ignore") {
			t.Fatalf("%d gates:\n%s", len(gates), findingsText(r))
		}
		for name, conditions := range map[string][]gate.Condition{
			"missing": {readyNode}, "False": {readyNode, {Type: "Fit", Status: corev1.ConditionFalse}}, "Unknown": {readyNode, {Type: "Fit", Status: corev1.ConditionUnknown}},
		} {
			f := freshNode(gates, conditions)
			f.Node.Created = gates[0].Created.Add(-30 * 24 * time.Hour)
			if got := taintsOf(gate.Decide(gates, f, epoch)); len(got) > 0 {
				t.Errorf("%s: an existing node without the taint gets %v", name, got)
			}
			f.Node.Taints = []corev1.Taint{taint}
			if got, want := taintsOf(gate.Decide(gates, f, epoch)), []string{taint.Key + ":" + string(effect)}; !slices.Equal(got, want) {
				t.Errorf("%s: an existing node with the taint has the taints %v, want %v", name, got, want)
			}
		}
	}
}

// nidhogg taints a selected node until the DaemonSet's pod is ready.
func TestSeedNidhoggConvertSelectors(t *testing.T) {
	for form, want := range map[string][]string{
		"{}":                              {"a", "b", "c"},
		"{pool: a}":                       {"a"},
		"[pool]":                          {"a", "b"},
		"['!pool']":                       {"c"},
		"['pool in (a, b)', 'pool != a']": {"b"},
		"['pool=a', 'pool=b']":            nil,
		"['pool=a,os=linux']":             {"a"},
		"['os', 'pool notin (a)']":        {"b", "c"},
		"['os in (linux)', 'os==linux']":  {"a", "b", "c"},
		"['os in (linux, x)', 'pool==b']": {"b"},
		"['pool in (a, " + strings.Repeat("x", 60) + ", " + strings.Repeat("y", 60) + ")']": {"a"}, // longer than a line
	} {
		r := Nidhogg(Source{Name: "x", Data: []byte("daemonsets: [{name: kiam, namespace: kube-system}]\nnodeSelector: " + form + "\n")})
		gates := compileAll(t, checkGates(t, r))
		if len(gates) != 1 {
			t.Errorf("%s: %d gates:\n%s", form, len(gates), findingsText(r))
			continue
		}
		var got []string
		for name, set := range map[string]labels.Set{"a": {"pool": "a", "os": "linux"}, "b": {"pool": "b", "os": "linux"}, "c": {"os": "linux"}} {
			f := freshNode(gates, []gate.Condition{readyNode})
			f.Node.Labels = set
			if slices.Equal(taintsOf(gate.Decide(gates, f, epoch)), []string{"nidhogg.uswitch.com/kube-system.kiam:NoSchedule"}) {
				got = append(got, name)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s holds %v, want %v", form, got, want)
		}
	}
}

// Without nodeSelector, nidhogg taints the nodes that the DaemonSet's own nodeSelector selects,
// and no others. taintEffect determines the effect.
func TestSeedNidhoggConvertOwnSelectorsAndEffects(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "nidhogg.uswitch.com/kube-system.kiam:NoSchedule",
		"taintEffect: ''\n":             "nidhogg.uswitch.com/kube-system.kiam:NoSchedule",
		"taintEffect: NoSchedule\n":     "nidhogg.uswitch.com/kube-system.kiam:NoSchedule",
		"taintEffect: NoExecute\n":      "nidhogg.uswitch.com/kube-system.kiam:NoExecute",
		"taintEffect: PreferNoSchedule": "nidhogg.uswitch.com/kube-system.kiam:PreferNoSchedule",
	} {
		const daemonSet = "kind: DaemonSet\nmetadata: {name: kiam, namespace: kube-system}\nspec: {template: {spec: {nodeSelector: {pool: a}}}}\n---\n"
		r := Nidhogg(Source{Name: "x", Data: []byte(daemonSet + "daemonsets: [{name: kiam, namespace: kube-system}]\n" + text)})
		gates := compileAll(t, checkGates(t, r))
		if len(gates) != 1 {
			t.Errorf("%q: %d gates:\n%s", text, len(gates), findingsText(r))
			continue
		}
		for pool, want := range map[string][]string{"a": {want}, "b": nil} {
			f := freshNode(gates, []gate.Condition{readyNode})
			f.Node.Labels = labels.Set{"pool": pool}
			if got := taintsOf(gate.Decide(gates, f, epoch)); !slices.Equal(got, want) {
				t.Errorf("%q: a node of pool %s has the taints %v, want %v", text, pool, got, want)
			}
		}
	}
}

// nodetaintshandler excludes system pools and has one taint, one label and one annotation.
// An environment variable enables its backfill.
func TestSeedNodetaintshandlerConvertEnvironment(t *testing.T) {
	for text, backfill := range map[string]bool{
		"": false, "STARTUP_BACKFILL=1": true, "STARTUP_BACKFILL=true": false, "export STARTUP_BACKFILL='1'\n": true,
		"# x\nSTARTUP_WEBHOOK=1\n": false, "STARTUP_BACKFILL=1\nSTARTUP_BACKFILL=0": false,
	} {
		r := NodeTaintsHandler(Source{Name: "x", Data: []byte(text)}, "init")
		if len(r.all) != 1 {
			t.Errorf("%q: %d gates:\n%s", text, len(r.all), findingsText(r))
			continue
		}
		spec := r.all[0].NodeGate.Spec
		if got := spec.ExistingNodes == "CloseIfIdle"; got != backfill || spec.OpenWhen[0].Pods.Namespace != "init" {
			t.Errorf("%q: backfill %v, want %v; %+v", text, got, backfill, spec.OpenWhen[0].Pods)
		}
	}
}
