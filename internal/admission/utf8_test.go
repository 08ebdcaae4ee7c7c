// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// A kubelet can write bytes that are not UTF-8 into its Node, in protobuf. The API server replaces
// them when it applies a patch. That must not count as a change by nodegate, whose patches
// would otherwise all be rejected: the gates of the node would never close again.
func TestBytesThatAreNotUTF8(t *testing.T) {
	in := install(t)
	in.close(t)
	undisturbed(t, in)
	for name, write := range map[string]func(*corev1.Node){
		"nothing":       func(*corev1.Node) {},
		"an annotation": func(n *corev1.Node) { n.Annotations = map[string]string{"example.com/x": "a\xff\xfe\u00fcb", "y": "z"} },
		"a stamp":       func(n *corev1.Node) { n.Annotations = map[string]string{"example.com/opened-at": "\xff"} },
		"a manager":     func(n *corev1.Node) { n.ManagedFields[0].Manager = "m\xff" },
		"a boot ID":     func(n *corev1.Node) { n.Status.NodeInfo.BootID = "\xff" },
		"a condition": func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: "X\xff", Status: "True", Message: "\xff"}}
		},
		"an image": func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{Names: []string{"\xff"}}} },
	} {
		t.Run(name, func(t *testing.T) {
			node, err := in.admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "binary", Labels: labelled(1)}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { deleteNode(t, in, "binary") })
			config := in.User("system:node:"+node.Name, "system:nodes")
			config.ContentType = runtime.ContentTypeProtobuf
			kubelet := as(t, config).CoreV1().Nodes()
			write(node)
			status := node.DeepCopy()
			if len(node.ManagedFields) == 0 {
				t.Fatal("nothing is recorded in managedFields")
			}
			if node, err = kubelet.Update(t.Context(), node, metav1.UpdateOptions{FieldManager: "kubelet"}); err != nil {
				t.Fatal(err)
			}
			status.ResourceVersion = node.ResourceVersion
			if _, err = kubelet.UpdateStatus(t.Context(), status, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			for _, patch := range []struct {
				kind  types.PatchType
				patch string
			}{
				{types.StrategicMergePatchType, `{"metadata":{"annotations":{"gate.nodegate.dev/one":"{}"}}}`},
				{types.JSONPatchType, `[{"op":"add","path":"/spec/taints/-","value":{"key":"test.nodegate.dev/a","effect":"NoSchedule"}}]`},
				{types.MergePatchType, `{"metadata":{"annotations":{"gate.nodegate.dev/one":"{ }"}}}`},
			} {
				_, err = in.nodegate.CoreV1().Nodes().Patch(t.Context(), node.Name, patch.kind, []byte(patch.patch), ownPatch)
				checkDenied(t, err, "")
			}
		})
	}
}

// The same with an override, with which a kubelet can register: neither nodegate nor others
// change it when they patch something else.
func TestOverrideThatIsNotUTF8(t *testing.T) {
	in := install(t)
	in.leave(t) // the birth policy would replace the bytes
	undisturbed(t, in)
	editor := newUser(t, in, "binary-editor", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"*"}})
	config := in.User("system:node:binary-override", "system:nodes")
	config.ContentType = runtime.ContentTypeProtobuf
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "binary-override", Annotations: map[string]string{"override.nodegate.dev/one": "\xff"}}}
	if _, err := as(t, config).CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteNode(t, in, node.Name) })
	taints := jsonPatch(op("add", "/spec/taints/-", `{"key":"test.nodegate.dev/a","effect":"NoSchedule"}`))
	_, err := editor.CoreV1().Nodes().Patch(t.Context(), node.Name, mergePatch, []byte(`{"metadata":{"labels":{"a":"b"}}}`), dryRunPatch)
	checkDenied(t, err, "")
	_, err = in.nodegate.CoreV1().Nodes().Patch(t.Context(), node.Name, types.JSONPatchType, taints, ownDryRun)
	checkDenied(t, err, "")
	_, err = editor.CoreV1().Nodes().Patch(t.Context(), node.Name, mergePatch, []byte(`{"metadata":{"annotations":{"override.nodegate.dev/one":"x"}}}`), dryRunPatch)
	checkDenied(t, err, recordsGuarded)
}
