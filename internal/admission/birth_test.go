// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

const mergePatch = types.MergePatchType

var (
	dryRun      = []string{metav1.DryRunAll}
	dryRunPatch = metav1.PatchOptions{DryRun: dryRun}
)

const (
	prefix  = v1alpha1.RecordAnnotationPrefix
	recordA = `{"state":"Closed","reason":"Birth","taint":"test.nodegate.dev/a:NoSchedule","source":"crd"}`
	recordB = `{"state":"Closed","reason":"Birth","taint":"test.nodegate.dev/b=waits:NoExecute","source":"crd"}`
)

// Taints of new nodes.
var (
	taintA   = corev1.Taint{Key: "test.nodegate.dev/a", Effect: corev1.TaintEffectNoSchedule}
	taintB   = corev1.Taint{Key: "test.nodegate.dev/b", Value: "waits", Effect: corev1.TaintEffectNoExecute}
	foreign  = corev1.Taint{Key: "example.com/pool", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}
	foreign2 = corev1.Taint{Key: "example.com/other", Effect: corev1.TaintEffectPreferNoSchedule}
	notReady = corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
)

// TestBirth tests births with gates "one" and "two" that share a taint, "three" with
// another taint, and "elsewhere", which selects other nodes.
func TestBirth(t *testing.T) {
	in := installBirth(t)
	mine := metav1.LabelSelector{MatchLabels: label(t)}
	three := newGate("three", "b", mine)
	three.Spec.Taint.Value, three.Spec.Taint.Effect = taintB.Value, taintB.Effect
	elsewhere := newGate("elsewhere", "a", metav1.LabelSelector{MatchLabels: map[string]string{"test": "another"}})
	in.close(t, newGate("one", "a", mine), newGate("two", "a", mine), three, elsewhere)

	records := map[string]string{prefix + "one": recordA, prefix + "two": recordA, prefix + "three": recordB}
	tests := map[string]struct {
		taints      []corev1.Taint
		annotations map[string]string
		want        []corev1.Taint // the request's taints come first, in their order
		wantOther   map[string]string
		labels      map[string]string
		noRecords   bool
	}{
		"opted out":                        {labels: map[string]string{v1alpha1.OptOutLabel: "true"}, noRecords: true},
		"opted out, with a record":         {labels: map[string]string{v1alpha1.OptOutLabel: "true"}, annotations: map[string]string{prefix + "one": recordA}, noRecords: true},
		"opted out by the kubelet's label": {labels: map[string]string{v1alpha1.PlainOptOutLabel: "true"}, want: []corev1.Taint{taintA, taintB}},
		"not opted out":                    {labels: map[string]string{v1alpha1.OptOutLabel: "false"}, want: []corev1.Taint{taintA, taintB}},
		"no taints, no annotations":        {want: []corev1.Taint{taintA, taintB}},
		"annotations":                      {annotations: map[string]string{"a": "b"}, want: []corev1.Taint{taintA, taintB}, wantOther: map[string]string{"a": "b"}},
		"foreign taints":                   {taints: []corev1.Taint{foreign, foreign2}, want: []corev1.Taint{foreign, foreign2, taintA, taintB}},
		"taint present":                    {taints: []corev1.Taint{taintB, foreign}, want: []corev1.Taint{taintB, foreign, taintA}},
		"taint present with a wrong value": {taints: []corev1.Taint{foreign, withValue(taintA, "x"), foreign2}, want: []corev1.Taint{foreign, withValue(taintA, "x"), foreign2, taintB}},
		"taint present without its value":  {taints: []corev1.Taint{withValue(taintB, ""), foreign}, want: []corev1.Taint{withValue(taintB, ""), foreign, taintA}},
		"same key with another effect":     {taints: []corev1.Taint{withEffect(taintA, corev1.TaintEffectNoExecute)}, want: []corev1.Taint{withEffect(taintA, corev1.TaintEffectNoExecute), taintA, taintB}},
		"taint of Kubernetes present":      {taints: []corev1.Taint{notReady}, want: []corev1.Taint{notReady, taintA, taintB}},
		"records are overwritten":          {annotations: map[string]string{prefix + "one": `{"state":"Open"}`, prefix + "three": "garbage"}, want: []corev1.Taint{taintA, taintB}},
		"records of unknown gates are removed": {
			annotations: map[string]string{prefix + "unknown": `{"state":"Open"}`, prefix + "Not_a.name~/": "x", "gate.nodegate.dev": "stays", "a": "b"},
			want:        []corev1.Taint{taintA, taintB}, wantOther: map[string]string{"gate.nodegate.dev": "stays", "a": "b"},
		},
		"a record of another gate is removed": {annotations: map[string]string{prefix + "elsewhere": `{"state":"Open"}`, "a": "b"}, want: []corev1.Taint{taintA, taintB}, wantOther: map[string]string{"a": "b"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "born", Labels: merged(test.labels, mine.MatchLabels), Annotations: test.annotations}, Spec: corev1.NodeSpec{Taints: test.taints}}
			created, err := in.admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{DryRun: dryRun})
			if err != nil {
				t.Fatal(err)
			}
			want := maps.Clone(records)
			maps.Copy(want, test.wantOther)
			if test.noRecords {
				want = test.wantOther
			}
			if diff := cmp.Diff(want, created.Annotations, empty); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(settled(test.want, len(test.taints)), settled(created.Spec.Taints, len(test.taints)), empty); diff != "" {
				t.Errorf("taints (-want +got):\n%s", diff)
			}
		})
	}
}

