// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"io"
	"os/exec"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/certificate"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// Helm deletes the certificate that it generated if the values name another source. The steps in
// docs/before-1.36.md keep it, and Helm does not take it over again.
func TestSwitchFromGeneratedCertificate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "1.35")
	trusted := func() string {
		c := w.get(admission.BirthWebhook, &admissionregistrationv1.MutatingWebhookConfiguration{}).(*admissionregistrationv1.MutatingWebhookConfiguration)
		return string(c.Webhooks[0].ClientConfig.CABundle)
	}
	secret, name := &corev1.Secret{}, namespace+"/"+admission.WebhookSecret
	certify := func(renew bool) {
		t.Helper()
		must(t, certificate.Ensure(t.Context(), certificate.Options{Client: w.admin, Namespace: namespace, Renew: renew, Settle: time.Millisecond, Out: io.Discard, Progress: io.Discard}))
	}
	change := func(source string) error {
		return w.helm(object{"webhook": object{"certificate": source}}, "upgrade", "nodegate", chart)
	}
	must(t, w.helm(nil, "install", "nodegate", chart, "--create-namespace"))
	must(t, change("existing"))
	if err := w.find(name, secret); !apierrors.IsNotFound(err) || trusted() != "" {
		t.Errorf("the Secret exists (%v), or an authority is trusted: %q: remove the steps from the page", err, trusted())
	}
	must(t, change("generated"))

	annotate := exec.CommandContext(t.Context(), clustertest.Kubectl(t), "--kubeconfig", w.cluster.Kubeconfig(),
		"annotate", "secret", "-n", namespace, admission.WebhookSecret, "helm.sh/resource-policy=keep")
	output, err := annotate.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl annotate: %v\n%s", err, output)
	}
	certify(true)
	want := trusted()
	for range 2 {
		must(t, change("existing"))
		if w.get(name, secret); want == "" || trusted() != want {
			t.Error("an upgrade removes the trusted authorities")
		}
	}
	certify(false)
	if trusted() != want {
		t.Error("the certificate was not valid")
	}
}
