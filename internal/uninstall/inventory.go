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

// object identifies an object.
type object struct {
	schema.GroupVersionKind
	namespace, name string
}

// resource returns the resource of the object's kind.
func (o *object) resource() schema.GroupVersionResource {
	resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind) // correct for all kinds here, which a test verifies with an API server
	return resource
}

// String returns the object's name in kubectl's form.
func (o *object) String() string {
	kind := strings.ToLower(o.Kind)
	if o.Group != "" {
		kind += "." + o.Group
	}
	return kind + "/" + o.name
}

// Objects that must be deleted in a particular order.
var (
	birthBindings = []object{
		named("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding", admission.BirthPolicy),
		named("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", admission.BirthWebhook),
	}
	parametersGuard = []object{
		named("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", admission.ParametersPolicy),
		named("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", admission.ParametersPolicy),
	}
	// anchor is what keeps API servers watching parameters: see birth.yaml.
	anchor     = named("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding", admission.BirthAnchor)
	definition = named("apiextensions.k8s.io/v1", "CustomResourceDefinition", v1alpha1.Resource.GroupResource().String())
)

func named(apiVersion, kind, name string) object {
	return object{GroupVersionKind: schema.FromAPIVersionAndKind(apiVersion, kind), name: name}
}

// chartObjects are the objects in nodegate's namespace that the Helm chart contains in
// addition to those of 'nodegate manifests', and those that replicas,
// 'nodegate webhook-certificate' and cert-manager create there. Few clusters serve all of
// these kinds.
var chartObjects = []object{
	named("policy/v1", "PodDisruptionBudget", "nodegate"),
	named("v1", "Service", "nodegate-metrics"),
	named("v1", "ConfigMap", "nodegate-gates"),
	named("v1", "ConfigMap", "nodegate-dashboard"),
	named("v1", "ResourceQuota", "nodegate-critical-pods"),
	named("networking.k8s.io/v1", "NetworkPolicy", "nodegate"),
	named("cert-manager.io/v1", "Certificate", admission.WebhookSecret),
	named("cert-manager.io/v1", "Certificate", admission.WebhookSecret+"-ca"),
	named("cert-manager.io/v1", "Issuer", admission.WebhookSecret+"-ca"),
	named("cert-manager.io/v1", "Issuer", admission.WebhookSecret+"-self-signed"),
	named("v1", "Secret", admission.WebhookSecret),
	named("v1", "Secret", admission.WebhookSecret+"-ca"),
	named("monitoring.coreos.com/v1", "ServiceMonitor", "nodegate"),
	named("monitoring.coreos.com/v1", "PrometheusRule", "nodegate"),
	named("coordination.k8s.io/v1", "Lease", v1alpha1.LeaseName),
}

// remaining returns all objects of any installation that remain after gates, taints,
// parameters and the controller have been removed, except the namespace. Objects that
// grant permissions come first, then the others in reverse order of installation.
func remaining(namespace, serviceAccount string) ([]object, error) {
	options := install.Options{
		Namespace: namespace, ServiceAccount: serviceAccount, EvictPods: true, NodeConditions: true, GuardDaemonPods: true,
		Observe: []schema.GroupResource{{Resource: "any"}}, // the objects have the same names for all resources
	}
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
	for _, o := range chartObjects {
		o.namespace = namespace
		all = append(all, o)
	}
	all = append(all, named("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "nodegate-metrics-readers")) // the chart's
	slices.SortStableFunc(all, func(a, b object) int { return rank(&a) - rank(&b) })
	return all, nil
}

// rank returns 0 for objects that grant permissions.
func rank(o *object) int {
	if o.Kind == "ClusterRoleBinding" || o.Kind == "RoleBinding" {
		return 0
	}
	return 1
}
