// SPDX-License-Identifier: Apache-2.0

package write

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// patched is a client that applies patches to one Node.
type patched struct {
	node    *corev1.Node
	options metav1.PatchOptions
}

func (p *patched) Patch(_ context.Context, _ string, _ types.PatchType, body []byte, o metav1.PatchOptions, _ ...string) (*corev1.Node, error) {
	p.options = o
	raw, err := json.Marshal(p.node)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(body)
	if err != nil {
		return nil, err
	}
	if raw, err = patch.Apply(raw); err != nil {
		return nil, err
	}
	p.node = &corev1.Node{}
	return p.node, json.Unmarshal(raw, p.node)
}

func testNode(annotations map[string]string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid", Annotations: annotations},
		Spec:       corev1.NodeSpec{Taints: taints},
	}
}

// An override is written only to the Node that was read, and only if the override has not
// changed since. Nothing else of the Node changes.
func TestOverrideWriter(t *testing.T) {
	const key = v1alpha1.OverrideAnnotationPrefix + "a.b"
	for name, c := range map[string]struct {
		read, current *corev1.Node
		text          string
		want          map[string]string
		fails         bool
	}{
		"first annotation":         {testNode(nil), testNode(nil), "new", map[string]string{key: "new"}, false},
		"another annotation":       {testNode(map[string]string{"x": "y"}), testNode(map[string]string{"x": "z"}), "new", map[string]string{"x": "z", key: "new"}, false},
		"replace an override":      {testNode(map[string]string{key: "old"}), testNode(map[string]string{key: "old"}), "new", map[string]string{key: "new"}, false},
		"remove it":                {testNode(map[string]string{key: "old"}), testNode(map[string]string{key: "old"}), "", map[string]string{}, false},
		"nothing to remove":        {testNode(nil), testNode(nil), "", nil, false},
		"annotated meanwhile":      {testNode(nil), testNode(map[string]string{"x": "y"}), "new", nil, true},
		"overridden meanwhile":     {testNode(map[string]string{"x": "y"}), testNode(map[string]string{"x": "y", key: "other"}), "new", nil, true},
		"changed meanwhile":        {testNode(map[string]string{key: "old"}), testNode(map[string]string{key: "other"}), "", nil, true},
		"another Node of the name": {testNode(nil), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "other"}}, "new", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			api := &patched{node: c.current}
			h := &OverrideWriter{nodes: api, dryRun: []string{metav1.DryRunAll}}
			err := h.Override(t.Context(), c.read, "a.b", c.text)
			if (err != nil) != c.fails {
				t.Fatalf("Override: %v", err)
			}
			if !c.fails && !mapsEqual(api.node.Annotations, c.want) {
				t.Errorf("annotations are %v, want %v", api.node.Annotations, c.want)
			}
			if wrote := c.text != "" || len(c.read.Annotations) > 0; wrote && !slices.Equal(api.options.DryRun, h.dryRun) {
				t.Errorf("not a dry run: %+v", api.options)
			}
		})
	}
}

func mapsEqual(a, b map[string]string) bool {
	rawA, _ := json.Marshal(a)
	rawB, _ := json.Marshal(b)
	return string(rawA) == string(rawB) || len(a) == 0 && len(b) == 0
}

// Only the given taint is removed, and only if it is still where it was read.
func TestRemoveTaint(t *testing.T) {
	ours, foreign := corev1.Taint{Key: "ours", Value: "v", Effect: corev1.TaintEffectNoSchedule}, corev1.Taint{Key: "foreign", Effect: corev1.TaintEffectNoExecute}
	taint := v1alpha1.Taint{Key: "ours", Effect: corev1.TaintEffectNoSchedule}
	for name, c := range map[string]struct {
		read, current *corev1.Node
		want          []corev1.Taint
		wantErr       string
	}{
		"removed":       {testNode(nil, foreign, ours), testNode(nil, foreign, ours), []corev1.Taint{foreign}, ""},
		"moved":         {testNode(nil, foreign, ours), testNode(nil, ours, foreign), nil, "test"},
		"not found":     {testNode(nil, foreign), testNode(nil, foreign), nil, ErrNoTaint.Error()},
		"value changed": {testNode(nil, ours), testNode(nil, corev1.Taint{Key: "ours", Value: "w", Effect: ours.Effect}), nil, "test"},
	} {
		t.Run(name, func(t *testing.T) {
			api := &patched{node: c.current}
			err := (&OverrideWriter{nodes: api}).RemoveTaint(t.Context(), c.read, taint)
			switch {
			case c.wantErr == "" && (err != nil || !slices.Equal(api.node.Spec.Taints, c.want)):
				t.Errorf("taints are %v: %v", api.node.Spec.Taints, err)
			case c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)):
				t.Errorf("RemoveTaint: %v", err)
			}
			if name == "not found" && !errors.Is(err, ErrNoTaint) {
				t.Errorf("%v is not ErrNoTaint", err)
			}
		})
	}
}
