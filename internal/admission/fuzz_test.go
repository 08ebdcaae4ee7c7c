// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// FuzzParameter checks that correcting any parameter results in the wanted entries, that
// a second correction changes nothing, and that labels of other writers are kept.
func FuzzParameter(f *testing.F) {
	entries := []Entry{
		{Name: "a", Taint: v1alpha1.Taint{Key: "example.com/a", Value: "v", Effect: corev1.TaintEffectNoSchedule}},
		{Name: "b", Taint: v1alpha1.Taint{Key: "example.com/a", Effect: corev1.TaintEffectNoExecute}, Nodes: []corev1.NodeSelectorRequirement{{Key: "os", Operator: corev1.NodeSelectorOpIn, Values: []string{"linux"}}}},
	}
	want := Parameter("nodegate-system", v1alpha1.SourceCRD, entries)
	for _, p := range []*corev1.PodTemplate{want, Parameter("n", "files", nil), Parameter("n", "crd", entries[1:]), {}} {
		raw, err := json.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"metadata":{"labels":{"other":"l"}},"template":{"spec":{"schedulingGates":[{"name":"a"},{"name":"a"}],"tolerations":[{},{}],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{},{}]}}}}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var have corev1.PodTemplate
		if json.Unmarshal(raw, &have) != nil {
			return
		}
		before := have.DeepCopy()
		got, _ := Corrected(&have, want)
		if !maps.EqualFunc(Entries(got), Entries(want), Entry.Equal) {
			t.Errorf("entries after the correction: %+v", Entries(got))
		}
		if again, changed := Corrected(got, want); changed {
			t.Errorf("a second correction results in %+v", again)
		}
		for key, value := range before.Labels {
			if _, own := want.Labels[key]; !own && got.Labels[key] != value {
				t.Errorf("label %s of another writer is %q, was %q", key, got.Labels[key], value)
			}
		}
		if got.ResourceVersion != before.ResourceVersion {
			t.Error("a stale correction would succeed")
		}
	})
}

// FuzzSelector checks that a gate's entry in the parameter selects the same nodes as the
// gate.
func FuzzSelector(f *testing.F) {
	f.Add([]byte(`{"matchLabels":{"os":"linux"},"matchExpressions":[{"key":"pool","operator":"NotIn","values":["a","b","a"]}]}`), []byte(`{"os":"linux","pool":"c"}`))
	f.Add([]byte(`{"matchExpressions":[{"key":"a","operator":"Exists"},{"key":"b","operator":"DoesNotExist"}]}`), []byte(`{"a":""}`))
	f.Add([]byte(`{"matchExpressions":[{"key":"a","operator":"In","values":[]}]}`), []byte(`{}`))
	f.Add([]byte(`{"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]}`), []byte(`{"a":"2"}`))
	f.Fuzz(func(t *testing.T, selector, nodeLabels []byte) {
		ng := &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.NodeGateSpec{Taint: v1alpha1.Taint{Key: "example.com/a", Effect: corev1.TaintEffectNoSchedule}}}
		var of map[string]string
		if json.Unmarshal(selector, &ng.Spec.NodeSelector) != nil || json.Unmarshal(nodeLabels, &of) != nil {
			return
		}
		compiled, err := ng.Spec.NodeSelector.AsSelector()
		entry, refused := NewEntry(ng)
		if (err != nil) != (refused != nil) {
			t.Fatalf("the gate's selector: %v; the parameter's entry: %v", err, refused)
		}
		if err != nil || len(entry.Nodes) == 0 {
			if err == nil && !compiled.Matches(labels.Set(of)) {
				t.Errorf("the entry has no requirements, but the gate does not select %v", of)
			}
			return
		}
		affinity, err := nodeaffinity.NewNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: entry.Nodes}}})
		if err != nil {
			t.Fatalf("requirements %v: %v", entry.Nodes, err)
		}
		if want, got := compiled.Matches(labels.Set(of)), affinity.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: of}}); got != want {
			t.Errorf("selector %s, labels %v: selected by the gate: %t, by the parameter: %t", selector, of, want, got)
		}
		back := Entries(Parameter("n", "crd", []Entry{entry}))
		if one, there := back["a"]; len(back) != 1 || !there || !one.Equal(entry) {
			t.Errorf("%+v is read back as %+v", entry, back)
		}
	})
}
