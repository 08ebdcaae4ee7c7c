// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/install"
)

// object names an object.
type object struct {
	schema.GroupVersionKind
	namespace, name string
}

// resource is what the API server calls the object's kind.
func (o *object) resource() schema.GroupVersionResource {
	resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind) // right for all kinds here: a test asks an API server
	return resource
}

// String is how kubectl names it.
func (o *object) String() string {
	kind := strings.ToLower(o.Kind)
	if o.Group != "" {
		kind += "." + o.Group
	}
	return kind + "/" + o.name
}

// Objects of which the order matters.
var (
	birthBindings = []object{
		named("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding", admission.BirthPolicy),
		named("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", admission.BirthWebhook),
	}
	parametersGuard = []object{
		named("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", admission.ParametersPolicy),
		named("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", admission.ParametersPolicy),
	}
	definition = named("apiextensions.k8s.io/v1", "CustomResourceDefinition", v1alpha1.Resource.GroupResource().String())
)

func named(apiVersion, kind, name string) object {
	return object{GroupVersionKind: schema.FromAPIVersionAndKind(apiVersion, kind), name: name}
}

// charted are the objects, in nodegate's namespace, that the Helm chart has beyond
// those of 'nodegate manifests', and what replicas make there. ServiceMonitor and
// PrometheusRule are kinds that few clusters know.
var charted = []object{
	named("policy/v1", "PodDisruptionBudget", "nodegate"),
	named("v1", "Service", "nodegate-metrics"),
	named("v1", "ConfigMap", "nodegate-gates"),
	named("v1", "ConfigMap", "nodegate-dashboard"),
	named("v1", "ResourceQuota", "nodegate-critical-pods"),
	named("monitoring.coreos.com/v1", "ServiceMonitor", "nodegate"),
	named("monitoring.coreos.com/v1", "PrometheusRule", "nodegate"),
	named("coordination.k8s.io/v1", "Lease", v1alpha1.LeaseName),
}

// remaining are all objects of any installation that are left when gates, taints,
// parameters and the controller are gone, but for the namespace itself: first what
// gives rights, then the others in the reverse order of their installation.
func remaining(namespace, serviceAccount string) ([]object, error) {
	options := install.Options{Namespace: namespace, ServiceAccount: serviceAccount, EvictPods: true}
	var all []object
	for _, birth := range []admission.Birth{admission.ByPolicy, admission.ByWebhook} {
		options.Birth = birth
		objects, err := install.Objects(options)
		if err != nil {
			return nil, fmt.Errorf("listing what was installed: %w", err)
		}
		for _, o := range objects {
			named := object{o.GetObjectKind().GroupVersionKind(), o.GetNamespace(), o.GetName()}
			if named.Kind != "Namespace" && !slices.Contains(all, named) {
				all = append(all, named)
			}
		}
	}
	slices.Reverse(all)
	for _, o := range charted {
		o.namespace = namespace
		all = append(all, o)
	}
	slices.SortStableFunc(all, func(a, b object) int { return rank(&a) - rank(&b) })
	return all, nil
}

// rank is 0 for what gives rights.
func rank(o *object) int {
	if o.Kind == "ClusterRoleBinding" || o.Kind == "RoleBinding" {
		return 0
	}
	return 1
}
