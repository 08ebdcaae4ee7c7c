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
		"MutatingAdmissionPolicy nodegate-birth-anchor",
		"MutatingAdmissionPolicyBinding nodegate-birth-anchor",
		"MutatingAdmissionPolicy nodegate-tolerations",
		"MutatingAdmissionPolicyBinding nodegate-tolerations",
		"ValidatingAdmissionPolicy nodegate-confinement",
		"ValidatingAdmissionPolicyBinding nodegate-confinement",
		"ValidatingAdmissionPolicy nodegate-records",
		"ValidatingAdmissionPolicyBinding nodegate-records",
		"ValidatingAdmissionPolicy nodegate-parameters",
		"ValidatingAdmissionPolicyBinding nodegate-parameters",
		"ValidatingAdmissionPolicy nodegate-acknowledge",
		"ValidatingAdmissionPolicyBinding nodegate-acknowledge",
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
		t.Errorf("policies depend on the order of the keys (-want +got):\n%s", diff)
	}
}

// Allowed returns the options from which the confinement policy was rendered.
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
		taints, stamps, err := admission.Allowed(policy)
		if policy.Name != admission.ConfinementPolicy {
			if err == nil {
				t.Errorf("allowed taints were read from %s: %v", policy.Name, taints)
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
		want := "node.kubernetes.io/out-of-service:NoExecute, test.nodegate.dev/a:NoSchedule, " +
			"test.nodegate.dev/b:NoExecute, test.nodegate.dev/b:NoSchedule, test.nodegate.dev/c:NoSchedule"
		if err != nil || taints.String() != want {
			t.Errorf("%v; taints %s, want %s", err, taints, want)
		}
		if diff := cmp.Diff(set(options.AllowedStampAnnotations), stamps); diff != "" {
			t.Errorf("stamps (-want +got):\n%s", diff)
		}
	}
	if read != 1 {
		t.Errorf("%d confinement policies", read)
	}
}

func TestPoliciesOfBadOptions(t *testing.T) {
	tests := map[string]struct {
		options admission.Options
		want    []string
	}{
		"nothing":      {admission.Options{}, []string{`namespace ""`, `service account ""`}},
		"a bad key":    {admission.Options{Namespace: "a", ServiceAccount: "b", AllowedTaintKeys: []string{`x"]) || true`}}, []string{`allowed taint "x\"]) || true"`}},
		"a bad effect": {admission.Options{Namespace: "a", ServiceAccount: "b", AllowedTaintKeys: []string{"x:NoWay"}}, []string{`allowed taint "x:NoWay": effect "NoWay": choose one of`}},
		"keys of Kubernetes": {admission.Options{Namespace: "a", ServiceAccount: "b", AllowedTaintKeys: []string{"node.kubernetes.io/not-ready"}},
			[]string{`"node.kubernetes.io/not-ready:NoSchedule": keys under node.kubernetes.io/ belong to Kubernetes`}},
		"keys that affect all gates": {admission.Options{Namespace: "a", ServiceAccount: "b", AllowedTaintKeys: append(v1alpha1.SetupTaintKeys(), v1alpha1.TaintCloudShutdown)},
			[]string{`"node.cloudprovider.kubernetes.io/uninitialized:NoSchedule": the key marks nodes`, `"node.cluster.x-k8s.io/uninitialized:`, `"karpenter.sh/unregistered:`, `"node.cloudprovider.kubernetes.io/shutdown:`}},
		"a bad stamp": {admission.Options{Namespace: "a", ServiceAccount: "b", AllowedStampAnnotations: []string{`x"]) || true`}}, []string{`allowed stamp annotation "x\"]) || true"`}},
		"reserved stamps": {admission.Options{Namespace: "a", ServiceAccount: "b", AllowedStampAnnotations: []string{
			"gate.nodegate.dev/cilium", "nodegate.dev/a", "node.alpha.kubernetes.io/ttl", "kubernetes.io/a", "x.com/ok", "startup.k8s.io/completedAt"}},
			[]string{`"gate.nodegate.dev/cilium"`, `"nodegate.dev/a"`, `"node.alpha.kubernetes.io/ttl"`, `"kubernetes.io/a": annotations under kubernetes.io are reserved`}},
		"a bad user":  {admission.Options{Namespace: "a", ServiceAccount: "b", DaemonPodCreators: []string{`x"]) || true`}}, []string{`daemon pod creator "x\"]) || true"`}},
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
					t.Errorf("the error is %q, want %s in it", err, want)
				}
			}
		})
	}
}

// An annotation key without a domain belongs to nobody, whatever its name is.
func TestStampsWithoutADomain(t *testing.T) {
	if _, err := admission.Policies(admission.Options{Namespace: "a", ServiceAccount: "b", AllowedStampAnnotations: []string{"opened-at", "nodegate.dev"}}); err != nil {
		t.Error(err)
	}
}

