// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
)

// waitingGate returns a gate with the taint test.nodegate.dev/<key>:NoSchedule that waits
// for the DaemonSets that signals select.
func waitingGate(name, key string, signals ...v1alpha1.SignalSource) *v1alpha1.NodeGate {
	ng := newGate(name, key, metav1.LabelSelector{})
	ng.Spec.Tolerate = true
	for i, s := range signals {
		ng.Spec.OpenWhen = append(ng.Spec.OpenWhen, v1alpha1.Signal{Name: "s" + strconv.Itoa(i), SignalSource: s})
	}
	return ng
}

func one(namespace, name string) v1alpha1.SignalSource {
	return v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: namespace, Name: name}}
}

func several(selector v1alpha1.LabelSelector, namespaces ...string) v1alpha1.SignalSource {
	return v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: namespaces, Selector: selector}}
}

// entriesOf returns the entries of gates.
func entriesOf(t testing.TB, gates ...*v1alpha1.NodeGate) (all []admission.TolerationEntry) {
	t.Helper()
	for _, ng := range gates {
		entries, err := admission.TolerationEntries(ng)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, entries...)
	}
	return all
}

// tolerate makes the API server add the tolerations of the gates until the test ends.
func (in *installation) tolerate(t testing.TB, gates ...*v1alpha1.NodeGate) {
	t.Helper()
	in.putTolerations(t, admission.TolerationsTemplate(options.Namespace, entriesOf(t, gates...)))
}

// putTolerations is put for the parameter of the tolerations policy.
func (in *installation) putTolerations(t testing.TB, p *corev1.PodTemplate) {
	t.Helper()
	in.write(t, p)
	t.Cleanup(func() { in.write(t, admission.TolerationsTemplate(p.Namespace, nil)) })
	in.awaitOrder(t, p)
}

// newDaemonSet returns a DaemonSet in the namespace default.
func newDaemonSet(name string, labels map[string]string, tolerations ...corev1.Toleration) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, Labels: labels}}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	ds.Spec.Template.Labels = map[string]string{"app": name}
	ds.Spec.Template.Spec.Tolerations = tolerations
	ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "example.com/c"}}
	return ds
}

// added returns the toleration that the policy adds for a taint.
func added(taint corev1.Taint) corev1.Toleration {
	return corev1.Toleration{Key: taint.Key, Operator: corev1.TolerationOpExists, Effect: taint.Effect}
}

var (
	foreignToleration = corev1.Toleration{Key: "example.com/pool", Operator: corev1.TolerationOpEqual, Value: "gpu", Effect: corev1.TaintEffectNoSchedule}
	required          = map[string]string{"nodegate.dev/required": "true"}
)

