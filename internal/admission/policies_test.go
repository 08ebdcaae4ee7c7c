// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
)

func TestPolicies(t *testing.T) {
	policies, err := admission.Policies(options)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, object := range policies {
		got = append(got, object.GetObjectKind().GroupVersionKind().Kind+" "+object.GetName())
	}
	want := []string{
		"MutatingAdmissionPolicy nodegate-birth",
		"MutatingAdmissionPolicyBinding nodegate-birth",
		"MutatingAdmissionPolicyBinding nodegate-birth-anchor",
		"ValidatingAdmissionPolicy nodegate-confinement",
		"ValidatingAdmissionPolicyBinding nodegate-confinement",
		"ValidatingAdmissionPolicy nodegate-records",
		"ValidatingAdmissionPolicyBinding nodegate-records",
		"ValidatingAdmissionPolicy nodegate-parameters",
		"ValidatingAdmissionPolicyBinding nodegate-parameters",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}

	shuffled := options
	shuffled.AllowedTaintKeys = append(slices.Clone(options.AllowedTaintKeys), options.AllowedTaintKeys...)
	slices.Reverse(shuffled.AllowedTaintKeys)
	again, err := admission.Policies(shuffled)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(policies, again); diff != "" {
		t.Errorf("the order of the keys matters (-want +got):\n%s", diff)
	}
}

// What the confinement policy allows can be read back from it.
func TestAllowed(t *testing.T) {
	policies, err := admission.Policies(options)
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, object := range policies {
		policy, is := object.(*admissionregistrationv1.ValidatingAdmissionPolicy)
		if !is {
			continue
		}
		keys, stamps, err := admission.Allowed(policy)
		if policy.Name != admission.ConfinementPolicy {
			if err == nil {
				t.Errorf("%s says what is allowed: %v", policy.Name, keys)
			}
			continue
		}
		read++
		set := func(list []string) map[string]bool {
			out := make(map[string]bool)
			for _, text := range list {
				out[text] = true
			}
			return out
		}
		if diff := cmp.Diff(set(options.AllowedTaintKeys), keys); err != nil || diff != "" {
			t.Errorf("%v; keys (-want +got):\n%s", err, diff)
		}
		if diff := cmp.Diff(set(options.AllowedStampAnnotations), stamps); diff != "" {
			t.Errorf("stamps (-want +got):\n%s", diff)
		}
	}
	if read != 1 {
		t.Errorf("there are %d confinement policies", read)
	}
}

func TestPoliciesOfBadOptions(t *testing.T) {
	tests := map[string]struct {
		options admission.Options
		want    []string
	}{
		"nothing":   {admission.Options{}, []string{`namespace ""`, `service account ""`}},
		"a bad key": {admission.Options{Namespace: "a", ServiceAccount: "b", AllowedTaintKeys: []string{`x"]) || true`}}, []string{`allowed taint key "x\"]) || true"`}},
		"core's keys": {admission.Options{Namespace: "a", ServiceAccount: "b", AllowedTaintKeys: []string{"node.kubernetes.io/not-ready"}},
			[]string{`"node.kubernetes.io/not-ready": keys under node.kubernetes.io/ belong to Kubernetes`}},
		"a bad stamp": {admission.Options{Namespace: "a", ServiceAccount: "b", AllowedStampAnnotations: []string{`x"]) || true`}}, []string{`allowed stamp annotation "x\"]) || true"`}},
		"stamps of others": {admission.Options{Namespace: "a", ServiceAccount: "b", AllowedStampAnnotations: []string{
			"gate.nodegate.dev/cilium", "nodegate.dev/a", "node.alpha.kubernetes.io/ttl", "kubernetes.io/a", "x.com/ok", "startup.k8s.io/completedAt"}},
			[]string{`"gate.nodegate.dev/cilium"`, `"nodegate.dev/a"`, `"node.alpha.kubernetes.io/ttl"`, `"kubernetes.io/a": annotations under kubernetes.io have a meaning`}},
		"a bad space": {admission.Options{Namespace: "a:b", ServiceAccount: "c"}, []string{`namespace "a:b"`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := admission.Policies(test.options)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error %q does not name %s", err, want)
				}
			}
		})
	}
}

