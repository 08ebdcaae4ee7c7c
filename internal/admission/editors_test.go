// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestEditorsActAsServiceAccounts tests what docs/security.md says about users with the role
// edit in a namespace: they can act as its ServiceAccounts, which no policy can prevent.
func TestEditorsActAsServiceAccounts(t *testing.T) {
	in := install(t)
	guardDaemonPods(t, in)
	forge := func(by *kubernetes.Clientset) error {
		_, err := by.CoreV1().Pods(metav1.NamespaceSystem).Create(t.Context(), podOf(ofDaemonSet("apps/v1", true), generation), metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	editor := newEditor(t, in, metav1.NamespaceSystem)
	eventually(t, func() error {
		return forge(as(t, impersonating(editor, "system:serviceaccount:kube-system:daemon-set-controller")))
	})
	checkDenied(t, forge(as(t, editor)), onlyItsLabel)

	node, err := in.admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edited"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteNode(t, in, node.Name) })
	nodegate := as(t, impersonating(newEditor(t, in, options.Namespace), "system:serviceaccount:nodegate-system:nodegate"))
	eventually(t, func() error {
		_, err := nodegate.CoreV1().Nodes().Patch(t.Context(), node.Name, mergePatch, []byte(`{"metadata":{"annotations":{"gate.nodegate.dev/one":"{}"}}}`), ownDryRun)
		return err
	})
}

// newEditor returns the configuration of a user with the role edit in a namespace.
func newEditor(t *testing.T, in *installation, namespace string) *rest.Config {
	t.Helper()
	name := "editor-of-" + namespace
	bindings := in.admin.RbacV1().RoleBindings(namespace)
	_, err := bindings.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bindings.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	return in.User(name)
}

// impersonating returns the configuration of a user who acts as another one.
func impersonating(config *rest.Config, user string) *rest.Config {
	config = rest.CopyConfig(config)
	config.Impersonate.UserName = user
	return config
}
