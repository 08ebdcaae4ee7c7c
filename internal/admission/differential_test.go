// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/webhook"
)

// born is the part of a Node that is closed at birth.
type born struct {
	Annotations map[string]string
	Taints      []corev1.Taint // those that were added, sorted
}

var empty = cmpopts.EquateEmpty()

// TestPolicyAndWebhookAgree tests that policy and webhook create the same Node, and that
// each of them changes nothing after the other.
func TestPolicyAndWebhookAgree(t *testing.T) {
	in := installBirth(t)
	mine := metav1.LabelSelector{MatchLabels: label(t)}
	three := newGate("three", "b", mine)
	three.Spec.Taint.Value, three.Spec.Taint.Effect = taintB.Value, taintB.Effect
	skips := newGate("skips", "c", metav1.LabelSelector{MatchLabels: mine.MatchLabels, MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "pool", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"system"}},
	}})
	gates := []*v1alpha1.NodeGate{newGate("one", "a", mine), newGate("two", "a", mine), three, skips}
	var compiled []gate.Gate
	for _, ng := range gates {
		selector, err := ng.Spec.NodeSelector.AsSelector()
		if err != nil {
			t.Fatal(err)
		}
		compiled = append(compiled, gate.Gate{Name: ng.Name, Source: v1alpha1.SourceCRD, Accepted: true, Selector: selector, Taint: ng.Spec.Taint})
	}
	in.close(t, gates...)
	h := &webhook.Handler{Gates: func() ([]gate.Gate, bool) { return compiled, true }}

	big := func(n int) map[string]string { return map[string]string{"big": strings.Repeat("x", n-3)} }
	for name, node := range map[string]corev1.Node{
		"bare":                      {},
		"opted out":                 {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.OptOutLabel: "true"}, Annotations: map[string]string{prefix + "one": recordA, overridePrefix + "one": "x"}}},
		"kubelet's opt-out label":   {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.PlainOptOutLabel: "true"}}},
		"an override":               {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{overridePrefix + "one": "x"}}},
		"annotations":               {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}},
		"foreign taints":            {Spec: corev1.NodeSpec{Taints: []corev1.Taint{foreign, foreign2}}},
		"the taint":                 {Spec: corev1.NodeSpec{Taints: []corev1.Taint{taintB, foreign}}},
		"a wrong value":             {Spec: corev1.NodeSpec{Taints: []corev1.Taint{foreign, withValue(taintA, "x"), foreign2}}},
		"a missing value":           {Spec: corev1.NodeSpec{Taints: []corev1.Taint{withValue(taintB, "")}}},
		"another effect":            {Spec: corev1.NodeSpec{Taints: []corev1.Taint{withEffect(taintA, corev1.TaintEffectNoExecute)}}},
		"forged records":            {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{prefix + "one": `{"state":"Open"}`, prefix + "three": "x", prefix + "none": "x"}}},
		"the right record":          {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{prefix + "one": recordA}}},
		"another gate's record":     {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": "system"}, Annotations: map[string]string{prefix + "skips": recordA}}},
		"no gate, but a record":     {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"test": "no", "pool": "system"}, Annotations: map[string]string{prefix + "one": recordA}}},
		"a boot ID":                 {Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "8c1b5f9e-3f0e"}}},
		"a boot ID of 65 letters":   {Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: strings.Repeat("a", 65)}}},
		"JSON in the boot ID":       {Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: `x","state":"Open`}}},
		"a boot ID with a line end": {Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "x\n"}}},
		"no space for records":      {ObjectMeta: metav1.ObjectMeta{Annotations: big(256 << 10)}},
		"space for some records":    {ObjectMeta: metav1.ObjectMeta{Annotations: big(256<<10 - 300)}},
		"only its own record fits":  {ObjectMeta: metav1.ObjectMeta{Annotations: merged(big(256<<10-len(prefix+"one"+recordA)), map[string]string{prefix + "one": recordA})}},
		"one annotation too many":   {ObjectMeta: metav1.ObjectMeta{Annotations: numbered(1021)}},
		"most annotations":          {ObjectMeta: metav1.ObjectMeta{Annotations: numbered(1020)}}, // with four records
		"most, and a forged record": {ObjectMeta: metav1.ObjectMeta{Annotations: merged(numbered(1020), map[string]string{prefix + "one": "x"})}},
		"many forged records":       {ObjectMeta: metav1.ObjectMeta{Annotations: manyRecords(1281)}},
		"too many annotations":      {ObjectMeta: metav1.ObjectMeta{Annotations: numbered(1025)}},
		"4,096 annotations":         {ObjectMeta: metav1.ObjectMeta{Annotations: numbered(4096)}},
		"4,097 annotations":         {ObjectMeta: metav1.ObjectMeta{Annotations: merged(numbered(4096), map[string]string{prefix + "one": "x"})}},
		"4,097, and no gate":        {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"test": "no", "pool": "system"}, Annotations: merged(numbered(4096), map[string]string{prefix + "one": "x"})}},
		"too many taints":           {Spec: corev1.NodeSpec{Taints: manyTaints(1025)}, ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{prefix + "one": "x"}}},
		"many taints":               {Spec: corev1.NodeSpec{Taints: manyTaints(1000)}},
	} {
		t.Run(name, func(t *testing.T) {
			node.Name = "born"
			if node.Labels["test"] == "" {
				node.Labels = merged(node.Labels, mine.MatchLabels)
			}
			byPolicy, err := in.admin.CoreV1().Nodes().Create(t.Context(), node.DeepCopy(), metav1.CreateOptions{DryRun: dryRun})
			if err != nil {
				t.Fatal(err)
			}
			byWebhook := asked(t, h, &node)
			n := len(node.Spec.Taints)
			want := born{byPolicy.Annotations, settled(byPolicy.Spec.Taints, n)}
			got := born{byWebhook.Annotations, settled(byWebhook.Spec.Taints, n)}
			if diff := cmp.Diff(want, got, empty); diff != "" {
				t.Errorf("(-policy +webhook):\n%.3000s", diff)
			}
			if again := asked(t, h, byPolicy); !slices.Equal(again.Spec.Taints, byPolicy.Spec.Taints) || cmp.Diff(again.Annotations, byPolicy.Annotations, empty) != "" {
				t.Error("the webhook changes the policy's result")
			}
			again, err := in.admin.CoreV1().Nodes().Create(t.Context(), byWebhook, metav1.CreateOptions{DryRun: dryRun})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got.Taints, settled(again.Spec.Taints, n), empty); diff != "" || cmp.Diff(byWebhook.Annotations, again.Annotations, empty) != "" {
				t.Errorf("the policy changes the webhook's result:\n%.3000s", diff)
			}
		})
	}
}