// TestPoliciesCompile: the API server has nothing to say against the policies,
// and without any allowed key they are as good as any.
func TestPoliciesCompile(t *testing.T) {
	in := install(t)
	policies, err := admission.Policies(admission.Options{Namespace: "elsewhere", ServiceAccount: "nodegate"})
	if err != nil {
		t.Fatal(err)
	}
	writer, err := client.New(in.Admin(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range policies {
		object.SetName(object.GetName() + "-dry")
		if err := writer.Create(t.Context(), object, client.DryRunAll); err != nil {
			t.Errorf("%T %s: %v", object, object.GetName(), err)
		}
	}
	validating := in.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	for _, name := range []string{admission.ConfinementPolicy, admission.RecordsPolicy, admission.ParametersPolicy} {
		eventually(t, func() error {
			policy, err := validating.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if policy.Status.TypeChecking == nil {
				return fmt.Errorf("the controller manager has not checked the types of %s yet", name)
			}
			for _, warning := range policy.Status.TypeChecking.ExpressionWarnings {
				t.Errorf("%s: %s: %s", name, warning.FieldRef, warning.Warning)
			}
			return nil
		})
	}
}

// TestOnlyNodes: the policies see nothing but what they must.
func TestOnlyNodes(t *testing.T) {
	policies, err := admission.Policies(options)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, object := range policies {
		var match *admissionregistrationv1.MatchResources
		switch policy := object.(type) {
		case *admissionregistrationv1.MutatingAdmissionPolicy:
			match = policy.Spec.MatchConstraints
		case *admissionregistrationv1.ValidatingAdmissionPolicy:
			match = policy.Spec.MatchConstraints
		default:
			continue
		}
		for _, rule := range match.ResourceRules {
			got[object.GetName()] = append(got[object.GetName()], fmt.Sprint(rule.APIGroups, rule.Resources, rule.Operations))
		}
	}
	want := map[string][]string{
		"nodegate-birth":       {"[] [nodes] [CREATE]"},
		"nodegate-confinement": {"[] [nodes nodes/*] [*]"},
		"nodegate-records":     {"[] [nodes nodes/status] [UPDATE]"},
		"nodegate-parameters":  {"[] [podtemplates] [CREATE UPDATE DELETE]"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

func TestParameter(t *testing.T) {
	gate := newGate("cilium", "a", metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/os": "linux"}})
	gate.Spec.Taint.Value = "waits"
	got, err := admission.Parameter("ns", v1alpha1.SourceCRD, gate)
	if err != nil {
		t.Fatal(err)
	}
	want := metav1.ObjectMeta{
		Name:      "cilium",
		Namespace: "ns",
		Labels:    map[string]string{"nodegate.dev/birth": "true", "app.kubernetes.io/managed-by": "nodegate", "velero.io/exclude-from-backup": "true"},
		Annotations: map[string]string{
			"nodegate.dev/key":      "test.nodegate.dev/a",
			"nodegate.dev/value":    "waits",
			"nodegate.dev/effect":   "NoSchedule",
			"nodegate.dev/selector": "In kubernetes.io/os linux",
			"nodegate.dev/source":   "crd",
		},
	}
	if diff := cmp.Diff(want, got.ObjectMeta); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
}

// TestParameterOfBadGate: what the policy would pass over is told.
func TestParameterOfBadGate(t *testing.T) {
	tests := map[string]struct {
		spoil func(*v1alpha1.NodeGate)
		want  string
	}{
		"name":     {func(g *v1alpha1.NodeGate) { g.Name = "a.b" }, "name: "},
		"key":      {func(g *v1alpha1.NodeGate) { g.Spec.Taint.Key = "a b" }, `taint key "a b"`},
		"value":    {func(g *v1alpha1.NodeGate) { g.Spec.Taint.Value = "a b" }, `taint value "a b"`},
		"effect":   {func(g *v1alpha1.NodeGate) { g.Spec.Taint.Effect = "x" }, `taint effect "x"`},
		"selector": {func(g *v1alpha1.NodeGate) { g.Spec.NodeSelector.MatchLabels = map[string]string{"a": "b c"} }, "nodeSelector: "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			gate := newGate("one", "a", metav1.LabelSelector{})
			test.spoil(gate)
			_, err := admission.Parameter("ns", v1alpha1.SourceCRD, gate)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// TestParameterIsQuiet: writing a parameter makes no API server warn, also not
// where the namespace asks for the strictest Pod Security Standard.
func TestParameterIsQuiet(t *testing.T) {
	in := install(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "strict-", Labels: map[string]string{
		"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted",
	}}}
	namespace, err := in.admin.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := in.Admin()
	var warnings warningRecorder
	config.WarningHandler = &warnings
	p := parameter("one")
	p.Namespace = namespace.Name
	if _, err := as(t, config).CoreV1().PodTemplates(namespace.Name).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if len(warnings) > 0 {
		t.Errorf("warnings: %v", warnings)
	}
	if err := in.admin.CoreV1().Namespaces().Delete(t.Context(), namespace.Name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

type warningRecorder []string

func (w *warningRecorder) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

func TestPlan(t *testing.T) {
	current := func(name string) corev1.PodTemplate { return *parameter(name) }
	edited := current("edited")
	edited.ResourceVersion = "7"
	edited.Annotations[v1alpha1.ParameterKey] = "example.com/x"
	edited.Annotations["theirs"] = "stays"
	bare := current("bare")
	bare.Annotations = nil
	annotated := current("annotated")
	annotated.Annotations["theirs"] = "stays"

	want := []*corev1.PodTemplate{parameter("new"), parameter("edited"), parameter("same"), parameter("bare"), parameter("annotated"), parameter("fresh")}
	have := []corev1.PodTemplate{current("old"), edited, current("same"), bare, annotated, current("gone")}
	plan := admission.Plan(want, have)

	names := func(parameters []*corev1.PodTemplate) (out []string) {
		for _, p := range parameters {
			out = append(out, p.Name)
		}
		return out
	}
	got := [][]string{names(plan.Create), names(plan.Update), names(plan.Delete)}
	if diff := cmp.Diff([][]string{{"fresh", "new"}, {"bare", "edited"}, {"gone", "old"}}, got); diff != "" {
		t.Fatalf("creates, updates and deletes (-want +got):\n%s", diff)
	}
	corrected := plan.Update[1]
	if corrected.ResourceVersion != "7" || corrected.Annotations["theirs"] != "stays" || corrected.Annotations[v1alpha1.ParameterKey] != "test.nodegate.dev/a" {
		t.Errorf("the corrected parameter is %v", corrected.ObjectMeta)
	}
	if edited.Annotations[v1alpha1.ParameterKey] != "example.com/x" {
		t.Error("planning changed what it was given")
	}
	if plan.Empty() || !admission.Plan(nil, nil).Empty() || !admission.Plan(want[2:3], have[2:3]).Empty() {
		t.Error("Empty is wrong")
	}
}
