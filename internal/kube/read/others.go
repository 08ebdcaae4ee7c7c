// SPDX-License-Identifier: Apache-2.0

package read

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/writers"
)

// Other objects, as a whole, for checking how a cluster is set up.

// NodePools is the resource of Karpenter, and ResourceFlavors that of Kueue.
var (
	NodePools       = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodepools"}
	ResourceFlavors = schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "resourceflavors"}
)

// Others returns all objects of another tool's resource, or none if the API server does
// not serve it.
func (r *Reader) Others(ctx context.Context, kind schema.GroupVersionResource) ([]unstructured.Unstructured, error) {
	all, err := allOf[unstructured.Unstructured](ctx, kind.GroupResource().String(), r.others.Resource(kind).List)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return all, err
}

// allOf returns all objects of a resource.
func allOf[O any, L runtime.Object](ctx context.Context, resource string, list func(context.Context, metav1.ListOptions) (L, error)) ([]O, error) {
	var all []O
	err := eachOf(ctx, pageSize, list, metav1.ListOptions{}, func(o *O) { all = append(all, *o) })
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", resource, err)
	}
	return all, nil
}

// ManagedKeys returns the names of NodeReadinessRules by the taint key that they manage.
func (r *Reader) ManagedKeys(ctx context.Context) (map[string]string, error) {
	rules, err := r.Others(ctx, writers.ReadinessRules)
	if err != nil {
		return nil, err
	}
	return writers.ManagedKeys(rules), nil
}

// AdmissionPolicy returns a ValidatingAdmissionPolicy.
func (r *Reader) AdmissionPolicy(ctx context.Context, name string) (*admissionregistrationv1.ValidatingAdmissionPolicy, error) {
	policy, err := r.core.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading policy %s: %w", name, err)
	}
	return policy, nil
}

// HasMutatingPolicy reports whether a MutatingAdmissionPolicy and the binding of the same
// name exist. They do not if the API server does not serve this kind.
func (r *Reader) HasMutatingPolicy(ctx context.Context, name string) (bool, error) {
	api := r.core.AdmissionregistrationV1()
	_, err := api.MutatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		_, err = api.MutatingAdmissionPolicyBindings().Get(ctx, name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading policy %s: %w", name, err)
	}
	return true, nil
}

// AgentRole returns the ClusterRole of the node agent, or nil if it does not exist: the agent
// is not installed.
func (r *Reader) AgentRole(ctx context.Context) (*rbacv1.ClusterRole, error) {
	role, err := r.core.RbacV1().ClusterRoles().Get(ctx, v1alpha1.AppAgent, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading clusterrole %s: %w", v1alpha1.AppAgent, err)
	}
	return role, nil
}

// AgentUnconfined reports whether the ClusterRole of the node agent, which may be nil, permits
// writes to the status of Nodes, and the policy that confines them or its binding does not
// exist, or does not deny.
func (r *Reader) AgentUnconfined(ctx context.Context, role *rbacv1.ClusterRole) (bool, error) {
	if role == nil || !slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Resources, "nodes/status") }) {
		return false, nil
	}
	_, err := r.AdmissionPolicy(ctx, v1alpha1.AppAgent)
	if err == nil {
		var binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding
		if binding, err = r.core.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(ctx, v1alpha1.AppAgent, metav1.GetOptions{}); err == nil {
			return !slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny), nil
		}
	}
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, fmt.Errorf("reading the node agent's policy: %w", err)
}

// SomeNodes returns at most limit Nodes.
func (r *Reader) SomeNodes(ctx context.Context, limit int64) ([]corev1.Node, error) {
	list, err := r.core.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: limit})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return list.Items, nil
}

// DaemonSets returns the DaemonSets of namespaces.
func (r *Reader) DaemonSets(ctx context.Context, namespaces []string) (*gate.DaemonSets, []Error) {
	l := newSnapshot(r, "", pageSize)
	l.begin(ctx, func(*gate.DaemonSets) gate.Needs { return gate.Needs{DaemonSetNamespaces: namespaces} })
	return l.daemonSets, l.errs
}

// DaemonSet returns a DaemonSet.
func (r *Reader) DaemonSet(ctx context.Context, namespace, name string) (*appsv1.DaemonSet, error) {
	ds, err := r.core.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading DaemonSet %s/%s: %w", namespace, name, err)
	}
	return ds, nil
}

// DaemonSetObjects returns all DaemonSets, with their pod templates.
func (r *Reader) DaemonSetObjects(ctx context.Context) ([]appsv1.DaemonSet, error) {
	return allOf[appsv1.DaemonSet](ctx, "daemonsets", r.core.AppsV1().DaemonSets(metav1.NamespaceAll).List)
}

// CSIDrivers returns the names of all CSIDrivers.
func (r *Reader) CSIDrivers(ctx context.Context) (map[string]bool, error) {
	all := make(map[string]bool)
	err := eachOf(ctx, pageSize, r.core.StorageV1().CSIDrivers().List, metav1.ListOptions{}, func(o *storagev1.CSIDriver) { all[o.Name] = true })
	if err != nil {
		return nil, fmt.Errorf("listing csidrivers: %w", err)
	}
	return all, nil
}

// Deployments returns all Deployments.
func (r *Reader) Deployments(ctx context.Context) ([]appsv1.Deployment, error) {
	return allOf[appsv1.Deployment](ctx, "deployments", r.core.AppsV1().Deployments(metav1.NamespaceAll).List)
}

// StatefulSets returns all StatefulSets.
func (r *Reader) StatefulSets(ctx context.Context) ([]appsv1.StatefulSet, error) {
	return allOf[appsv1.StatefulSet](ctx, "statefulsets", r.core.AppsV1().StatefulSets(metav1.NamespaceAll).List)
}

// CronJobs returns all CronJobs.
func (r *Reader) CronJobs(ctx context.Context) ([]batchv1.CronJob, error) {
	return allOf[batchv1.CronJob](ctx, "cronjobs", r.core.BatchV1().CronJobs(metav1.NamespaceAll).List)
}

// ConfigMap returns the data of a ConfigMap, or nil if it does not exist.
func (r *Reader) ConfigMap(ctx context.Context, namespace, name string) (map[string]string, error) {
	o, err := r.core.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading configmap %s/%s: %w", namespace, name, err)
	}
	return o.Data, nil
}
