// SPDX-License-Identifier: Apache-2.0

package write

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/nodediff"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
)

// opening is the verdict of a gate that opens because of its signals.
var opening = []gate.Verdict{{Before: v1alpha1.StateClosed, After: v1alpha1.StateOpen}}

func TestPatch(t *testing.T) {
	a := kubetest.Taint("example.com/a", "", corev1.TaintEffectNoSchedule)
	b := kubetest.Taint("example.com/b", "1", corev1.TaintEffectNoExecute)
	b2 := kubetest.Taint("example.com/b", "2", corev1.TaintEffectNoExecute)
	c := kubetest.Taint("example.com/c", "", corev1.TaintEffectNoSchedule)
	tests := []struct {
		name     string
		node     gate.Node
		decision gate.Decision
		want     string
	}{
		{
			name:     "nothing to write",
			node:     gate.Node{UID: "u", Taints: []corev1.Taint{a}, Records: map[string]string{"g": "x"}},
			decision: gate.Decision{Taints: []corev1.Taint{a}, Records: map[string]string{"g": "x", "h": ""}},
		},
		{
			name: "a stamp is written with the opening, and replaces only the stamp that was read",
			node: gate.Node{UID: "u", BootID: "boot", Taints: []corev1.Taint{a}, HasAnnotations: true,
				Records: map[string]string{"g": "closed"}, Annotations: map[string]string{"example.com/at": "12"}},
			decision: gate.Decision{Records: map[string]string{"g": "open"}, Stamps: map[string]string{"example.com/at": "34", "at": "34"}, Verdicts: opening},
			want: `[
				{"op":"test","path":"/metadata/uid","value":"u"},
				{"op":"test","path":"/status/nodeInfo/bootID","value":"boot"},
				{"op":"test","path":"/spec/taints/0/key","value":"example.com/a"},
				{"op":"test","path":"/spec/taints/0/effect","value":"NoSchedule"},
				{"op":"test","path":"/spec/taints/0/value","value":null},
				{"op":"remove","path":"/spec/taints/0"},
				{"op":"test","path":"/metadata/annotations/gate.nodegate.dev~1g","value":"closed"},
				{"op":"replace","path":"/metadata/annotations/gate.nodegate.dev~1g","value":"open"},
				{"op":"test","path":"/metadata/annotations/at","value":null},
				{"op":"add","path":"/metadata/annotations/at","value":"34"},
				{"op":"test","path":"/metadata/annotations/example.com~1at","value":"12"},
				{"op":"replace","path":"/metadata/annotations/example.com~1at","value":"34"}]`,
		},
		{
			name: "an opening by override depends on that override, and an expired override is removed",
			node: gate.Node{UID: "u", Taints: []corev1.Taint{a}, HasAnnotations: true,
				Records: map[string]string{"g": "closed", "h": "open"}, Overrides: map[string]string{"g": "open it", "h": "over", "i": "of another"}},
			decision: gate.Decision{Records: map[string]string{"g": "masked"}, Withdrawn: map[string]string{"h": ""}},
			want: `[
				{"op":"test","path":"/metadata/uid","value":"u"},
				{"op":"test","path":"/spec/taints/0/key","value":"example.com/a"},
				{"op":"test","path":"/spec/taints/0/effect","value":"NoSchedule"},
				{"op":"test","path":"/spec/taints/0/value","value":null},
				{"op":"remove","path":"/spec/taints/0"},
				{"op":"test","path":"/metadata/annotations/override.nodegate.dev~1g","value":"open it"},
				{"op":"test","path":"/metadata/annotations/gate.nodegate.dev~1g","value":"closed"},
				{"op":"replace","path":"/metadata/annotations/gate.nodegate.dev~1g","value":"masked"},
				{"op":"test","path":"/metadata/annotations/override.nodegate.dev~1h","value":"over"},
				{"op":"remove","path":"/metadata/annotations/override.nodegate.dev~1h"}]`,
		},
		{
			name:     "a stamp and a record are the first annotations",
			node:     gate.Node{UID: "u", Taints: []corev1.Taint{a}},
			decision: gate.Decision{Taints: []corev1.Taint{a}, Records: map[string]string{"g": "open"}, Stamps: map[string]string{"example.com/at": "34"}},
			want: `[
				{"op":"test","path":"/metadata/uid","value":"u"},
				{"op":"test","path":"/metadata/annotations","value":null},
				{"op":"add","path":"/metadata/annotations","value":{"example.com/at":"34","gate.nodegate.dev/g":"open"}}]`,
		},
		{
			name:     "opening removes the taint and replaces the record",
			node:     gate.Node{UID: "u", BootID: "boot", Taints: []corev1.Taint{c, a, b}, HasAnnotations: true, Records: map[string]string{"g": "closed"}},
			decision: gate.Decision{Taints: []corev1.Taint{c, b}, Records: map[string]string{"g": "open"}, Verdicts: opening},
			want: `[
				{"op":"test","path":"/metadata/uid","value":"u"},
				{"op":"test","path":"/status/nodeInfo/bootID","value":"boot"},
				{"op":"test","path":"/spec/taints/1/key","value":"example.com/a"},
				{"op":"test","path":"/spec/taints/1/effect","value":"NoSchedule"},
				{"op":"test","path":"/spec/taints/1/value","value":null},
				{"op":"remove","path":"/spec/taints/1"},
				{"op":"test","path":"/metadata/annotations/gate.nodegate.dev~1g","value":"closed"},
				{"op":"replace","path":"/metadata/annotations/gate.nodegate.dev~1g","value":"open"}]`,
		},
		{
			name: "a shared taint is removed only if the other gates' records have not changed",
			node: gate.Node{UID: "u", Taints: []corev1.Taint{a}, HasAnnotations: true, Records: map[string]string{"g": "closed", "h": "open"}},
			decision: gate.Decision{
				Records: map[string]string{"g": ""}, DependsOn: []string{"h", "i"}},
			want: `[
				{"op":"test","path":"/metadata/uid","value":"u"},
				{"op":"test","path":"/spec/taints/0/key","value":"example.com/a"},
				{"op":"test","path":"/spec/taints/0/effect","value":"NoSchedule"},
				{"op":"test","path":"/spec/taints/0/value","value":null},
				{"op":"remove","path":"/spec/taints/0"},
				{"op":"test","path":"/metadata/annotations/gate.nodegate.dev~1g","value":"closed"},
				{"op":"remove","path":"/metadata/annotations/gate.nodegate.dev~1g"},
				{"op":"test","path":"/metadata/annotations/gate.nodegate.dev~1h","value":"open"},
				{"op":"test","path":"/metadata/annotations/gate.nodegate.dev~1i","value":null}]`,
		},
		{
			name:     "a shared taint is removed only if there is still no record",
			node:     gate.Node{UID: "u", Taints: []corev1.Taint{a}},
			decision: gate.Decision{DependsOn: []string{"h"}},
			want: `[
				{"op":"test","path":"/metadata/uid","value":"u"},
				{"op":"test","path":"/spec/taints/0/key","value":"example.com/a"},
				{"op":"test","path":"/spec/taints/0/effect","value":"NoSchedule"},
				{"op":"test","path":"/spec/taints/0/value","value":null},
				{"op":"remove","path":"/spec/taints/0"},
				{"op":"test","path":"/metadata/annotations","value":null}]`,
		},
		{
			name:     "a gate that closes with an existing taint closes only while the taint exists",
			node:     gate.Node{UID: "u", Taints: []corev1.Taint{c, b}, HasAnnotations: true},
			decision: gate.Decision{Taints: []corev1.Taint{c, b}, Carried: []corev1.Taint{b}, Records: map[string]string{"g": "closed"}},
			want: `[
				{"op":"test","path":"/metadata/uid","value":"u"},
				{"op":"test","path":"/spec/taints/1/key","value":"example.com/b"},
				{"op":"test","path":"/spec/taints/1/effect","value":"NoExecute"},
				{"op":"test","path":"/spec/taints/1/value","value":"1"},
				{"op":"test","path":"/metadata/annotations/gate.nodegate.dev~1g","value":null},
				{"op":"add","path":"/metadata/annotations/gate.nodegate.dev~1g","value":"closed"}]`,
		},
		{
			name:     "two removals start with the higher index",
			node:     gate.Node{UID: "u", Taints: []corev1.Taint{a, c, b}},
			decision: gate.Decision{Taints: []corev1.Taint{c}},
			want: `[
				{"op":"test","path":"/metadata/uid","value":"u"},
				{"op":"test","path":"/spec/taints/2/key","value":"example.com/b"},
				{"op":"test","path":"/spec/taints/2/effect","value":"NoExecute"},
				{"op":"test","path":"/spec/taints/2/value","value":"1"},
				{"op":"remove","path":"/spec/taints/2"},
				{"op":"test","path":"/spec/taints/0/key","value":"example.com/a"},
				{"op":"test","path":"/spec/taints/0/effect","value":"NoSchedule"},
				{"op":"test","path":"/spec/taints/0/value","value":null},
				{"op":"remove","path":"/spec/taints/0"}]`,
		},
		{
			name:     "one taint is removed, and another is appended",
			node:     gate.Node{UID: "u", Taints: []corev1.Taint{a, c}, HasAnnotations: true, Records: map[string]string{"g": "first"}},
			decision: gate.Decision{Taints: []corev1.Taint{c, b}, Records: map[string]string{"g": "other"}},
			want: `[
				{"op":"test","path":"/metadata/uid","value":"u"},
				{"op":"test","path":"/spec/taints/0/key","value":"example.com/a"},
				{"op":"test","path":"/spec/taints/0/effect","value":"NoSchedule"},
				{"op":"test","path":"/spec/taints/0/value","value":null},
				{"op":"remove","path":"/spec/taints/0"},
				{"op":"add","path":"/spec/taints/-","value":{"key":"example.com/b","value":"1","effect":"NoExecute"}},
				{"op":"test","path":"/metadata/annotations/gate.nodegate.dev~1g","value":"first"},
				{"op":"replace","path":"/metadata/annotations/gate.nodegate.dev~1g","value":"other"}]`,
		},
		{
			name:     "a value is replaced in place",
			node:     gate.Node{UID: "u", Taints: []corev1.Taint{b, c}},
			decision: gate.Decision{Taints: []corev1.Taint{b2, c}},
			want: `[
				{"op":"test","path":"/metadata/uid","value":"u"},
				{"op":"test","path":"/spec/taints/0/key","value":"example.com/b"},
				{"op":"test","path":"/spec/taints/0/effect","value":"NoExecute"},
				{"op":"test","path":"/spec/taints/0/value","value":"1"},
				{"op":"add","path":"/spec/taints/0/value","value":"2"}]`,
		},
		{
			name:     "closing appends to other taints, and the record to other annotations",
			node:     gate.Node{UID: "u", BootID: "boot", Taints: []corev1.Taint{c}, HasAnnotations: true},
			decision: gate.Decision{Taints: []corev1.Taint{c, a}, Records: map[string]string{"g": "closed"}},
			want: `[
				{"op":"test","path":"/metadata/uid","value":"u"},
				{"op":"add","path":"/spec/taints/-","value":{"key":"example.com/a","effect":"NoSchedule"}},
				{"op":"test","path":"/metadata/annotations/gate.nodegate.dev~1g","value":null},
				{"op":"add","path":"/metadata/annotations/gate.nodegate.dev~1g","value":"closed"}]`,
		},
		{
			name:     "closing a node without taints and annotations",
			node:     gate.Node{UID: "u"},
			decision: gate.Decision{Taints: []corev1.Taint{a, b}, Records: map[string]string{"h": "2", "g": "1"}},
			want: `[
				{"op":"test","path":"/metadata/uid","value":"u"},
				{"op":"test","path":"/spec/taints","value":null},
				{"op":"add","path":"/spec/taints","value":[{"key":"example.com/a","effect":"NoSchedule"},{"key":"example.com/b","value":"1","effect":"NoExecute"}]},
				{"op":"test","path":"/metadata/annotations","value":null},
				{"op":"add","path":"/metadata/annotations","value":{"gate.nodegate.dev/g":"1","gate.nodegate.dev/h":"2"}}]`,
		},
		{
			name:     "a record is removed, and an empty one is replaced",
			node:     gate.Node{UID: "u", HasAnnotations: true, Records: map[string]string{"g": "closed", "h": ""}},
			decision: gate.Decision{Records: map[string]string{"g": "", "h": "open"}},
			want: `[
				{"op":"test","path":"/metadata/uid","value":"u"},
				{"op":"test","path":"/metadata/annotations/gate.nodegate.dev~1g","value":"closed"},
				{"op":"remove","path":"/metadata/annotations/gate.nodegate.dev~1g"},
				{"op":"test","path":"/metadata/annotations/gate.nodegate.dev~1h","value":""},
				{"op":"replace","path":"/metadata/annotations/gate.nodegate.dev~1h","value":"open"}]`,
		},
		{
			name:     "opening before the kubelet has reported its boot ID",
			node:     gate.Node{UID: "u", Taints: []corev1.Taint{a}},
			decision: gate.Decision{Verdicts: opening},
			want: `[
				{"op":"test","path":"/metadata/uid","value":"u"},
				{"op":"test","path":"/status/nodeInfo/bootID","value":""},
				{"op":"test","path":"/spec/taints/0/key","value":"example.com/a"},
				{"op":"test","path":"/spec/taints/0/effect","value":"NoSchedule"},
				{"op":"test","path":"/spec/taints/0/value","value":null},
				{"op":"remove","path":"/spec/taints/0"}]`,
		},
		{
			name:     "a name with special characters of JSON Pointer",
			node:     gate.Node{UID: "u", HasAnnotations: true, Records: map[string]string{"a~/b": "x"}},
			decision: gate.Decision{Records: map[string]string{"a~/b": ""}},
			want: `[
				{"op":"test","path":"/metadata/uid","value":"u"},
				{"op":"test","path":"/metadata/annotations/gate.nodegate.dev~1a~0~1b","value":"x"},
				{"op":"remove","path":"/metadata/annotations/gate.nodegate.dev~1a~0~1b"}]`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Patch(&tt.node, &tt.decision)
			if err != nil {
				t.Fatal(err)
			}
			if tt.want == "" {
				if got != nil {
					t.Fatalf("patch = %s, want none", got)
				}
				return
			}
			if diff := cmp.Diff(operations(t, []byte(tt.want)), operations(t, got)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}

func operations(t *testing.T, patch []byte) []any {
	t.Helper()
	var ops []any
	if err := json.Unmarshal(patch, &ops); err != nil {
		t.Fatalf("reading patch %s: %v", patch, err)
	}
	return ops
}

var (
	effects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule}
	own     = []string{"own/a", "own/b", "own/c"}
	foreign = []string{"foreign/a", "foreign/b", "foreign/c"}
	names   = []string{"g", "h", "i"}
	texts   = []string{"", "1", `{"state":"Open"}`, "~/<&>\u2028"}
)

// drawTaints draws taints without duplicates, as a Node can have them.
func drawTaints(t *rapid.T, keys []string, label string) []corev1.Taint {
	all := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) corev1.Taint {
		return kubetest.Taint(rapid.SampledFrom(keys).Draw(t, "key"), rapid.SampledFrom([]string{"", "v", "w"}).Draw(t, "value"),
			rapid.SampledFrom(effects).Draw(t, "effect"))
	}), 0, 5, func(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }).Draw(t, label)
	for i := range all {
		if all[i].Effect == corev1.TaintEffectNoExecute && rapid.Bool().Draw(t, "timed") {
			at := metav1.Unix(1700000000, 0)
			all[i].TimeAdded = &at
		}
	}
	return all
}