// settled sorts the taints after the first n, and omits those of Kubernetes there.
func settled(taints []corev1.Taint, n int) []corev1.Taint {
	n = min(n, len(taints))
	added := slices.DeleteFunc(slices.Clone(taints[n:]), func(t corev1.Taint) bool { return t == notReady })
	slices.SortFunc(added, func(a, b corev1.Taint) int { return strings.Compare(a.ToString(), b.ToString()) })
	return append(slices.Clone(taints[:n]), added...)
}

func withValue(taint corev1.Taint, value string) corev1.Taint {
	taint.Value = value
	return taint
}

func withEffect(taint corev1.Taint, effect corev1.TaintEffect) corev1.Taint {
	taint.Effect = effect
	return taint
}

// TestBirthOfKubelet tests the registration of a node by its kubelet.
func TestBirthOfKubelet(t *testing.T) {
	in := installBirth(t)
	in.close(t, newGate("one", "a", metav1.LabelSelector{MatchLabels: label(t)}))

	const uuid = "8c1b5f9e-3f0e-4d6c-9b57-0c6f7c6f0a11"
	tests := map[string]struct{ bootID, want string }{
		"a boot ID":               {uuid, uuid},
		"no boot ID":              {"", ""},
		"the longest":             {strings.Repeat("a", 64), strings.Repeat("a", 64)},
		"too long":                {strings.Repeat("a", 65), ""},
		"far too long":            {strings.Repeat("a", 1<<20), ""},
		"with JSON syntax":        {`x","state":"Open`, ""},
		"with a line feed":        {"x\n", ""},
		"with a non-ASCII letter": {"ñ", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			kubelet := as(t, in.Node("self-registered"))
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "self-registered", Labels: map[string]string{"test": "TestBirthOfKubelet"}}}
			node.Status.NodeInfo.BootID = test.bootID
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
			created, err := kubelet.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { deleteNode(t, in, created.Name) })
			want := recordA
			if test.want != "" {
				want = fmt.Sprintf(`{"state":"Closed","reason":"Birth","boot":%q,"taint":"test.nodegate.dev/a:NoSchedule","source":"crd"}`, test.want)
			}
			if got := created.Annotations[prefix+"one"]; got != want {
				t.Errorf("record is %s, want %s", got, want)
			}
			if !slices.Contains(created.Spec.Taints, taintA) {
				t.Errorf("taints are %v, want %v to be one of them", created.Spec.Taints, taintA)
			}
		})
	}
}

// TestBirthAfterGate tests that births are not changed once the gate is deleted.
func TestBirthAfterGate(t *testing.T) {
	in := installBirth(t)
	gate := newGate("short-lived", "a", metav1.LabelSelector{MatchLabels: label(t)})
	in.close(t, gate)
	in.awaitProof(t, gate)
	in.close(t)
	eventually(t, func() error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "later", Labels: label(t)}}
		created, err := in.admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{DryRun: dryRun})
		if err != nil {
			return err
		}
		if len(created.Annotations) > 0 || slices.Contains(created.Spec.Taints, taintA) {
			return fmt.Errorf("the gate is still closed at birth: %v, %v", created.Annotations, created.Spec.Taints)
		}
		return nil
	})
}

// TestBirthByApply tests a kubelet that registers by server-side apply and with a forged record. With
// its next apply, the API server would delete the fields that it no longer specifies.
func TestBirthByApply(t *testing.T) {
	in := installBirth(t)
	in.close(t, newGate("one", "a", metav1.LabelSelector{MatchLabels: label(t)}))
	nodes := as(t, in.Node("applied")).CoreV1().Nodes()
	apply := func(metadata string, subresources ...string) (*corev1.Node, error) {
		body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"applied","labels":{"test":"TestBirthByApply"}%s}}`, metadata)
		options := metav1.PatchOptions{FieldManager: "kubelet", Force: new(true)}
		return nodes.Patch(t.Context(), "applied", types.ApplyPatchType, body, options, subresources...)
	}
	for what, record := range map[string]string{"forged": `{"state":"Open"}`, "predicted": recordA} {
		annotations := fmt.Sprintf(`,"annotations":{%q:%q}`, prefix+"one", record)
		born, err := apply(annotations)
		if err != nil {
			t.Fatal(err)
		}
		if got := born.Annotations[prefix+"one"]; got != recordA || !slices.Contains(born.Spec.Taints, taintA) {
			t.Errorf("%s: record is %s, taints are %v", what, got, born.Spec.Taints)
		}
		for _, again := range []string{annotations, ""} {
			for _, subresource := range []string{"", "status"} {
				_, _ = apply(again, subresource) // may be denied, or change nothing
			}
		}
		now, err := in.admin.CoreV1().Nodes().Get(t.Context(), "applied", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := now.Annotations[prefix+"one"]; got != recordA || !slices.Contains(now.Spec.Taints, taintA) {
			t.Errorf("%s: after the next apply, the record is %s, and the taints are %v", what, got, now.Spec.Taints)
		}
		deleteNode(t, in, "applied")
	}
}
