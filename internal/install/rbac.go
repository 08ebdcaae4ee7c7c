// SPDX-License-Identifier: Apache-2.0

package install

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// ClusterRules returns the controller's permissions in the whole cluster. Admission policies
// restrict them further: patching nodes to allowed taints and nodegate's records, and
// creating nodes to dry runs.
func ClusterRules(withoutCRD bool) []rbacv1.PolicyRule {
	read := []string{"get", "list", "watch"}
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: append([]string{"patch", "create"}, read...)},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"list", "watch"}},
		// Used only while a gate has a csiDriver signal.
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"csinodes"}, Verbs: []string{"list", "watch"}},
		// Used only while a gate has a resourceSlices signal.
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceslices"}, Verbs: []string{"list", "watch"}},
		// Used only while such a signal has minDevices.
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"devicetaintrules"}, Verbs: []string{"list", "watch"}},
		// Taint keys that another controller manages.
		{APIGroups: []string{"readiness.node.x-k8s.io"}, Resources: []string{"nodereadinessrules"}, Verbs: []string{"list", "watch"}},
	}
	if withoutCRD {
		return rules
	}
	return append(rules,
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"nodegates"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"nodegates/status"}, Verbs: []string{"patch"}},
		// To distinguish the deletion of a gate from the deletion of its CRD.
		rbacv1.PolicyRule{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, ResourceNames: []string{v1alpha1.Resource.GroupResource().String()}, Verbs: []string{"get"}},
	)
}

// NamespaceRules returns the controller's permissions in its own namespace.
func NamespaceRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		// The parameters of the policies. Permission to create cannot be limited to a name.
		{APIGroups: []string{""}, Resources: []string{"podtemplates"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"podtemplates"}, ResourceNames: []string{v1alpha1.BirthParameter, v1alpha1.TolerationsParameter}, Verbs: []string{"get", "update"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{v1alpha1.LeaseName}, Verbs: []string{"get", "update", "watch"}},
	}
}

// EventRules returns the controller's permissions in the namespace of Events about nodes.
func EventRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create"}}}
}

// evictRules returns the additional permissions in the whole cluster if the administrator
// permits nodegate to evict pods.
func evictRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}}}
}

// observeRules returns the additional permissions in the whole cluster if the administrator
// permits nodegate to read objects of other kinds.
func observeRules(resources []schema.GroupResource) []rbacv1.PolicyRule {
	rules := make([]rbacv1.PolicyRule, 0, len(resources))
	for _, r := range resources {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: []string{"get", "list", "watch"}})
	}
	return rules
}

// conditionRules returns the additional permissions in the whole cluster if the
// administrator permits nodegate to publish conditions of Nodes.
func conditionRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}}}
}

// MetricsRules returns the additional permissions in the whole cluster if the API server
// authorizes readers of metrics.
func MetricsRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
	}
}

// metricsReader returns the ClusterRole that administrators bind to readers of metrics.
func metricsReader() object {
	return &rbacv1.ClusterRole{
		TypeMeta: typeMeta(rbacVersion, "ClusterRole"), ObjectMeta: metav1.ObjectMeta{Name: MetricsReader},
		Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics", "/nodes/*"}, Verbs: []string{"get"}}},
	}
}

func (o renderer) rbac() []object {
	own := metav1.ObjectMeta{Name: o.ServiceAccount, Namespace: o.Namespace}
	events := metav1.ObjectMeta{Name: eventsRoleName, Namespace: metav1.NamespaceDefault}
	objects := []object{&corev1.ServiceAccount{TypeMeta: typeMeta("v1", "ServiceAccount"), ObjectMeta: own}}
	objects = append(objects, o.clusterRole(ClusterRole, ClusterRules(o.WithoutCRD))...)
	if o.EvictPods {
		objects = append(objects, o.clusterRole(evictRoleName, evictRules())...)
	}
	if o.NodeConditions {
		objects = append(objects, o.clusterRole(conditionsRoleName, conditionRules())...)
	}
	if len(o.Observe) > 0 {
		objects = append(objects, o.clusterRole(observeRoleName, observeRules(o.Observe))...)
	}
	if !o.OpenMetrics {
		objects = append(objects, o.clusterRole(metricsRoleName, MetricsRules())...)
		objects = append(objects, metricsReader())
	}
	objects = append(objects, o.role(own, NamespaceRules())...)
	return append(objects, o.role(events, EventRules())...)
}

func (o renderer) subjects() []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: o.ServiceAccount, Namespace: o.Namespace}}
}

// clusterRole returns a ClusterRole and its binding to the controller's ServiceAccount.
func (o renderer) clusterRole(name string, rules []rbacv1.PolicyRule) []object {
	meta := metav1.ObjectMeta{Name: name}
	return []object{
		&rbacv1.ClusterRole{TypeMeta: typeMeta(rbacVersion, "ClusterRole"), ObjectMeta: meta, Rules: rules},
		&rbacv1.ClusterRoleBinding{
			TypeMeta: typeMeta(rbacVersion, "ClusterRoleBinding"), ObjectMeta: meta, Subjects: o.subjects(),
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		},
	}
}

// role returns a Role and its binding to the controller's ServiceAccount.
func (o renderer) role(meta metav1.ObjectMeta, rules []rbacv1.PolicyRule) []object {
	return []object{
		&rbacv1.Role{TypeMeta: typeMeta(rbacVersion, "Role"), ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{
			TypeMeta: typeMeta(rbacVersion, "RoleBinding"), ObjectMeta: meta, Subjects: o.subjects(),
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		},
	}
}