// The policy adds exactly the missing tolerations to exactly the DaemonSets that gates wait
// for, at the end of the list. Tolerate and Selects agree with it.
func TestTolerations(t *testing.T) {
	in := installBirth(t)
	two := waitingGate("two", "b", one("default", "named"), several(v1alpha1.LabelSelector{MatchExpressions: []v1alpha1.LabelSelectorRequirement{
		{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []string{"net", "storage"}},
		{Key: "legacy", Operator: metav1.LabelSelectorOpDoesNotExist},
		{Key: "zone", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"x"}},
		{Key: "owner", Operator: metav1.LabelSelectorOpExists},
	}}, "default"))
	two.Spec.Taint.Value, two.Spec.Taint.Effect = taintB.Value, taintB.Effect
	two.Spec.RecloseTaint = &v1alpha1.Taint{Key: "test.nodegate.dev/c", Effect: corev1.TaintEffectNoSchedule}
	soft := waitingGate("soft", "a", one("default", "soft"))
	soft.Spec.Taint.Effect = corev1.TaintEffectPreferNoSchedule
	forbidden := waitingGate("forbidden", "x", several(v1alpha1.LabelSelector{}, "default"))
	nested := waitingGate("nested", "a")
	nested.Spec.OpenWhen = []v1alpha1.Signal{{Name: "any", AnyOf: []v1alpha1.NamedSource{{Name: "one", SignalSource: one("default", "nested")}}}}
	gates := []*v1alpha1.NodeGate{
		waitingGate("one", "a", several(v1alpha1.LabelSelector{MatchLabels: required}, "default", "kube-system")),
		waitingGate("again", "a", several(v1alpha1.LabelSelector{MatchLabels: required}, "default")),
		waitingGate("elsewhere", "c", several(v1alpha1.LabelSelector{}, "kube-system")), two, soft, nested,
	}
	in.tolerate(t, gates...)
	a, b, c := added(taintA), added(taintB), corev1.Toleration{Key: "test.nodegate.dev/c", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	tier := map[string]string{"tier": "net", "owner": ""}
	with := func(key, value string) map[string]string { return merged(tier, map[string]string{key: value}) }
	tests := map[string]struct {
		ds   *appsv1.DaemonSet
		want []corev1.Toleration // in addition
	}{
		"labelled":                  {newDaemonSet("x", required), []corev1.Toleration{a}},
		"other tolerations":         {newDaemonSet("x", required, foreignToleration, b), []corev1.Toleration{a}},
		"not labelled":              {newDaemonSet("x", nil), nil},
		"another value":             {newDaemonSet("x", map[string]string{"nodegate.dev/required": "false"}), nil},
		"by name":                   {newDaemonSet("named", nil), []corev1.Toleration{b, c}},
		"by name and label":         {newDaemonSet("named", required), []corev1.Toleration{a, b, c}},
		"within anyOf":              {newDaemonSet("nested", nil), []corev1.Toleration{a}},
		"by expressions":            {newDaemonSet("x", tier), []corev1.Toleration{b, c}},
		"excluded by DoesNotExist":  {newDaemonSet("x", with("legacy", "")), nil},
		"excluded by NotIn":         {newDaemonSet("x", with("zone", "x")), nil},
		"not excluded by NotIn":     {newDaemonSet("x", with("zone", "y")), []corev1.Toleration{b, c}},
		"excluded by In":            {newDaemonSet("x", with("tier", "web")), nil},
		"excluded by Exists":        {newDaemonSet("x", map[string]string{"tier": "net"}), nil},
		"PreferNoSchedule":          {newDaemonSet("soft", nil), nil},
		"tolerated":                 {newDaemonSet("x", required, a), nil},
		"tolerated for all effects": {newDaemonSet("x", required, corev1.Toleration{Key: taintA.Key, Operator: corev1.TolerationOpExists}), nil},
		"everything tolerated":      {newDaemonSet("x", required, corev1.Toleration{Operator: corev1.TolerationOpExists}), nil},
		"every NoSchedule":          {newDaemonSet("x", required, corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}), nil},
		"every NoExecute":           {newDaemonSet("x", required, corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}), []corev1.Toleration{a}},
		"tolerated with its value":  {newDaemonSet("named", nil, corev1.Toleration{Key: taintB.Key, Value: "waits"}, c), nil},
		"without its value":         {newDaemonSet("named", nil, corev1.Toleration{Key: taintB.Key, Operator: corev1.TolerationOpEqual}, c), []corev1.Toleration{b}},
		"another effect":            {newDaemonSet("x", required, withToleratedEffect(a, corev1.TaintEffectNoExecute)), []corev1.Toleration{a}},
		"for a limited time":        {newDaemonSet("named", nil, corev1.Toleration{Key: taintB.Key, Operator: corev1.TolerationOpExists, Effect: taintB.Effect, TolerationSeconds: new(int64(5))}, c), nil},
	}
	entries := entriesOf(t, append(gates, forbidden)...)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := test.ds.Spec.Template.Spec.Tolerations
			created, err := in.admin.AppsV1().DaemonSets(test.ds.Namespace).Create(t.Context(), test.ds.DeepCopy(), metav1.CreateOptions{DryRun: dryRun})
			if err != nil {
				t.Fatal(err)
			}
			got := created.Spec.Template.Spec.Tolerations
			if diff := cmp.Diff(defaulted(append(slices.Clone(before), test.want...)), defaulted(got), empty); diff != "" {
				t.Errorf("tolerations (-want +got):\n%s", diff)
			}
			byGo, _ := admission.Tolerate(before, slices.DeleteFunc(slices.Clone(entries), func(e admission.TolerationEntry) bool {
				return e.Gate == "forbidden" || !e.Selects(test.ds.Namespace, test.ds.Name, test.ds.Labels)
			}))
			if diff := cmp.Diff(defaulted(byGo), defaulted(got), empty); diff != "" {
				t.Errorf("tolerations (-Go +policy):\n%s", diff)
			}
		})
	}
}

