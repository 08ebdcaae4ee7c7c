// SPDX-License-Identifier: Apache-2.0

package install

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// ClusterRules are what the controller may do in the whole cluster. The
// admission policies confine it further: what RBAC calls patching a node is
// narrowed to allowed taints and our records, and creating one to dry runs.
func ClusterRules() []rbacv1.PolicyRule {
	read := []string{"get", "list", "watch"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: append([]string{"patch", "create"}, read...)},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"nodegates"}, Verbs: read},
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"nodegates/status"}, Verbs: []string{"patch"}},
		// Whether a gate was deleted, or its whole kind.
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, ResourceNames: []string{v1alpha1.Resource.GroupResource().String()}, Verbs: []string{"get"}},
		// Keys that another controller manages.
		{APIGroups: []string{"readiness.node.x-k8s.io"}, Resources: []string{"nodereadinessrules"}, Verbs: []string{"list"}},
	}
}

// NamespaceRules are what the controller may do in its own namespace.
func NamespaceRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		// The parameters of the birth policy.
		{APIGroups: []string{""}, Resources: []string{"podtemplates"}, Verbs: []string{"list", "create", "update", "delete"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
		{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}
}

func (o renderer) rbac() []object {
	cluster := metav1.ObjectMeta{Name: clusterRoleName}
	own := metav1.ObjectMeta{Name: o.ServiceAccount, Namespace: o.Namespace}
	subject := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: o.ServiceAccount, Namespace: o.Namespace}}
	return []object{
		&corev1.ServiceAccount{TypeMeta: typeMeta("v1", "ServiceAccount"), ObjectMeta: own},
		&rbacv1.ClusterRole{TypeMeta: typeMeta(rbacVersion, "ClusterRole"), ObjectMeta: cluster, Rules: ClusterRules()},
		&rbacv1.ClusterRoleBinding{
			TypeMeta: typeMeta(rbacVersion, "ClusterRoleBinding"), ObjectMeta: cluster, Subjects: subject,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRoleName},
		},
		&rbacv1.Role{TypeMeta: typeMeta(rbacVersion, "Role"), ObjectMeta: own, Rules: NamespaceRules()},
		&rbacv1.RoleBinding{
			TypeMeta: typeMeta(rbacVersion, "RoleBinding"), ObjectMeta: own, Subjects: subject,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: o.ServiceAccount},
		},
	}
}