// drawNode draws a Node with own and foreign taints and records.
func drawNode(t *rapid.T) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: types.UID(rapid.SampledFrom([]string{"u1", "u2"}).Draw(t, "uid"))}}
	n.Labels = map[string]string{"a": "b"}
	n.Status.NodeInfo.BootID = rapid.SampledFrom([]string{"", "b1", "b2"}).Draw(t, "boot")
	n.Spec.Taints = drawTaints(t, slices.Concat(own, foreign), "taints")
	for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[string]).Draw(t, "records") {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.RecordAnnotationPrefix+name, rapid.SampledFrom(texts).Draw(t, "raw"))
	}
	for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[string]).Draw(t, "overrides") {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.OverrideAnnotationPrefix+name, rapid.SampledFrom(texts).Draw(t, "override"))
	}
	if rapid.Bool().Draw(t, "annotated") {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, "foreign/x", "y")
	}
	return n
}

// drawDecision draws a decision about a node: foreign taints do not change; own ones are
// kept, removed, changed or added.
func drawDecision(t *rapid.T, n *gate.Node) *gate.Decision {
	d := &gate.Decision{Records: make(map[string]string)}
	for _, have := range n.Taints {
		if slices.Contains(own, have.Key) {
			switch rapid.IntRange(0, 2).Draw(t, "fate") {
			case 0:
				continue
			case 1:
				have.Value = rapid.SampledFrom([]string{"", "v", "w"}).Draw(t, "new value")
			}
		}
		d.Taints = append(d.Taints, have)
	}
	for _, added := range drawTaints(t, own, "added") {
		if indexOf(n.Taints, added) < 0 {
			d.Taints = append(d.Taints, added)
		}
	}
	for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[string]).Draw(t, "written") {
		d.Records[name] = rapid.SampledFrom(texts).Draw(t, "written raw")
	}
	for name := range n.Overrides {
		if rapid.Bool().Draw(t, "withdrawn") {
			if d.Withdrawn == nil {
				d.Withdrawn = make(map[string]string)
			}
			d.Withdrawn[name] = ""
		}
	}
	if rapid.Bool().Draw(t, "opens") {
		d.Verdicts = opening
	}
	return d
}

