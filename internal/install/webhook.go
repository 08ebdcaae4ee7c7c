// SPDX-License-Identifier: Apache-2.0

package install

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
)

// webhookPort is the port on which nodegate's pods serve the webhook.
const webhookPort = 9443

// appLabels is the pod selector of the webhook's Service.
var appLabels = map[string]string{v1alpha1.AppLabel: v1alpha1.AppController}

// webhook returns the objects of the webhook, except its certificate, which is secret. The
// configuration is the last one.
func (o renderer) webhook() []object {
	if o.Birth != admission.ByWebhook {
		return nil
	}
	return []object{
		&corev1.Service{
			TypeMeta: typeMeta("v1", "Service"), ObjectMeta: metav1.ObjectMeta{Name: admission.WebhookService, Namespace: o.Namespace},
			Spec: corev1.ServiceSpec{
				Selector: appLabels,
				Ports:    []corev1.ServicePort{{Name: "webhook", Port: 443, TargetPort: intstr.FromInt32(webhookPort)}},
			},
		},
		admission.WebhookConfiguration(o.Namespace),
	}
}