// TestOnlyNodes tests that the policies match no other requests than they must.
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
		"nodegate-birth":        {"[] [nodes] [CREATE]"},
		"nodegate-birth-anchor": {"[nodegate.dev] [none] [CREATE]"}, // no such resource exists
		"nodegate-tolerations":  {"[apps] [daemonsets] [CREATE UPDATE]"},
		"nodegate-confinement":  {"[] [nodes nodes/*] [*]"},
		"nodegate-records":      {"[] [nodes nodes/status] [UPDATE]"},
		"nodegate-parameters":   {"[] [podtemplates] [CREATE UPDATE DELETE]"},
		"nodegate-acknowledge":  {"[nodegate.dev] [nodegates nodegates/status] [CREATE UPDATE]"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

func TestParameter(t *testing.T) {
	nodes := func(key, value string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	cilium, everywhere := newGate("cilium", "b", nodes("kubernetes.io/os", "linux")), newGate("everywhere", "a", metav1.LabelSelector{})
	cilium.Spec.Taint.Value = "waits"
	got := rendered(t, cilium, newGate("second", "b", nodes("pool", "gpu")), everywhere)

	meta := metav1.ObjectMeta{
		Name:        "nodegate-birth",
		Namespace:   options.Namespace,
		Labels:      map[string]string{"nodegate.dev/birth": "true", "app.kubernetes.io/managed-by": "nodegate", "velero.io/exclude-from-backup": "true"},
		Annotations: map[string]string{"nodegate.dev/source": "crd"},
	}
	if diff := cmp.Diff(meta, got.ObjectMeta); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	var lines []string
	for i, g := range got.Template.Spec.SchedulingGates {
		toleration := got.Template.Spec.Tolerations[i]
		term := got.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[i]
		lines = append(lines, fmt.Sprintf("%s %s=%s:%s %v", g.Name, toleration.Key, toleration.Value, toleration.Effect, term.MatchExpressions))
	}
	want := []string{
		"everywhere test.nodegate.dev/a=:NoSchedule []",
		"cilium test.nodegate.dev/b=waits:NoSchedule [{kubernetes.io/os In [linux]}]",
		"second test.nodegate.dev/b=:NoSchedule [{pool In [gpu]}]",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("gates (-want +got):\n%s", diff)
	}
	if again := rendered(t, everywhere, newGate("second", "b", nodes("pool", "gpu")), cilium); cmp.Diff(got, again) != "" {
		t.Error("the parameter depends on the order of the gates")
	}
	if read := admission.Entries(got); len(read) != 3 || read["cilium"].Taint != cilium.Spec.Taint || read["second"].Nodes[0].Key != "pool" {
		t.Errorf("read back: %v", read)
	}
}

// TestFit tests that older gates come first, and that smaller gates fill the remaining
// space.
func TestFit(t *testing.T) {
	entry := func(name string, requirements, values, length int) admission.Entry {
		e := admission.Entry{Name: name}
		for range requirements {
			r := corev1.NodeSelectorRequirement{Key: "k", Operator: corev1.NodeSelectorOpIn}
			for range values {
				r.Values = append(r.Values, strings.Repeat("v", length))
			}
			e.Nodes = append(e.Nodes, r)
		}
		return e
	}
	many := make([]admission.Entry, 300)
	for i := range many {
		many[i] = entry(fmt.Sprint(i), 1, 1, 1)
	}
	for name, test := range map[string]struct {
		entries []admission.Entry
		want    int
		without string
	}{
		"few":                   {many[:3], 3, ""},
		"the maximum":           {many[:256], 256, ""},
		"too many":              {many, 256, "256"},
		"too many requirements": {[]admission.Entry{entry("a", 2000, 0, 0), entry("b", 49, 0, 0), entry("c", 48, 0, 0)}, 2, "b"},
		"too many values":       {[]admission.Entry{entry("a", 1, 8000, 0), entry("b", 1, 193, 0), entry("c", 1, 192, 0)}, 2, "b"},
		"too many bytes":        {[]admission.Entry{entry("a", 1, 8000, 63), entry("b", 1, 190, 200), entry("c", 1, 1, 63)}, 2, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			fitting, tooMany := admission.Fit(test.entries)
			if len(fitting) != test.want || len(fitting)+len(tooMany) != len(test.entries) {
				t.Errorf("%d fit, %d do not; want %d to fit", len(fitting), len(tooMany), test.want)
			}
			if err := tooMany[test.without]; test.without != "" && (err == nil || !strings.Contains(err.Error(), "at most 256 gates")) {
				t.Errorf("gate %s: %v", test.without, err)
			}
		})
	}
}

// TestParameterOfBadGate tests that gates which the policy would ignore are rejected.
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
			_, err := admission.NewEntry(gate)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// TestParameterIsQuiet tests that writing a parameter causes no warning, even if the
// namespace enforces the strictest Pod Security Standard.
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
	p := parameter()
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

// TestCorrected tests that everything that the policy reads is corrected, and nothing
// else.
func TestCorrected(t *testing.T) {
	selecting := func(pool string) *corev1.PodTemplate {
		return rendered(t, newGate("one", "a", metav1.LabelSelector{MatchLabels: map[string]string{"pool": pool}}), newGate("two", "b", metav1.LabelSelector{}))
	}
	for name, test := range map[string]struct {
		edit    func(*corev1.PodTemplate)
		changed bool
	}{
		"no difference":       {func(*corev1.PodTemplate) {}, false},
		"another annotation":  {func(p *corev1.PodTemplate) { p.Annotations["theirs"] = "stays" }, false},
		"another label":       {func(p *corev1.PodTemplate) { p.Labels["theirs"] = "stays" }, false},
		"another image":       {func(p *corev1.PodTemplate) { p.Template.Spec.Containers[0].Image = "stays" }, false},
		"without annotations": {func(p *corev1.PodTemplate) { p.Annotations = nil }, true},
		"another source":      {func(p *corev1.PodTemplate) { p.Annotations[v1alpha1.ParameterSource] = "files" }, true},
		"without labels":      {func(p *corev1.PodTemplate) { p.Labels = nil }, true},
		"without gates":       {func(p *corev1.PodTemplate) { p.Template.Spec.SchedulingGates = nil }, true},
		"another order":       {func(p *corev1.PodTemplate) { reverse(p) }, true},
		"another taint":       {func(p *corev1.PodTemplate) { p.Template.Spec.Tolerations[0].Value = "x" }, true},
		"another operator":    {func(p *corev1.PodTemplate) { p.Template.Spec.Tolerations[0].Operator = corev1.TolerationOpExists }, true},
		"a toleration too many": {func(p *corev1.PodTemplate) {
			p.Template.Spec.Tolerations = append(p.Template.Spec.Tolerations, corev1.Toleration{Key: "x"})
		}, true},
		"preferred nodes": {func(p *corev1.PodTemplate) {
			p.Template.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{{Weight: 1}}
		}, true},
		"without node selectors": {func(p *corev1.PodTemplate) { p.Template.Spec.Affinity = nil }, true},
		"another node selector":  {func(p *corev1.PodTemplate) { p.Template.Spec.Affinity = selecting("gpu").Template.Spec.Affinity }, true},
		"no gates at all":        {func(p *corev1.PodTemplate) { p.Template = admission.Parameter("", "", nil).Template }, true},
	} {
		t.Run(name, func(t *testing.T) {
			existing, want := selecting("cpu"), selecting("cpu")
			existing.ResourceVersion = "7"
			test.edit(existing)
			before := existing.DeepCopy()
			got, changed := admission.Corrected(existing, want)
			if changed != test.changed {
				t.Errorf("changed: %t", changed)
			}
			if got.ResourceVersion != "7" || cmp.Diff(admission.Entries(want), admission.Entries(got)) != "" || got.Annotations[v1alpha1.ParameterSource] != "crd" {
				t.Errorf("the correction is %+v", got)
			}
			if !changed && cmp.Diff(before, got) != "" || cmp.Diff(before, existing) != "" {
				t.Error("the correction or the original was changed without need")
			}
		})
	}
}

// A parameter without gates is corrected, too.
func TestCorrectedWithoutGates(t *testing.T) {
	want := admission.Parameter("nodegate", "crd", nil)
	existing := want.DeepCopy()
	if _, changed := admission.Corrected(existing, want); changed {
		t.Error("it was changed without need")
	}
	existing.Template.Spec.Tolerations = []corev1.Toleration{{Key: "x", Operator: corev1.TolerationOpExists}}
	got, changed := admission.Corrected(existing, want)
	if !changed || len(got.Template.Spec.Tolerations) > 0 {
		t.Errorf("with a toleration too many: changed %t, %v", changed, got.Template.Spec.Tolerations)
	}
}

// The next correction of a parameter replaces its template, so that nobody can fill the object for good.
func TestCorrectionReplacesTheTemplate(t *testing.T) {
	for name, want := range map[string]*corev1.PodTemplate{
		"of the birth policy":       admission.Parameter("nodegate", "crd", nil),
		"of the tolerations policy": admission.TolerationsTemplate("nodegate", nil),
	} {
		existing := want.DeepCopy()
		existing.Template.Annotations = map[string]string{"filled": "x"}
		existing.Template.Spec.Containers = append(existing.Template.Spec.Containers, corev1.Container{Name: "filled"})
		existing.Template.Spec.Tolerations = []corev1.Toleration{{Key: "x", Operator: corev1.TolerationOpExists}}
		got, changed := admission.Corrected(existing, want)
		if diff := cmp.Diff(want.Template, got.Template); !changed || diff != "" {
			t.Errorf("%s: changed %t, template (-want +got):\n%s", name, changed, diff)
		}
	}
}

// reverse reverses the parameter's lists, which then describe the same gates.
func reverse(p *corev1.PodTemplate) {
	slices.Reverse(p.Template.Spec.SchedulingGates)
	slices.Reverse(p.Template.Spec.Tolerations)
	slices.Reverse(p.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
}