// manyRecords returns annotations with records of unknown gates.
func manyRecords(n int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out[fmt.Sprintf("%sx%d", prefix, i)] = ""
	}
	return out
}

// asked returns the Node with the webhook's patch applied.
func asked(t *testing.T, h http.Handler, node *corev1.Node) *corev1.Node {
	t.Helper()
	node = node.DeepCopy()
	node.UID, node.ResourceVersion, node.CreationTimestamp = "", "", metav1.Time{}
	raw, err := json.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","resource":{"version":"v1","resource":"nodes"},"operation":"CREATE","object":%s}}`, raw)
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewBufferString(body))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, request)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &review); err != nil || !review.Response.Allowed {
		t.Fatalf("%v: %s", err, recorder.Body)
	}
	if len(review.Response.Patch) > 0 {
		patch, err := jsonpatch.DecodePatch(review.Response.Patch)
		if err != nil {
			t.Fatal(err)
		}
		if raw, err = patch.Apply(raw); err != nil {
			t.Fatal(err)
		}
	}
	var out corev1.Node
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return &out
}

func merged(a, b map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range []map[string]string{a, b} {
		for key, value := range m {
			out[key] = value
		}
	}
	return out
}

func numbered(n int) map[string]string {
	out := make(map[string]string, n)
	for i := range n {
		out[fmt.Sprintf("number-%04d", i)] = ""
	}
	return out
}

func manyTaints(n int) []corev1.Taint {
	out := make([]corev1.Taint, n)
	for i := range out {
		out[i] = corev1.Taint{Key: fmt.Sprintf("number-%04d", i), Effect: corev1.TaintEffectNoSchedule}
	}
	return out
}
