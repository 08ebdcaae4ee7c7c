// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"io"
	"os/exec"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodegate/nodegate/api/v1alpha1"
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

	w.keep("secret", "-n", namespace, admission.WebhookSecret)
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

// keep makes Helm keep objects that kubectl selects by these arguments.
func (w *world) keep(args ...string) {
	w.Helper()
	args = slices.Concat([]string{"--kubeconfig", w.cluster.Kubeconfig(), "annotate"}, args, []string{"helm.sh/resource-policy=keep"})
	annotate := exec.CommandContext(w.Context(), clustertest.Kubectl(w.T), args...) //nolint:gosec // a test's arguments
	if output, err := annotate.CombinedOutput(); err != nil {
		w.Fatalf("kubectl annotate: %v\n%s", err, output)
	}
}

// Helm deletes the NodeGates if the values move the gates into files. The old replica would open them. With
// the steps in docs/install.md, they stay.
func TestSwitchToGatesFromFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "1.37")
	fromFiles := func(enabled bool) {
		t.Helper()
		must(t, w.helm(object{"gatesFromFiles": object{"enabled": enabled}}, "upgrade", "nodegate", chart, "--install", "--create-namespace"))
	}
	fromFiles(false)
	w.get(defaultGate, &v1alpha1.NodeGate{})
	fromFiles(true)
	if err := w.find(defaultGate, &v1alpha1.NodeGate{}); !apierrors.IsNotFound(err) {
		t.Errorf("the NodeGate exists (%v): remove the steps from the page", err)
	}
	fromFiles(false)
	w.keep("nodegates", "--all")
	fromFiles(true)
	w.get(defaultGate, &v1alpha1.NodeGate{})
}
