// SPDX-License-Identifier: Apache-2.0

package cluster

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

// patched is a Node in an API server, to which patches are applied.
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

func handNode(annotations map[string]string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid", Annotations: annotations},
		Spec:       corev1.NodeSpec{Taints: taints},
	}
}

// An override is written to the very Node that was seen, if nobody has written
// another one meanwhile; nothing else of the Node changes.
func TestHandOverride(t *testing.T) {
	const key = v1alpha1.OverrideAnnotationPrefix + "a.b"
	for name, c := range map[string]struct {
		seen, is *corev1.Node
		text     string
		want     map[string]string
		refused  bool
	}{
		"the first annotation":     {handNode(nil), handNode(nil), "new", map[string]string{key: "new"}, false},
		"another annotation":       {handNode(map[string]string{"x": "y"}), handNode(map[string]string{"x": "z"}), "new", map[string]string{"x": "z", key: "new"}, false},
		"another override":         {handNode(map[string]string{key: "old"}), handNode(map[string]string{key: "old"}), "new", map[string]string{key: "new"}, false},
		"the end of it":            {handNode(map[string]string{key: "old"}), handNode(map[string]string{key: "old"}), "", map[string]string{}, false},
		"none that could end":      {handNode(nil), handNode(nil), "", nil, false},
		"annotated meanwhile":      {handNode(nil), handNode(map[string]string{"x": "y"}), "new", nil, true},
		"overridden meanwhile":     {handNode(map[string]string{"x": "y"}), handNode(map[string]string{"x": "y", key: "other"}), "new", nil, true},
		"changed meanwhile":        {handNode(map[string]string{key: "old"}), handNode(map[string]string{key: "other"}), "", nil, true},
		"another Node of the name": {handNode(nil), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "other"}}, "new", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			api := &patched{node: c.is}
			h := &Hand{nodes: api, dryRun: []string{metav1.DryRunAll}}
			err := h.Override(t.Context(), c.seen, "a.b", c.text)
			if (err != nil) != c.refused {
				t.Fatalf("it ended with %v", err)
			}
			if !c.refused && !mapsEqual(api.node.Annotations, c.want) {
				t.Errorf("annotations are %v, want %v", api.node.Annotations, c.want)
			}
			if wrote := c.text != "" || len(c.seen.Annotations) > 0; wrote && !slices.Equal(api.options.DryRun, h.dryRun) {
				t.Errorf("it was not a dry run: %+v", api.options)
			}
		})
	}
}

func mapsEqual(a, b map[string]string) bool {
	rawA, _ := json.Marshal(a)
	rawB, _ := json.Marshal(b)
	return string(rawA) == string(rawB) || len(a) == 0 && len(b) == 0
}

// The one taint goes, and only if it is where it was seen.
func TestHandTakesATaintOff(t *testing.T) {
	ours, foreign := corev1.Taint{Key: "ours", Value: "v", Effect: corev1.TaintEffectNoSchedule}, corev1.Taint{Key: "foreign", Effect: corev1.TaintEffectNoExecute}
	taint := v1alpha1.Taint{Key: "ours", Effect: corev1.TaintEffectNoSchedule}
	for name, c := range map[string]struct {
		seen, is *corev1.Node
		want     []corev1.Taint
		says     string
	}{
		"it goes":             {handNode(nil, foreign, ours), handNode(nil, foreign, ours), []corev1.Taint{foreign}, ""},
		"it has moved":        {handNode(nil, foreign, ours), handNode(nil, ours, foreign), nil, "test"},
		"it was not there":    {handNode(nil, foreign), handNode(nil, foreign), nil, ErrNoTaint.Error()},
		"its value has moved": {handNode(nil, ours), handNode(nil, corev1.Taint{Key: "ours", Value: "w", Effect: ours.Effect}), nil, "test"},
	} {
		t.Run(name, func(t *testing.T) {
			api := &patched{node: c.is}
			err := (&Hand{nodes: api}).TakeOff(t.Context(), c.seen, taint)
			switch {
			case c.says == "" && (err != nil || !slices.Equal(api.node.Spec.Taints, c.want)):
				t.Errorf("taints are %v: %v", api.node.Spec.Taints, err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("it ended with %v", err)
			}
			if name == "it was not there" && !errors.Is(err, ErrNoTaint) {
				t.Errorf("%v is not ErrNoTaint", err)
			}
		})
	}
}