// defaulted returns tolerations with the default operator.
func defaulted(tolerations []corev1.Toleration) []corev1.Toleration {
	out := slices.Clone(tolerations)
	for i := range out {
		if out[i].Operator == "" {
			out[i].Operator = corev1.TolerationOpEqual
		}
	}
	return out
}

func withToleratedEffect(toleration corev1.Toleration, effect corev1.TaintEffect) corev1.Toleration {
	toleration.Effect = effect
	return toleration
}

// A label is enough: the update that adds it also adds the toleration. Later updates, by the
// same and by other field managers, change nothing, and need no force.
func TestTolerationsOfUpdates(t *testing.T) {
	in := installBirth(t)
	in.tolerate(t, waitingGate("one", "a", several(v1alpha1.LabelSelector{MatchLabels: required}, "default")))
	sets := in.admin.AppsV1().DaemonSets("default")
	apply := func(manager, text string) *appsv1.DaemonSet {
		t.Helper()
		ds, err := sets.Patch(t.Context(), "agent", types.ApplyPatchType, []byte(text), metav1.PatchOptions{FieldManager: manager})
		if err != nil {
			t.Fatalf("%s: %v", manager, err)
		}
		return ds
	}
	const manifest = `{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"agent","namespace":"default"},"spec":{
		"selector":{"matchLabels":{"app":"agent"}},"template":{"metadata":{"labels":{"app":"agent"}},"spec":{
		"containers":[{"name":"c","image":"example.com/c"}],"tolerations":[{"key":"example.com/pool","operator":"Equal","value":"gpu","effect":"NoSchedule"}]}}}}`
	created := apply("helm", manifest)
	t.Cleanup(func() { _ = sets.Delete(context.WithoutCancel(t.Context()), "agent", metav1.DeleteOptions{}) })
	if diff := cmp.Diff([]corev1.Toleration{foreignToleration}, created.Spec.Template.Spec.Tolerations); diff != "" {
		t.Fatalf("without the label (-want +got):\n%s", diff)
	}
	labelled := apply("kubectl-label", `{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"agent","namespace":"default","labels":{"nodegate.dev/required":"true"}}}`)
	want := []corev1.Toleration{foreignToleration, added(taintA)}
	if diff := cmp.Diff(want, labelled.Spec.Template.Spec.Tolerations); diff != "" {
		t.Fatalf("with the label (-want +got):\n%s", diff)
	}
	if labelled.Generation != created.Generation+1 {
		t.Errorf("generation %d, want one more than %d", labelled.Generation, created.Generation)
	}
	for step, ds := range map[string]*appsv1.DaemonSet{
		"its owner applies the manifest again": apply("helm", manifest),
		"an apply of nothing":                  apply(v1alpha1.TolerateFieldManager, `{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"agent","namespace":"default"}}`),
	} {
		if diff := cmp.Diff(want, ds.Spec.Template.Spec.Tolerations); diff != "" || ds.Generation != labelled.Generation {
			t.Errorf("%s: generation %d, want %d; tolerations (-want +got):\n%s", step, ds.Generation, labelled.Generation, diff)
		}
		for _, e := range ds.ManagedFields {
			if owns := strings.Contains(e.FieldsV1.GetRawString(), `"f:tolerations"`); owns != (e.Manager == "helm") {
				t.Errorf("%s: %s owns the tolerations: %t", step, e.Manager, owns)
			}
			if e.Manager == v1alpha1.TolerateFieldManager {
				t.Errorf("%s: %s owns %s", step, e.Manager, e.FieldsV1.GetRawString())
			}
		}
	}
}

