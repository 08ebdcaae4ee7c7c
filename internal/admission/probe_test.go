// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/internal/admission"
)

// TestProof tests that the proof succeeds while the policy is in force, reports the
// binding once it is deleted, and succeeds again when it has been restored.
func TestProof(t *testing.T) {
	in := installBirth(t)
	gate := newGate("proved", "a", metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "pool", Operator: metav1.LabelSelectorOpExists},
		{Key: "pool", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"gpu", "probe-0"}},
	}})
	in.close(t, gate)
	in.awaitProof(t, gate)

	bindings := in.admin.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	binding, err := bindings.Get(t.Context(), admission.BirthPolicy, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := bindings.Delete(t.Context(), admission.BirthPolicy, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // even if this test fails: the other tests need the binding
		binding.ResourceVersion = ""
		if _, err := bindings.Create(context.Background(), binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	})
	eventually(t, func() error {
		err := in.prove(t.Context(), gate)
		if err == nil {
			return fmt.Errorf("the gate is still closed at birth")
		}
		if want := "MutatingAdmissionPolicyBinding nodegate-birth"; !strings.Contains(err.Error(), want) {
			t.Fatalf("the proof's error is %q, want %s in it", err, want)
		}
		return nil
	})

	binding.ResourceVersion = ""
	if _, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	in.awaitProof(t, gate)
	in.close(t, newGate("new", "a", metav1.LabelSelector{})) // a gate that no earlier parameter contains
}

func TestProved(t *testing.T) {
	gate := newGate("one", "a", metav1.LabelSelector{})
	closed := map[string]string{prefix + "one": recordA}
	tests := map[string]struct {
		annotations map[string]string
		taints      []corev1.Taint
		want        string
	}{
		"closed":            {closed, []corev1.Taint{notReady, taintA}, ""},
		"nothing":           {nil, nil, "MutatingAdmissionPolicyBinding nodegate-birth exist"},
		"only the taint":    {nil, []corev1.Taint{taintA}, "without a record"},
		"only the record":   {closed, []corev1.Taint{notReady}, "removes it"},
		"another value":     {closed, []corev1.Taint{withValue(taintA, "x")}, "removes it"},
		"another effect":    {closed, []corev1.Taint{withEffect(taintA, corev1.TaintEffectNoExecute)}, "removes it"},
		"an invalid record": {map[string]string{prefix + "one": "garbage"}, []corev1.Taint{taintA}, "apply the manifests"},
		"an older gate":     {map[string]string{prefix + "one": recordB}, []corev1.Taint{taintB}, "is not up to date"},
		"another record":    {map[string]string{prefix + "one": `{"state":"Open"}`}, []corev1.Taint{taintA}, "is not up to date"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations}, Spec: corev1.NodeSpec{Taints: test.taints}}
			err := admission.Proved(admission.ByPolicy, gate, node)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// TestProbe tests that the selector of a gate selects its probe, for every selector that
// can select a node.
func TestProbe(t *testing.T) {
	random := seeded(t)
	impossible := 0
	const rounds = 5_000
	for range rounds {
		gate := newGate("one", "a", randomSelector(random))
		selector, err := gate.Spec.NodeSelector.AsSelector()
		if err != nil {
			t.Fatal(err)
		}
		probe, ok := admission.Probe(gate, admission.Entry{})
		switch {
		case ok && !selector.Matches(labels.Set(probe.Labels)):
			t.Errorf("selector %q does not select its probe: %v", selector, probe.Labels)
		case !ok:
			impossible++
			if set, ok := anyMatch(selector, random); ok {
				t.Errorf("no probe for selector %q, which selects %v", selector, set)
			}
		}
	}
	if impossible == 0 || impossible > rounds/2 {
		t.Errorf("%d of %d selectors contradict themselves: the generator has become one-sided", impossible, rounds)
	}
}

// TestProbeOfEditedGate tests that the previous version of a gate does not select its probe, if
// there are labels that only the current version selects.
func TestProbeOfEditedGate(t *testing.T) {
	random := seeded(t)
	avoided := 0
	const rounds = 5_000
	for range rounds {
		was, gate := newGate("one", "a", randomSelector(random)), newGate("one", "a", randomSelector(random))
		before, err := admission.NewEntry(was)
		if err != nil {
			t.Fatal(err)
		}
		old, err := was.Spec.NodeSelector.AsSelector()
		if err != nil {
			t.Fatal(err)
		}
		selector, err := gate.Spec.NodeSelector.AsSelector()
		if err != nil {
			t.Fatal(err)
		}
		probe, ok := admission.Probe(gate, before)
		if _, possible := admission.Probe(gate, admission.Entry{}); ok != possible {
			t.Errorf("selector %q, before %q: a probe %t, without the previous version %t", selector, old, ok, possible)
		}
		switch {
		case !ok:
		case !selector.Matches(labels.Set(probe.Labels)):
			t.Errorf("selector %q, before %q, does not select its probe: %v", selector, old, probe.Labels)
		case !old.Matches(labels.Set(probe.Labels)):
			avoided++
		default:
			for range 200 {
				if set := labels.Set(randomLabels(random)); selector.Matches(set) && !old.Matches(set) {
					t.Errorf("selector %q, before %q: both select the probe %v, only the former selects %v", selector, old, probe.Labels, set)
					break
				}
			}
		}
	}
	if avoided == 0 {
		t.Error("no selector had a probe of its own: the generator has become one-sided")
	}
}

// anyMatch searches for labels that a selector matches.
func anyMatch(selector labels.Selector, random *rand.Rand) (labels.Set, bool) {
	for range 200 {
		if set := labels.Set(randomLabels(random)); selector.Matches(set) {
			return set, true
		}
	}
	return nil, false
}

// The proof's error names the objects to check, which depend on policy or webhook.
func TestProofHints(t *testing.T) {
	for by, want := range map[admission.Birth]string{
		admission.ByPolicy: "MutatingAdmissionPolicyBinding nodegate-birth", admission.ByWebhook: "MutatingWebhookConfiguration nodegate-birth exists, that Service nodegate-webhook has ready endpoints, and that every API server reaches them, trusts their certificate, and presents the client certificate that --webhook-client-ca-file requires, if it is set",
	} {
		err := admission.Proved(by, newGate("one", "a", metav1.LabelSelector{}), &corev1.Node{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want one with %q", by, err, want)
		}
	}
}
