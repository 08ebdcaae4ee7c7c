// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// nodegate can add the out-of-service taint only to a node that is unreachable.
func TestOutOfServiceOnSilentNodesOnly(t *testing.T) {
	in := install(t)
	const (
		add      = `{"op":"add","path":"/spec/taints/-","value":{"key":"node.kubernetes.io/out-of-service","effect":"NoExecute"}}`
		addOther = `{"op":"add","path":"/spec/taints/-","value":{"key":"test.nodegate.dev/b","effect":"NoExecute"}}`
		revalue  = `{"op":"add","path":"/spec/taints/1/value","value":"x"}`
		remove   = `{"op":"remove","path":"/spec/taints/1"}`
		alive    = "only to a Node whose Ready condition is Unknown"
	)
	present := corev1.Taint{Key: v1alpha1.TaintOutOfService, Effect: corev1.TaintEffectNoExecute}
	similar := corev1.Taint{Key: v1alpha1.TaintOutOfService, Effect: corev1.TaintEffectNoSchedule}
	for name, test := range map[string]struct {
		ready   corev1.ConditionStatus
		taint   corev1.Taint
		patch   string
		refused string
	}{
		"unreachable":                     {corev1.ConditionUnknown, foreign2, add, ""},
		"ready":                           {corev1.ConditionTrue, foreign2, add, alive},
		"not ready":                       {corev1.ConditionFalse, foreign2, add, alive},
		"no Ready condition":              {"", foreign2, add, alive},
		"present with another effect":     {corev1.ConditionTrue, similar, add, alive},
		"removal from a ready node":       {corev1.ConditionTrue, present, remove, ""},
		"removal from an unreachable one": {corev1.ConditionUnknown, present, remove, ""},
		"present, another taint is added": {corev1.ConditionTrue, present, addOther, ""},
		"present, its value changes":      {corev1.ConditionTrue, present, revalue, ""},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "silence-"},
				Spec:       corev1.NodeSpec{Taints: []corev1.Taint{foreign, test.taint}},
				// Other conditions do not count.
				Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionUnknown}}},
			}
			if test.ready != "" {
				node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: test.ready})
			}
			created, err := in.admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { deleteNode(t, in, created.Name) })
			_, err = in.nodegate.CoreV1().Nodes().Patch(t.Context(), created.Name, types.JSONPatchType, jsonPatch(test.patch), ownDryRun)
			checkDenied(t, err, test.refused)
		})
	}
}