// The policy does not start a rollout while a DaemonSet is being deleted, or when its
// status is written.
func TestTolerationsOfOtherWrites(t *testing.T) {
	in := installBirth(t)
	sets := in.admin.AppsV1().DaemonSets("default")
	ds := newDaemonSet("ending", required)
	ds.Finalizers = []string{"example.com/wait"}
	_, err := sets.Create(t.Context(), ds, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	in.tolerate(t, waitingGate("one", "a", one("default", "ending")))
	patch := func(body string, subresources ...string) *appsv1.DaemonSet {
		t.Helper()
		ds, err := sets.Patch(t.Context(), "ending", mergePatch, []byte(body), metav1.PatchOptions{}, subresources...)
		if err != nil {
			t.Fatal(err)
		}
		return ds
	}
	if ds := patch(`{"status":{"numberMisscheduled":1}}`, "status"); len(ds.Spec.Template.Spec.Tolerations) > 0 {
		t.Error("a write of the status adds a toleration")
	}
	if err := sets.Delete(t.Context(), "ending", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if ds := patch(`{"metadata":{"annotations":{"a":"b"}}}`); len(ds.Spec.Template.Spec.Tolerations) > 0 {
		t.Error("an update during the deletion adds a toleration")
	}
	patch(`{"metadata":{"finalizers":null}}`)
}

// fillTolerations replaces the entries of the parameter by n entries.
func fillTolerations(p *corev1.PodTemplate, n, requirements, values int) {
	p.Template.Spec.Tolerations, terms(p).NodeSelectorTerms = nil, nil
	for range n {
		addToleration(p, corev1.Toleration{Key: taintA.Key, Operator: corev1.TolerationOpEqual, Effect: taintA.Effect})
		term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "gate", Operator: corev1.NodeSelectorOpIn, Values: []string{"one"}}, {Key: "namespace", Operator: corev1.NodeSelectorOpIn, Values: []string{"default"}},
		}}
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

// damagedTolerations are damaged parameters that the API server accepts.
var damagedTolerations = map[string]func(*corev1.PodTemplate){
	"no entries":      func(p *corev1.PodTemplate) { p.Template.Spec.Tolerations, p.Template.Spec.Affinity = nil, nil },
	"no taints":       func(p *corev1.PodTemplate) { p.Template.Spec.Tolerations = nil },
	"more taints":     func(p *corev1.PodTemplate) { addToleration(p, corev1.Toleration{Key: "z", Operator: "Exists"}) },
	"no affinity":     func(p *corev1.PodTemplate) { p.Template.Spec.Affinity = nil },
	"not sorted":      func(p *corev1.PodTemplate) { slices.Reverse(p.Template.Spec.Tolerations) },
	"no requirements": func(p *corev1.PodTemplate) { terms(p).NodeSelectorTerms[0].MatchExpressions = nil },
	"one requirement": func(p *corev1.PodTemplate) {
		terms(p).NodeSelectorTerms[0].MatchExpressions = terms(p).NodeSelectorTerms[0].MatchExpressions[:1]
	},
	"another second one":      func(p *corev1.PodTemplate) { terms(p).NodeSelectorTerms[0].MatchExpressions[1].Key = "namespaces" },
	"513 entries":             func(p *corev1.PodTemplate) { fillTolerations(p, 513, 0, 0) },
	"too many requirements":   func(p *corev1.PodTemplate) { fillTolerations(p, 1, 2047, 1) },
	"too many values":         func(p *corev1.PodTemplate) { fillTolerations(p, 1, 1, 8191) },
	"the most that is stored": func(p *corev1.PodTemplate) { fillTolerations(p, 3000, 1, 1) },
}

// No damaged parameter rejects or changes a DaemonSet.
func TestDamagedTolerations(t *testing.T) {
	in := installBirth(t)
	for name, damage := range damagedTolerations {
		t.Run(name, func(t *testing.T) {
			p := admission.TolerationsTemplate(unguarded, entriesOf(t,
				waitingGate("one", "a", several(v1alpha1.LabelSelector{}, "default")), waitingGate("two", "b", several(v1alpha1.LabelSelector{}, "default"))))
			damage(p)
			in.putTolerations(t, p)
			in.sets(t, newDaemonSet("any", map[string]string{"a": "b"}, foreignToleration), foreignToleration)
			in.sets(t, newDaemonSet("any", nil))
		})
	}
}

// sets creates a DaemonSet in a dry run, and verifies its tolerations.
func (in *installation) sets(t testing.TB, ds *appsv1.DaemonSet, want ...corev1.Toleration) {
	t.Helper()
	created, err := in.admin.AppsV1().DaemonSets(ds.Namespace).Create(t.Context(), ds, metav1.CreateOptions{DryRun: dryRun})
	if err != nil {
		t.Fatalf("%.400v", err)
	}
	if diff := cmp.Diff(want, created.Spec.Template.Spec.Tolerations, empty); diff != "" {
		t.Errorf("tolerations (-want +got):\n%.1000s", diff)
	}
}

// Forbidden taints in the parameter are ignored: an author of gates, or the holder of
// nodegate's token, adds no toleration of a taint that the administrator has not allowed.
func TestTolerationsThatAreNotAllowed(t *testing.T) {
	in := installBirth(t)
	detaching := waitingGate("detaching", "a", several(v1alpha1.LabelSelector{}, "default"))
	detaching.Spec.Taint = v1alpha1.Taint{Key: v1alpha1.TaintOutOfService, Effect: corev1.TaintEffectNoSchedule}
	evicting := waitingGate("evicting", "a", several(v1alpha1.LabelSelector{}, "default"))
	evicting.Spec.Taint.Effect = corev1.TaintEffectNoExecute
	p := admission.TolerationsTemplate(unguarded, entriesOf(t, detaching, evicting,
		waitingGate("foreign", "x", several(v1alpha1.LabelSelector{}, "default")), waitingGate("sound", "a", several(v1alpha1.LabelSelector{}, "default"))))
	in.putTolerations(t, p)
	in.sets(t, newDaemonSet("any", nil), added(taintA))
	in.tolerate(t) // the parameter exists
	guarded := admission.TolerationsTemplate(options.Namespace, entriesOf(t, evicting))
	_, err := in.nodegate.CoreV1().PodTemplates(options.Namespace).Update(t.Context(), guarded, metav1.UpdateOptions{DryRun: dryRun})
	if err == nil || !strings.Contains(err.Error(), "may add only allowed taints") {
		t.Errorf("a parameter with a forbidden taint: %v", err)
	}
}

// manyTolerations returns tolerations of other taints.
func manyTolerations(n int) (all []corev1.Toleration) {
	for i := range n {
		all = append(all, corev1.Toleration{Key: fmt.Sprintf("example.com/t%d", i), Operator: corev1.TolerationOpExists})
	}
	return all
}

// The largest parameter and the longest lists of tolerations reject no DaemonSet, and the
// former is evaluated within the cost limits.
func TestLargestTolerations(t *testing.T) {
	in := installBirth(t)
	many := manyTolerations
	for name, size := range map[string]struct{ entries, requirements, values, tolerations, added int }{
		"512 entries":       {512, 2, 6, 256, 1},
		"2048 requirements": {1, 2046, 4, 256, 1},
		"8192 values":       {1, 1, 8190, 0, 1},
		"257 tolerations":   {1, 0, 0, 257, 0},
		"4000 tolerations":  {512, 2, 6, 4000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := admission.TolerationsTemplate(unguarded, entriesOf(t, waitingGate("one", "a", several(v1alpha1.LabelSelector{}, "default"))))
			fillTolerations(p, size.entries, size.requirements, size.values)
			in.putTolerations(t, p)
			had := many(size.tolerations)
			in.sets(t, newDaemonSet("any", map[string]string{"a": "b"}, had...), append(had, slices.Repeat([]corev1.Toleration{added(taintA)}, size.added)...)...)
		})
	}
}

