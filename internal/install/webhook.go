// SPDX-License-Identifier: Apache-2.0

package install

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/internal/admission"
)

const (
	webhookRoleName = "nodegate-webhook"
	// webhookPort is where nodegate's pods serve the webhook.
	webhookPort = 9443
)

// appLabels are those that the webhook's Service finds nodegate's pods by.
var appLabels = map[string]string{"app.kubernetes.io/name": "nodegate"}

// WebhookClusterRules are what the controller may do besides ClusterRules where
// it serves the webhook: fill in whom the API server is to trust.
func WebhookClusterRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations"},
		ResourceNames: []string{admission.BirthWebhook}, Verbs: []string{"get", "patch"},
	}}
}

// WebhookNamespaceRules are what it may do there in its own namespace. Creating
// cannot be limited to one name, so that the Secret comes with the manifests.
func WebhookNamespaceRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"secrets"},
		ResourceNames: []string{admission.WebhookSecret}, Verbs: []string{"get", "update"},
	}}
}

// webhook is what the webhook needs. The configuration comes last.
func (o renderer) webhook() []object {
	if o.Birth != admission.ByWebhook {
		return nil
	}
	own := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: o.Namespace} }
	objects := append(o.clusterRole(webhookRoleName, WebhookClusterRules()), o.role(own(webhookRoleName), WebhookNamespaceRules())...)
	return append(objects,
		// Of an object of which nobody says anything but its name, the API server does
		// not keep who writes what: its next application would change it.
		&corev1.Secret{TypeMeta: typeMeta("v1", "Secret"), ObjectMeta: own(admission.WebhookSecret), Type: corev1.SecretTypeOpaque},
		&corev1.Service{
			TypeMeta: typeMeta("v1", "Service"), ObjectMeta: own(admission.WebhookService),
			Spec: corev1.ServiceSpec{
				Selector: appLabels,
				Ports:    []corev1.ServicePort{{Name: "webhook", Port: 443, TargetPort: intstr.FromInt32(webhookPort)}},
			},
		},
		admission.WebhookConfiguration(o.Namespace))
}
