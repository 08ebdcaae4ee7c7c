// SPDX-License-Identifier: Apache-2.0

package write

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
)

var (
	ours   = kubetest.Taint("example.com/ours", "", corev1.TaintEffectNoSchedule)
	theirs = kubetest.Taint("example.com/theirs", "x", corev1.TaintEffectNoSchedule)
)

func closing(taints ...corev1.Taint) *gate.Decision {
	return &gate.Decision{Taints: append(taints, ours), Records: map[string]string{"g": `{"state":"Closed"}`}}
}

func TestWriterWrites(t *testing.T) {
	s := kubetest.Start(t)
	w, err := NewWriter(s.Admin())
	if err != nil {
		t.Fatal(err)
	}
	facts := nodestore.New(nodestore.Options{})
	bare := facts.Convert(s.Node(t, "writes"))
	if len(bare.Taints) != 0 || bare.HasAnnotations {
		t.Fatalf("node = %+v", bare)
	}
	// The node has neither taints nor annotations.
	node, err := w.Apply(t.Context(), bare, closing())
	if err != nil {
		t.Fatalf("closing: %v", err)
	}
	if len(node.Spec.Taints) != 1 || node.Annotations["gate.nodegate.dev/g"] == "" {
		t.Errorf("node = %+v", node)
	}
	written, err := s.CoreV1().Nodes().Get(t.Context(), "writes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(written.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == v1alpha1.FieldManager }) {
		t.Errorf("managed fields = %+v", written.ManagedFields)
	}
	if diff := cmp.Diff(facts.Convert(written), facts.Convert(node)); diff != "" {
		t.Errorf("the facts about the returned Node differ from those about the stored one:\n%s", diff)
	}
	// The same patch no longer applies.
	if _, err := w.Apply(t.Context(), bare, closing()); !errors.Is(err, ErrConflict) {
		t.Errorf("closing again: %v", err)
	}
	// Open a gate on a node that has not reported its boot ID.
	closed := facts.Convert(node)
	open := &gate.Decision{Records: map[string]string{"g": `{"state":"Open"}`}, Verdicts: opening}
	if node, err = w.Apply(t.Context(), closed, open); err != nil || len(node.Spec.Taints) != 0 {
		t.Fatalf("opening: %v, %+v", err, node)
	}
	// Remove the last annotation, and write a record when there is none.
	if node, err = w.Apply(t.Context(), facts.Convert(node), &gate.Decision{Records: map[string]string{"g": ""}}); err != nil || len(node.Annotations) != 0 {
		t.Fatalf("dropping the record: %v, %+v", err, node)
	}
	if node, err = w.Apply(t.Context(), facts.Convert(node), closing()); err != nil {
		t.Fatalf("closing once more: %v", err)
	}
	if node, err = w.Apply(t.Context(), facts.Convert(node), &gate.Decision{Taints: node.Spec.Taints}); node != nil || err != nil {
		t.Errorf("nothing to write: %v, %v", node, err)
	}
}

func TestWriterConflicts(t *testing.T) {
	s := kubetest.Start(t)
	w, err := NewWriter(s.Admin())
	if err != nil {
		t.Fatal(err)
	}
	boot := func(id string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.NodeInfo.BootID = id }
	}
	with := func(taints ...corev1.Taint) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = taints }
	}
	tests := []struct {
		name      string
		before    []func(*corev1.Node)
		meanwhile func(*testing.T)
		decision  *gate.Decision
		want      error
	}{
		{"taint-twice", []func(*corev1.Node){with(theirs)}, func(t *testing.T) {
			s.Update(t, "taint-twice", with(theirs, ours))
		}, closing(theirs), ErrConflict},
		{"first-taint", nil, func(t *testing.T) {
			s.Update(t, "first-taint", with(theirs))
		}, closing(), ErrConflict},
		{"taints-gone", []func(*corev1.Node){with(theirs)}, func(t *testing.T) {
			s.Update(t, "taints-gone", with())
		}, closing(theirs), ErrConflict},
		{"moved", []func(*corev1.Node){with(ours)}, func(t *testing.T) {
			s.Update(t, "moved", with(theirs, ours))
		}, &gate.Decision{}, ErrConflict},
		{"rebooted", []func(*corev1.Node){with(ours), boot("old")}, func(t *testing.T) {
			n, err := s.CoreV1().Nodes().Get(t.Context(), "rebooted", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			boot("new")(n)
			if _, err := s.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}, &gate.Decision{Verdicts: opening}, ErrConflict},
		{"recreated", []func(*corev1.Node){with(ours)}, func(t *testing.T) {
			if err := s.CoreV1().Nodes().Delete(t.Context(), "recreated", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			s.Node(t, "recreated", with(ours))
		}, &gate.Decision{}, ErrConflict},
		{"gone", []func(*corev1.Node){with(ours)}, func(t *testing.T) {
			if err := s.CoreV1().Nodes().Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}, &gate.Decision{}, ErrGone},
		{"invalid", nil, nil, &gate.Decision{Taints: []corev1.Taint{kubetest.Taint("example.com/k", "not a value", "NoSchedule")}}, ErrDenied},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := nodestore.New(nodestore.Options{}).Convert(s.Node(t, tt.name, tt.before...))
			if tt.meanwhile != nil {
				tt.meanwhile(t)
			}
			_, err := w.Apply(t.Context(), n, tt.decision)
			if !errors.Is(err, tt.want) {
				t.Errorf("error = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestWriterDenied(t *testing.T) {
	s := kubetest.Start(t)
	n := nodestore.New(nodestore.Options{}).Convert(s.Node(t, "denied"))
	nobody, err := NewWriter(s.User("nobody"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nobody.Apply(t.Context(), n, closing()); !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("without permission: %v", err)
	}
	policies := s.AdmissionregistrationV1()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "no-taints"}}
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{"UPDATE"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
		},
	}}}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{
		Expression: "object.metadata.name != 'denied' || !has(object.spec.taints)", Message: "taints are not allowed",
	}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "no-taints"}}
	binding.Spec.PolicyName = "no-taints"
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{"Deny"}
	if _, err := policies.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := policies.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = policies.ValidatingAdmissionPolicyBindings().Delete(context.Background(), "no-taints", metav1.DeleteOptions{})
		_ = policies.ValidatingAdmissionPolicies().Delete(context.Background(), "no-taints", metav1.DeleteOptions{})
	})
	w, err := NewWriter(s.Admin())
	if err != nil {
		t.Fatal(err)
	}
	store := nodestore.New(nodestore.Options{})
	kubetest.Eventually(t, "the policy is in force", func() bool {
		node, err := w.Apply(t.Context(), n, closing())
		if err != nil {
			if !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "taints are not allowed") {
				t.Fatalf("denied by policy: %v", err)
			}
			return true
		}
		if node, err = w.Apply(t.Context(), store.Convert(node), &gate.Decision{Records: map[string]string{"g": ""}}); err != nil {
			t.Fatal(err)
		}
		n = store.Convert(node)
		return false
	})
}
