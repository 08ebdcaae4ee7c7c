// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of the objects that the webhook needs.
const (
	// BirthWebhook is the MutatingWebhookConfiguration.
	BirthWebhook = "nodegate-birth"
	// WebhookService is the Service of all replicas, in nodegate's namespace.
	WebhookService = "nodegate-webhook"
	// WebhookSecret is the Secret with the certificate, in nodegate's namespace.
	// Replicas mount it as a volume.
	WebhookSecret = "nodegate-webhook"
	// WebhookPath is the path at which the webhook is served.
	WebhookPath = "/birth"
)

// WebhookTimeout is the maximum time for which the creation of a Node waits for a webhook
// that does not answer.
const WebhookTimeout = 5 * time.Second

// WebhookHost returns the host name at which the API server calls the webhook.
func WebhookHost(namespace string) string { return WebhookService + "." + namespace + ".svc" }

// WebhookConfiguration returns the registration of the webhook. It has no caBundle,
// which is set when the certificate is created.
//
// If the replica that is called does not answer, a Node is created unchanged after at most
// five seconds, and the controller closes its gates when it observes the Node. If the failure policy
// were Fail, a cluster without nodes could never get any: nodegate needs one to run on.
func WebhookConfiguration(namespace string) *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: BirthWebhook, Labels: map[string]string{"app.kubernetes.io/managed-by": "nodegate"}},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "birth.nodegate.dev",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
				Namespace: namespace, Name: WebhookService, Path: new(WebhookPath), Port: new(int32(443)),
			}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{corev1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"nodes"},
					Scope: new(admissionregistrationv1.ClusterScope),
				},
			}},
			FailurePolicy:           new(admissionregistrationv1.Ignore),
			MatchPolicy:             new(admissionregistrationv1.Equivalent),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone), // probes are dry runs
			ReinvocationPolicy:      new(admissionregistrationv1.NeverReinvocationPolicy),
			TimeoutSeconds:          new(int32(WebhookTimeout / time.Second)),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}