// interfere applies changes of other writers.
func interfere(t *rapid.T, n *corev1.Node) *corev1.Node {
	n = n.DeepCopy()
	for range rapid.IntRange(0, 3).Draw(t, "changes") {
		taints := n.Spec.Taints
		switch rapid.IntRange(0, 8).Draw(t, "change") {
		case 0:
			for _, added := range drawTaints(t, slices.Concat(own, foreign), "inserted") {
				if indexOf(n.Spec.Taints, added) < 0 {
					at := rapid.IntRange(0, len(n.Spec.Taints)).Draw(t, "at")
					n.Spec.Taints = slices.Insert(n.Spec.Taints, at, added)
				}
			}
		case 1:
			if len(taints) > 0 {
				i := rapid.IntRange(0, len(taints)-1).Draw(t, "removed")
				n.Spec.Taints = slices.Delete(taints, i, i+1)
			}
		case 2:
			n.Spec.Taints = rapid.Permutation(taints).Draw(t, "reordered")
		case 3:
			if len(taints) > 0 {
				taints[rapid.IntRange(0, len(taints)-1).Draw(t, "revalued")].Value = "z"
			}
		case 4:
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.RecordAnnotationPrefix+rapid.SampledFrom(names).Draw(t, "rerecorded"), "other")
		case 5:
			n.Annotations = nil
		case 6:
			n.UID = "u3"
		case 7:
			n.Status.NodeInfo.BootID = "b3"
		case 8:
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.OverrideAnnotationPrefix+rapid.SampledFrom(names).Draw(t, "overridden"), "other")
		}
	}
	return n
}