// The same for as many different taints as fit into the parameter, with the longest keys. Each
// taint is compared with each toleration.
func TestLargestTolerationsOfManyTaints(t *testing.T) {
	in := installBirth(t)
	prefix := strings.Repeat("p", 63) + "." + strings.Repeat("p", 63) + "." + strings.Repeat("p", 63) + "." + strings.Repeat("p", 61)
	for name, size := range map[string]struct{ taints, requirements, values, tolerations, added int }{
		"no tolerations":         {furtherKeys, 2, 6, 0, furtherKeys},
		"256 tolerations":        {furtherKeys, 2, 6, 256, furtherKeys},
		"257 tolerations":        {furtherKeys, 2, 6, 257, 0},
		"many requirements":      {furtherKeys, 18, 3, 256, furtherKeys},
		"each taint three times": {512, 2, 6, 256, furtherKeys},
	} {
		t.Run(name, func(t *testing.T) {
			p := admission.TolerationsTemplate(unguarded, entriesOf(t, waitingGate("one", "a", several(v1alpha1.LabelSelector{}, "default"))))
			fillTolerations(p, size.taints, size.requirements, size.values)
			var had []corev1.Toleration
			for i := range size.tolerations {
				had = append(had, corev1.Toleration{Key: fmt.Sprintf("%s/%s-%d", prefix, strings.Repeat("t", 59), 100+i), Operator: corev1.TolerationOpExists})
			}
			want := slices.Clone(had)
			for i := range p.Template.Spec.Tolerations {
				p.Template.Spec.Tolerations[i].Key = furtherKey(i * furtherKeys / size.taints)
			}
			for i := range size.added {
				want = append(want, corev1.Toleration{Key: furtherKey(i), Operator: corev1.TolerationOpExists, Effect: taintA.Effect})
			}
			in.putTolerations(t, p)
			in.sets(t, newDaemonSet("any", map[string]string{"a": "b"}, had...), want...)
		})
	}
}

