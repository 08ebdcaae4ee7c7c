// SPDX-License-Identifier: Apache-2.0

package write

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
)

// A patch that takes a node out of service can be applied only while the node has been
// unreachable since the time that the decision was based on.
func TestPatchOutOfService(t *testing.T) {
	since := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	seen := func() *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"},
			Spec: corev1.NodeSpec{Taints: []corev1.Taint{
				kubetest.Taint("example.com/a", "", corev1.TaintEffectNoSchedule), kubetest.Taint(v1alpha1.TaintCloudShutdown, "", corev1.TaintEffectNoSchedule)}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
				{Type: "Preempted", Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)},
				{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(since.Local())},
			}},
		}
	}
	outOfService := kubetest.Taint(v1alpha1.TaintOutOfService, "", corev1.TaintEffectNoExecute)
	n := nodestore.New(nodestore.Options{}).Convert(seen())
	patch, err := Patch(n, &gate.Decision{Taints: append(n.Taints[:2:2], outOfService)})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change  func(*corev1.Node)
		applies bool
	}{
		"nothing has changed":    {func(*corev1.Node) {}, true},
		"a heartbeat of another": {func(o *corev1.Node) { o.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }, true},
		"it is ready":            {func(o *corev1.Node) { o.Status.Conditions[1].Status = corev1.ConditionTrue }, false},
		"it is not ready":        {func(o *corev1.Node) { o.Status.Conditions[1].Status = corev1.ConditionFalse }, false},
		"it is unreachable again": {func(o *corev1.Node) {
			o.Status.Conditions[1].LastTransitionTime = metav1.NewTime(since.Add(time.Second))
		}, false},
		"another condition is Unknown": {func(o *corev1.Node) { o.Status.Conditions[1].Type = corev1.NodeDiskPressure }, false},
		"there are no conditions":      {func(o *corev1.Node) { o.Status.Conditions = nil }, false},
		"the cloud's taint is removed": {func(o *corev1.Node) { o.Spec.Taints = o.Spec.Taints[:1] }, false},
		"it is another node":           {func(o *corev1.Node) { o.UID = "v" }, false},
	} {
		o := seen()
		c.change(o)
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decoded.Apply(raw); (err == nil) != c.applies {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Patches that keep or remove the taint need no such tests.
func TestPatchInService(t *testing.T) {
	outOfService := kubetest.Taint(v1alpha1.TaintOutOfService, "", corev1.TaintEffectNoExecute)
	other := kubetest.Taint("example.com/a", "", corev1.TaintEffectNoSchedule)
	n := &gate.Node{Name: "n", UID: "u", Taints: []corev1.Taint{outOfService}, Conditions: []gate.Condition{{Type: "Ready", Status: "True"}}}
	for _, want := range [][]corev1.Taint{{}, {other}, {outOfService, other}} {
		if ops, err := testUnreachable(n, want); len(ops) > 0 || err != nil {
			t.Errorf("%v: %v, %v", want, ops, err)
		}
	}
	n.Taints = nil
	for _, conditions := range [][]gate.Condition{nil, {{Type: "Ready", Status: "True"}}, {{Type: "Ready", Status: "False"}}} {
		n.Conditions = conditions
		if patch, err := Patch(n, &gate.Decision{Taints: []corev1.Taint{outOfService}}); !errors.Is(err, errNotUnreachable) || patch != nil {
			t.Errorf("%v: patch %s, %v", conditions, patch, err)
		}
		if _, err := (&Writer{}).Apply(t.Context(), n, &gate.Decision{Taints: []corev1.Taint{outOfService}}); !errors.Is(err, ErrUnsent) {
			t.Errorf("%v: Apply returned %v, want %v", conditions, err, ErrUnsent)
		}
	}
}