// apply applies a JSON Patch as the API server does.
func apply(t *rapid.T, n *corev1.Node, patch []byte) (*corev1.Node, bool) {
	if patch == nil {
		return n, true
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatalf("decoding patch: %v", err)
	}
	raw, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := decoded.Apply(raw)
	if err != nil {
		return nil, false
	}
	out := &corev1.Node{}
	if err := json.Unmarshal(patched, out); err != nil {
		t.Fatalf("reading patched node: %v", err)
	}
	for i, taint := range out.Spec.Taints {
		if indexOf(out.Spec.Taints, taint) != i {
			return nil, false // the API server rejects two taints with the same key and effect
		}
	}
	return out, true
}

// foreignPart returns a Node without nodegate's taints, records and overrides.
func foreignPart(n *corev1.Node) *corev1.Node {
	n = n.DeepCopy()
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return slices.Contains(own, t.Key) })
	if len(n.Spec.Taints) == 0 {
		n.Spec.Taints = nil
	}
	for _, name := range names {
		delete(n.Annotations, v1alpha1.RecordAnnotationPrefix+name)
		delete(n.Annotations, v1alpha1.OverrideAnnotationPrefix+name)
	}
	if len(n.Annotations) == 0 {
		n.Annotations = nil
	}
	return n
}