// Entries survive being written and read.
func TestEntriesOfTolerations(t *testing.T) {
	two := waitingGate("two", "b", one("kube-system", "agent"), several(v1alpha1.LabelSelector{MatchLabels: required}, "b", "a"))
	two.Spec.RecloseTaint = &v1alpha1.Taint{Key: "test.nodegate.dev/c", Value: "v", Effect: corev1.TaintEffectNoExecute}
	want := entriesOf(t, waitingGate("one", "a", several(v1alpha1.LabelSelector{}, "a")), two)
	if len(want) != 5 {
		t.Fatalf("%d entries: %+v", len(want), want)
	}
	p := admission.TolerationsTemplate("ns", want)
	byID := func(entries []admission.TolerationEntry) map[string]admission.TolerationEntry {
		all := map[string]admission.TolerationEntry{}
		for _, e := range entries {
			all[fmt.Sprint(e.Gate, e.Taint, e.Namespaces, e.Name)] = e
		}
		return all
	}
	if diff := cmp.Diff(byID(want), byID(admission.EntriesOfTolerations(p)), empty); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
	reversed := slices.Clone(want)
	slices.Reverse(reversed)
	if _, changed := admission.Corrected(p, admission.TolerationsTemplate("ns", reversed)); changed {
		t.Error("the order of entries matters")
	}
	for name, damage := range damagedTolerations {
		damaged := p.DeepCopy()
		damage(damaged)
		corrected, changed := admission.Corrected(damaged, p)
		if !changed || len(admission.EntriesOfTolerations(corrected)) != len(want) {
			t.Errorf("%s: not corrected", name)
		}
	}
	kept := p.DeepCopy()
	maps.Copy(kept.Labels, map[string]string{"other": "label", v1alpha1.TolerationsLabel: "false"})
	corrected, changed := admission.Corrected(kept, p)
	if !changed || corrected.Labels["other"] != "label" || corrected.Labels[v1alpha1.TolerationsLabel] != "true" {
		t.Errorf("labels %v", corrected.Labels)
	}
}

// Gates that cannot be written to the parameter are errors, and so are entries that do not
// fit.
func TestTolerationErrors(t *testing.T) {
	for name, ng := range map[string]*v1alpha1.NodeGate{
		"a bad name":      waitingGate("A.b", "a", one("default", "x")),
		"a bad key":       waitingGate("one", "a b", one("default", "x")),
		"a bad DaemonSet": waitingGate("one", "a", one("default", "X_")),
		"a bad namespace": waitingGate("one", "a", several(v1alpha1.LabelSelector{}, "a.b")),
		"a bad selector":  waitingGate("one", "a", several(v1alpha1.LabelSelector{MatchExpressions: []v1alpha1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}, "a")),
	} {
		entries, err := admission.TolerationEntries(ng)
		for i := range entries {
			err = errors.Join(err, entries[i].Writable())
		}
		if err == nil || !strings.Contains(err.Error(), ng.Name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	old := entriesOf(t, waitingGate("old", "a", one("default", "x")))
	fitting, tooMany := admission.FitTolerations(append(slices.Repeat(old, 512), entriesOf(t, waitingGate("new", "a", one("default", "y")))...))
	if len(fitting) != 512 || len(tooMany) != 1 || tooMany["new"] == nil {
		t.Errorf("%d entries fit, errors %v", len(fitting), tooMany)
	}
	var many []admission.TolerationEntry
	for i := range furtherKeys + 2 {
		e := old[0]
		e.Gate, e.Taint.Key = fmt.Sprintf("gate-%d", i), furtherKey(i)
		many = append(many, e)
	}
	fitting, tooMany = admission.FitTolerations(append(many, many[0]))
	if len(fitting) != furtherKeys+1 || len(tooMany) != 2 || !strings.Contains(fmt.Sprint(tooMany["gate-64"]), "at most 64 different taints") {
		t.Errorf("%d entries of many taints fit, errors %v", len(fitting), tooMany)
	}
	closing := waitingGate("closing", "a")
	closing.Spec.CloseWhen = []v1alpha1.Signal{{Name: "s", SignalSource: one("default", "x")}}
	if entries := entriesOf(t, closing); len(entries) > 0 {
		t.Errorf("a gate with closeWhen has %+v", entries)
	}
}
