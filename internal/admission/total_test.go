// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// damages are damaged parameters that the API server accepts.
var damages = map[string]func(*corev1.PodTemplate){
	"no gates":               func(p *corev1.PodTemplate) { p.Template.Spec.SchedulingGates = nil },
	"more gates than taints": func(p *corev1.PodTemplate) { addGate(p, "x") },
	"no taints":              func(p *corev1.PodTemplate) { p.Template.Spec.Tolerations = nil },
	"more taints than gates": func(p *corev1.PodTemplate) { addToleration(p, corev1.Toleration{Key: "z", Operator: "Exists"}) },
	"no affinity":            func(p *corev1.PodTemplate) { p.Template.Spec.Affinity = nil },
	"no node affinity":       func(p *corev1.PodTemplate) { p.Template.Spec.Affinity.NodeAffinity = nil },
	"preferred nodes": func(p *corev1.PodTemplate) {
		terms(p).NodeSelectorTerms = append(terms(p).NodeSelectorTerms, corev1.NodeSelectorTerm{})
	},
	"not sorted":            reverse,
	"a name with a dot":     func(p *corev1.PodTemplate) { p.Template.Spec.SchedulingGates[0].Name = "a.b" },
	"a name with a domain":  func(p *corev1.PodTemplate) { p.Template.Spec.SchedulingGates[0].Name = "a.b/c" },
	"a name with a capital": func(p *corev1.PodTemplate) { p.Template.Spec.SchedulingGates[0].Name = "A" },
	"a name of 64 letters": func(p *corev1.PodTemplate) {
		p.Template.Spec.SchedulingGates[0].Name = "a.b/" + strings.Repeat("a", 63)
	},
	"no annotations":             func(p *corev1.PodTemplate) { p.Annotations = nil },
	"an empty source":            func(p *corev1.PodTemplate) { p.Annotations[v1alpha1.ParameterSource] = "" },
	"a source that is JSON":      func(p *corev1.PodTemplate) { p.Annotations[v1alpha1.ParameterSource] = `crd","state":"Open` },
	"a source with a line end":   func(p *corev1.PodTemplate) { p.Annotations[v1alpha1.ParameterSource] = "crd\n" },
	"a source with a backslash":  func(p *corev1.PodTemplate) { p.Annotations[v1alpha1.ParameterSource] = `\` },
	"a source of 254 letters":    func(p *corev1.PodTemplate) { p.Annotations[v1alpha1.ParameterSource] = strings.Repeat("a", 254) },
	"a source of 200 KiB":        func(p *corev1.PodTemplate) { p.Annotations[v1alpha1.ParameterSource] = strings.Repeat("a", 200<<10) },
	"20,000 gates, nothing else": manyGates,
	"257 gates":                  func(p *corev1.PodTemplate) { fill(p, 257, 1, 1) },
	"the most that etcd stores":  func(p *corev1.PodTemplate) { fill(p, 6000, 1, 1) },
	"2049 requirements":          func(p *corev1.PodTemplate) { fill(p, 1, 2049, 1) },
	"20,000 requirements":        func(p *corev1.PodTemplate) { fill(p, 1, 20_000, 1) },
	"8193 values":                func(p *corev1.PodTemplate) { fill(p, 3, 1, 2731) },
	"200,000 values":             func(p *corev1.PodTemplate) { fill(p, 1, 1, 200_000) },
	"20,000 requirements, apart": func(p *corev1.PodTemplate) { fill(p, 200, 100, 1) },
}

// manyGates leaves many gates in the parameter, and no terms.
func manyGates(p *corev1.PodTemplate) {
	p.Template.Spec = corev1.PodSpec{Containers: p.Template.Spec.Containers}
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	for i := range 20_000 {
		name := ""
		for n := i; len(name) < 4; n /= len(letters) {
			name += string(letters[n%len(letters)])
		}
		addGate(p, name)
	}
}

func addGate(p *corev1.PodTemplate, name string) {
	p.Template.Spec.SchedulingGates = append(p.Template.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: name})
}

func addToleration(p *corev1.PodTemplate, t corev1.Toleration) {
	p.Template.Spec.Tolerations = append(p.Template.Spec.Tolerations, t)
}

func terms(p *corev1.PodTemplate) *corev1.NodeSelector {
	return p.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// fill replaces the gates of the parameter by n gates that select all nodes without
// certain labels.
func fill(p *corev1.PodTemplate, n, requirements, values int) {
	p.Template.Spec.SchedulingGates, p.Template.Spec.Tolerations, terms(p).NodeSelectorTerms = nil, nil, nil
	for i := range n {
		addGate(p, fmt.Sprintf("gate-%d", i))
		addToleration(p, corev1.Toleration{Key: taintA.Key, Operator: corev1.TolerationOpEqual, Effect: taintA.Effect})
		var term corev1.NodeSelectorTerm
		for range requirements {
			r := corev1.NodeSelectorRequirement{Key: "a", Operator: corev1.NodeSelectorOpNotIn}
			for v := range values {
				r.Values = append(r.Values, strconv.Itoa(v))
			}
			term.MatchExpressions = append(term.MatchExpressions, r)
		}
		terms(p).NodeSelectorTerms = append(terms(p).NodeSelectorTerms, term)
	}
}

// TestDamagedParameters tests that no damaged parameter rejects or changes a Node.
func TestDamagedParameters(t *testing.T) {
	in := installBirth(t)
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			p := rendered(t, newGate("one", "a", metav1.LabelSelector{}), newGate("two", "b", metav1.LabelSelector{}))
			p.Namespace = unguarded
			damage(p)
			in.put(t, p)
			for _, node := range []*corev1.Node{
				{},
				{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d", prefix + "one": "stays"}},
					Spec:       corev1.NodeSpec{Taints: []corev1.Taint{foreign}},
				},
			} {
				node.Name = "any"
				created, err := in.admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{DryRun: dryRun})
				if err != nil {
					t.Fatalf("%.400v", err)
				}
				if diff := cmp.Diff(node.Annotations, created.Annotations); diff != "" {
					t.Errorf("annotations (-sent +created):\n%s", diff)
				}
				if diff := cmp.Diff(append(slices.Clone(node.Spec.Taints), notReady), created.Spec.Taints); diff != "" {
					t.Errorf("taints (-want +created):\n%s", diff)
				}
			}
		})
	}
}

// TestTaintsThatAreNotAllowed tests that the policy ignores forbidden taints in the
// parameter, and closes the other gates.
func TestTaintsThatAreNotAllowed(t *testing.T) {
	in := installBirth(t)
	detaching := newGate("detaching", "a", metav1.LabelSelector{})
	detaching.Spec.Taint = v1alpha1.Taint{Key: v1alpha1.TaintOutOfService, Effect: corev1.TaintEffectNoSchedule}
	evicting := newGate("evicting", "a", metav1.LabelSelector{})
	evicting.Spec.Taint.Effect = corev1.TaintEffectNoExecute
	p := rendered(t, detaching, evicting, newGate("foreign", "x", metav1.LabelSelector{}), newGate("sound", "a", metav1.LabelSelector{}))
	p.Namespace = unguarded
	in.put(t, p)
	created, err := in.admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "any"}}, metav1.CreateOptions{DryRun: dryRun})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]corev1.Taint{taintA}, settled(created.Spec.Taints, 0)); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{prefix + "sound": recordA}, created.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

// TestLargestParameters tests that the largest parameters that nodegate writes reject no
// Node, close all of their gates, and stay within the cost limits.
func TestLargestParameters(t *testing.T) {
	in := installBirth(t)
	for name, size := range map[string]struct{ gates, requirements, values int }{
		"256 gates":         {256, 8, 4},
		"2048 requirements": {1, 2048, 4},
		"8192 values":       {1, 1, 8192},
		"all in two gates":  {2, 1024, 4},
	} {
		t.Run(name, func(t *testing.T) {
			p := parameter()
			p.Namespace = unguarded
			fill(p, size.gates, size.requirements, size.values)
			in.put(t, p)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "any", Labels: map[string]string{"a": "b"}, Annotations: numbered(700)}}
			created, err := in.admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{DryRun: dryRun})
			if err != nil {
				t.Fatal(err)
			}
			if got := len(created.Annotations) - 700; got != size.gates {
				t.Errorf("%d gates are closed, want %d", got, size.gates)
			}
			if diff := cmp.Diff([]corev1.Taint{taintA}, settled(created.Spec.Taints, 0)); diff != "" {
				t.Errorf("taints (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCostlyNodes tests that nodes with as much data as the API server accepts are not
// rejected, and cannot keep a forged record.
func TestCostlyNodes(t *testing.T) {
	in := installBirth(t)
	in.close(t, newGate("one", "a", metav1.LabelSelector{MatchLabels: label(t)}))

	taints := func(n int) []corev1.Taint {
		out := make([]corev1.Taint, n)
		for i := range out {
			out[i] = corev1.Taint{Key: fmt.Sprintf("t%d", i), Effect: corev1.TaintEffectNoSchedule}
		}
		return out
	}
	named := func(n int, name, value string) map[string]string {
		out := map[string]string{}
		for i := range n {
			out[name+strconv.Itoa(i)] = value
		}
		return out
	}
	numbered := func(n int, value string) map[string]string { return named(n, "k", value) }
	const limit = 256 << 10
	full := func(free int) map[string]string {
		return map[string]string{"k": strings.Repeat("é", (limit-1-free)/2)}
	}
	tests := map[string]struct {
		taints              []corev1.Taint
		annotations, labels map[string]string
		noTaint, noRecord   bool
		alone               bool // all annotations are replaced by the record
	}{
		"1,000 taints":            {taints: taints(1000)},
		"20,000 taints":           {taints: taints(20_000), noTaint: true, noRecord: true},
		"1,023 annotations":       {annotations: numbered(1023, "")},
		"1,024 annotations":       {annotations: numbered(1024, ""), noRecord: true},
		"4,096 annotations":       {annotations: numbered(4095, ""), noRecord: true},
		"4,097 annotations":       {annotations: numbered(4096, ""), alone: true},
		"40,000 annotations":      {annotations: numbered(40_000, ""), alone: true},
		"space for the record":    {annotations: full(120)},
		"too little space for it": {annotations: full(110), noRecord: true},
		"no space":                {annotations: full(0), noRecord: true},
		"20,000 labels":           {labels: numbered(20_000, "v")},
		"10,000 forged records":   {annotations: named(10_000, prefix, "")},
		"500 forged records":      {annotations: named(500, prefix, "forged")},
		"with them, no space":     {annotations: merged(named(300, prefix, "forged"), numbered(1024, "")), noRecord: true},
		"many long annotations":   {annotations: numbered(1000, strings.Repeat("v", 250))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "heavy", Labels: map[string]string{"test": "TestCostlyNodes"}, Annotations: test.annotations}}
			maps.Copy(node.Labels, test.labels)
			// This record must not remain.
			node.Annotations = maps.Clone(test.annotations)
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, prefix+"one", "forged")
			node.Spec.Taints = test.taints
			created, err := in.admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{DryRun: dryRun})
			if err != nil {
				t.Fatalf("%.400v", err)
			}
			if got, want := len(created.Spec.Taints)-len(test.taints), 2; got != want && !test.noTaint { // and that of Kubernetes
				t.Errorf("%d taints were added, want %d", got, want)
			}
			want := recordA
			if test.noRecord {
				want = ""
			}
			for key, got := range created.Annotations {
				if strings.HasPrefix(key, prefix) && (key != prefix+"one" || test.noRecord) {
					t.Fatalf("the forged record %s: %q remains", key, got)
				}
			}
			if test.alone && len(created.Annotations) > 1 {
				t.Errorf("%d annotations remain", len(created.Annotations)-1)
			}
			if got := created.Annotations[prefix+"one"]; got != want {
				t.Errorf("the record is %q, want %q", got, want)
			}
		})
	}
}