// recordsAfter returns the records of a node after a decision, without empty ones.
func recordsAfter(n *gate.Node, d *gate.Decision) map[string]string {
	records := make(map[string]string)
	maps.Copy(records, n.Records)
	for name, raw := range d.Records {
		if raw == "" {
			delete(records, name)
		} else {
			records[name] = raw
		}
	}
	return records
}

func TestPatchDoesWhatWasDecided(t *testing.T) { rapid.Check(t, patchDoesWhatWasDecided()) }

// FuzzPatch searches for a decision whose patch has another effect.
func FuzzPatch(f *testing.F) {
	for seed := range 8 {
		f.Add(randomBytes(seed))
	}
	f.Fuzz(rapid.MakeFuzz(patchDoesWhatWasDecided()))
}

// randomBytes returns bytes for rapid to draw from.
func randomBytes(seed int) []byte {
	data := make([]byte, 4096)
	_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(data) // never fails
	return data
}

func patchDoesWhatWasDecided() func(*rapid.T) {
	s := nodestore.New(nodestore.Options{})
	return func(t *rapid.T) {
		before := drawNode(t)
		n := s.Convert(before)
		d := drawDecision(t, n)
		patch, err := Patch(n, d)
		if err != nil {
			t.Fatal(err)
		}
		after, ok := apply(t, before, patch)
		if !ok {
			t.Fatalf("patch does not apply: %s", patch)
		}
		got := s.Convert(after)
		if len(got.Taints)+len(d.Taints) > 0 && !slices.EqualFunc(got.Taints, d.Taints, nodediff.SameTaint) {
			t.Fatalf("taints = %v, want %v; patch %s", got.Taints, d.Taints, patch)
		}
		if want := recordsAfter(n, d); !maps.Equal(got.Records, want) {
			t.Fatalf("records = %q, want %q; patch %s", got.Records, want, patch)
		}
		for name, raw := range n.Overrides {
			_, withdrawn := d.Withdrawn[name]
			if now, there := got.Overrides[name]; there == withdrawn || there && now != raw {
				t.Fatalf("override %s is %q, %t; patch %s", name, now, there, patch)
			}
		}
		if diff := cmp.Diff(foreignPart(before), foreignPart(after)); diff != "" {
			t.Fatalf("foreign things changed (-before +after):\n%s", diff)
		}
	}
}

