// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// readable is the size up to which the birth policy reads a parameter.
const readable = 48 << 10

// skimmed is the size up to which the birth policy looks into a selector before it
// has made sure that it is one.
const skimmed = 1 << 10

// damages are all the ways in which a parameter can be wrong, by the annotation
// and what is in it.
var damages = map[string][]string{
	v1alpha1.ParameterKey: {
		"", " ", "-a", "a-", "a b", "a/b/c", "/a", "a/", "A.example/x", "é", "a\n", `a"b`, "a=b", "a:b",
		strings.Repeat("a", 64), strings.Repeat("a", 254) + "/a", strings.Repeat("a", readable), strings.Repeat("a", 200<<10),
	},
	v1alpha1.ParameterValue: {
		" ", "a b", "-", "a-", "é", "a\n", `"`, `\`, strings.Repeat("a", 64), strings.Repeat("a", readable), strings.Repeat("a", 200<<10),
	},
	v1alpha1.ParameterEffect: {
		"", "noschedule", "NoSchedule ", "NoSchedule\n", "PreferNoExecute", strings.Repeat("a", 200<<10),
	},
	v1alpha1.ParameterSource: {
		"", " ", `crd","state":"Open`, "crd\n", "é", `\`, strings.Repeat("a", 254), strings.Repeat("a", readable), strings.Repeat("a", 200<<10),
	},
	v1alpha1.ParameterSelector: {
		" ", "\n", "what", "In", "In ", "In  ", "In key", "in key v", "Is key v", "Equals key v", "In  v", "In key v v", "In key v ", " In key v",
		"In key v\n", "\nIn key v", "In key v\r\nIn key v", "In\tkey\tv", "In key é", "In key -", "In key a, b", "In key " + strings.Repeat("a", 64),
		"NotIn", "NotIn key", "NotIn key a b", "Exists", "Exists ", "Exists -", "Exists a/b/c", "Exists key v", "Exists key ", "Exists é",
		"DoesNotExist", "DoesNotExist ", "DoesNotExist key v", "Exists " + strings.Repeat("a", 64), "{}", "null", "key=value", "\x00", "\u2028",
		strings.Repeat("\n", skimmed), strings.Repeat(" ", skimmed), strings.Repeat(",", skimmed), strings.Repeat("x\n", skimmed/2),
		"In a " + strings.Repeat(",", skimmed-6) + "-", strings.Repeat("NotIn a \n", skimmed/9) + "-", strings.Repeat(" \n", skimmed/2),
		strings.Repeat("\n", readable), strings.Repeat(" ", readable), strings.Repeat(",", readable), "In a " + strings.Repeat(",", readable-6) + "-",
		"Exists " + strings.Repeat("a", readable-8), strings.Repeat("DoesNotExist a\n", readable/15) + "-", strings.Repeat("x", 200<<10),
	},
}

// damaged returns sound parameters that select every node, each with one thing
// wrong.
func damaged() (out []*corev1.PodTemplate, what map[string]string) {
	what = map[string]string{}
	add := func(description string, damage func(*corev1.PodTemplate)) {
		p := parameter(fmt.Sprintf("damaged-%d", len(out)))
		damage(p)
		what[p.Name] = description
		out = append(out, p)
	}
	for annotation, values := range damages {
		add("without "+annotation, func(p *corev1.PodTemplate) { delete(p.Annotations, annotation) })
		for _, value := range values {
			add(fmt.Sprintf("%s: %.40q", annotation, value), func(p *corev1.PodTemplate) { p.Annotations[annotation] = value })
		}
	}
	add("without annotations", func(p *corev1.PodTemplate) { p.Annotations = nil })
	for _, name := range []string{"dot.ted", strings.Repeat("a", 64), strings.Repeat("a", 253)} {
		add("name "+name, func(p *corev1.PodTemplate) { p.Name = name })
	}
	return out, what
}

// TestDamagedParameters: none of them refuses a Node or changes it, and a sound
// one next to them works.
func TestDamagedParameters(t *testing.T) {
	in := install(t)
	parameters, what := damaged()
	sound := newGate("sound", "b", metav1.LabelSelector{MatchLabels: label(t)})
	in.put(t, append(parameters, rendered(t, sound))...)
	t.Logf("%d damaged parameters", len(parameters))

	for name, node := range map[string]*corev1.Node{
		"a bare node":     {},
		"a node with all": {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b", "key": "v"}, Annotations: map[string]string{"c": "d"}}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{foreign}}},
		"a selected node": {ObjectMeta: metav1.ObjectMeta{Labels: label(t)}},
	} {
		t.Run(name, func(t *testing.T) {
			node.Name = "any"
			created, err := in.admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{DryRun: dryRun})
			if err != nil {
				t.Fatal(err)
			}
			want := 0
			if node.Labels["test"] != "" {
				want = 1
			}
			for annotation, record := range created.Annotations {
				if gate, ok := strings.CutPrefix(annotation, prefix); ok && gate != "sound" {
					t.Errorf("the parameter with %s wrote %s", what[gate], record)
				}
			}
			if got := len(created.Annotations) - len(node.Annotations); got != want {
				t.Errorf("%d records were written, want %d: %v", got, want, created.Annotations)
			}
			if got := len(created.Spec.Taints) - len(node.Spec.Taints) - 1; got != want { // 1: core's own
				t.Errorf("%d taints were added, want %d: %v", got, want, created.Spec.Taints)
			}
		})
	}
}

// TestCostlyParameters: the largest parameters that the policy reads refuse no
// Node. All of these are valid, and select it.
func TestCostlyParameters(t *testing.T) {
	in := install(t)
	values := func(n int) string {
		out := make([]string, n)
		for i := range out {
			out[i] = fmt.Sprintf("v%d", i)
		}
		return strings.Join(out, ",")
	}
	lines := func(line string) string { return strings.TrimSuffix(strings.Repeat(line+"\n", 64), "\n") }
	longKey := strings.Repeat("a.", 126) + "a/" + strings.Repeat("b", 63)
	selectors := map[string]string{
		"short-lines":  lines("Exists a"),
		"short-not-in": lines("NotIn b "),
		"long-keys":    lines("DoesNotExist " + longKey),
		"many-values":  "NotIn a " + values(1024),
		"empty-values": "NotIn a " + strings.Repeat(",", 1023),
		"long-values":  lines("NotIn " + longKey + " " + strings.TrimSuffix(strings.Repeat(strings.Repeat("v", 63)+",", 6), ",")),
	}
	var parameters []*corev1.PodTemplate
	for name, selector := range selectors {
		if len(selector) > readable {
			t.Fatalf("the selector %s has %d bytes and is not read", name, len(selector))
		}
		p := parameter(name)
		p.Annotations[v1alpha1.ParameterSelector] = selector
		parameters = append(parameters, p)
	}
	in.put(t, parameters...)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "any", Labels: map[string]string{"a": "b"}}}
	created, err := in.admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{DryRun: dryRun})
	if err != nil {
		t.Fatal(err)
	}
	for name := range selectors {
		if _, ok := created.Annotations[prefix+name]; !ok {
			t.Errorf("the gate with the selector %s did not close", name)
		}
	}
}

// TestCostlyNodes: nodes that carry as much as the API lets them are not
// refused, and do not smuggle in a record.
func TestCostlyNodes(t *testing.T) {
	in := install(t)
	in.put(t, rendered(t, newGate("one", "a", metav1.LabelSelector{MatchLabels: label(t)})))

	taints := func(n int) []corev1.Taint {
		out := make([]corev1.Taint, n)
		for i := range out {
			out[i] = corev1.Taint{Key: fmt.Sprintf("t%d", i), Effect: corev1.TaintEffectNoSchedule}
		}
		return out
	}
	numbered := func(n int, value string) map[string]string {
		out := map[string]string{}
		for i := range n {
			out[fmt.Sprintf("k%d", i)] = value
		}
		return out
	}
	const limit = 256 << 10
	full := func(free int) map[string]string {
		return map[string]string{"k": strings.Repeat("é", (limit-1-free)/2)}
	}
	tests := map[string]struct {
		taints              []corev1.Taint
		annotations, labels map[string]string
		noTaint, noRecord   bool
	}{
		"1,000 taints":                    {taints: taints(1000)},
		"20,000 taints":                   {taints: taints(20_000), noTaint: true, noRecord: true},
		"1,024 annotations":               {annotations: numbered(1024, "")},
		"1,025 annotations":               {annotations: numbered(1025, ""), noRecord: true},
		"40,000 annotations":              {annotations: numbered(40_000, ""), noRecord: true},
		"annotations with room":           {annotations: full(120)},
		"annotations without room":        {annotations: full(110), noRecord: true},
		"annotations full":                {annotations: full(0), noRecord: true},
		"20,000 labels":                   {labels: numbered(20_000, "v")},
		"many long annotations, and room": {annotations: numbered(1000, strings.Repeat("v", 250))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "heavy", Labels: map[string]string{"test": "TestCostlyNodes"}, Annotations: test.annotations}}
			maps.Copy(node.Labels, test.labels)
			// Whatever else there is, this one must not come through.
			node.Annotations = maps.Clone(test.annotations)
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, prefix+"one", "forged")
			node.Spec.Taints = test.taints
			created, err := in.admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{DryRun: dryRun})
			if err != nil {
				t.Fatalf("%.400v", err)
			}
			if got, want := len(created.Spec.Taints)-len(test.taints), 2; got != want && !test.noTaint { // and core's own
				t.Errorf("%d taints were added, want %d", got, want)
			}
			want := recordA
			if test.noRecord {
				want = ""
			}
			if got := created.Annotations[prefix+"one"]; got != want {
				t.Errorf("the record is %q, want %q", got, want)
			}
		})
	}
}
