// SPDX-License-Identifier: Apache-2.0

package admission

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Names of what the webhook needs where it does the birth policy's work.
const (
	// BirthWebhook is the MutatingWebhookConfiguration.
	BirthWebhook = "nodegate-birth"
	// WebhookService is the Service, in nodegate's namespace, of all replicas.
	WebhookService = "nodegate-webhook"
	// WebhookSecret is the Secret, there too, that replicas have their certificate
	// from, as a volume.
	WebhookSecret = "nodegate-webhook"
	// WebhookPath is where the webhook is served.
	WebhookPath = "/birth"
)

// webhookTimeout is how long a registering node waits at most for a webhook that
// does not answer, in seconds.
const webhookTimeout = 5

// WebhookHost is the name by which the API server calls the webhook.
func WebhookHost(namespace string) string { return WebhookService + "." + namespace + ".svc" }

// WebhookConfiguration returns the registration of the webhook. It has no
// caBundle: whoever makes the certificate fills it in.
//
// A Node that is created while no replica answers comes in unchanged, after five
// seconds at most, and the controller closes it when it sees it. With Fail, a
// cluster without nodes could never get any: nodegate needs one to run on.
func WebhookConfiguration(namespace string) *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: BirthWebhook, Labels: map[string]string{"app.kubernetes.io/managed-by": "nodegate"}},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "birth.nodegate.dev",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
				Namespace: namespace, Name: WebhookService, Path: ptr.To(WebhookPath), Port: ptr.To[int32](443),
			}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{corev1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"nodes"},
					Scope: ptr.To(admissionregistrationv1.ClusterScope),
				},
			}},
			FailurePolicy:           ptr.To(admissionregistrationv1.Ignore),
			MatchPolicy:             ptr.To(admissionregistrationv1.Equivalent),
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone), // probes are dry runs
			ReinvocationPolicy:      ptr.To(admissionregistrationv1.NeverReinvocationPolicy),
			TimeoutSeconds:          ptr.To[int32](webhookTimeout),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}