func TestPatchOfNodeThatChanged(t *testing.T) {
	applied := 0
	rapid.Check(t, patchOfNodeThatChanged(&applied))
	if applied == 0 {
		t.Error("no patch applied: the test has no effect")
	}
}

// FuzzPatchOfNodeThatChanged searches for changes by other writers that a patch reverts,
// or that should prevent it from being applied.
func FuzzPatchOfNodeThatChanged(f *testing.F) {
	for seed := range 8 {
		f.Add(randomBytes(seed))
	}
	f.Fuzz(rapid.MakeFuzz(patchOfNodeThatChanged(new(int))))
}

func patchOfNodeThatChanged(applied *int) func(*rapid.T) {
	s := nodestore.New(nodestore.Options{})
	return func(t *rapid.T) {
		decided := drawNode(t)
		n := s.Convert(decided)
		d := drawDecision(t, n)
		patch, err := Patch(n, d)
		if err != nil {
			t.Fatal(err)
		}
		before := interfere(t, decided)
		after, ok := apply(t, before, patch)
		if !ok || patch == nil {
			return
		}
		*applied++
		if before.UID != decided.UID {
			t.Fatalf("another Node was patched: %s", patch)
		}
		if d.Opens() && before.Status.NodeInfo.BootID != n.BootID {
			t.Fatalf("a gate opened in another boot: %s", patch)
		}
		if diff := cmp.Diff(foreignPart(before), foreignPart(after)); diff != "" {
			t.Fatalf("foreign things changed (-before +after):\n%s\npatch %s", diff, patch)
		}
		for name, raw := range d.Records {
			key := v1alpha1.RecordAnnotationPrefix + name
			if was, now := before.Annotations[key], after.Annotations[key]; now != raw && was != now {
				t.Fatalf("record %s went from %q to %q, decided %q", name, was, now, raw)
			}
			if looked, overridden := n.Overrides[name]; overridden && before.Annotations[v1alpha1.OverrideAnnotationPrefix+name] != looked {
				t.Fatalf("record %s depends on an override that has changed: %s", name, patch)
			}
		}
		for _, taint := range n.Taints {
			if at := indexOf(d.Taints, taint); at < 0 && indexOf(after.Spec.Taints, taint) >= 0 {
				t.Fatalf("taint %s should have been removed: %s", fmt.Sprint(taint), patch)
			}
		}
	}
}
