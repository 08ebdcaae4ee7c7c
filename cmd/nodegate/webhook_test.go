// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// With the manifests and a certificate, the process serves the Service's name, the API server
// trusts it, and the metrics report the certificate. A replica that starts earlier waits for
// the certificate.
func TestWebhookServes(t *testing.T) {
	c := clustertest.Shared(t)
	api, err := client.New(c.Admin(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	applyManifests(t, api, "--birth", "webhook")
	registration := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: admission.BirthWebhook}}
	t.Cleanup(func() { // Services are not reachable here
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: admission.WebhookSecret}}
		if err := errors.Join(api.Delete(context.Background(), registration), api.Delete(context.Background(), secret)); err != nil {
			t.Error(err)
		}
	})
	config, err := c.ServiceAccount(t.Context(), defaultNamespace, defaultServiceAccount)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := testcluster.WriteKubeconfig(path, config); err != nil {
		t.Fatal(err)
	}
	address := unused(t)
	mounted := t.TempDir()
	r := startReplica(t, path, "--birth", "webhook", "--webhook-bind-address", address, "--webhook-certificate-dir", mounted)
	secret := certify(t, api, c.Kubeconfig())
	eventually(t, "the replica is alive", func() error { return r.healthy("/healthz") })
	for range 10 {
		if err := r.healthy("/readyz"); err == nil {
			t.Error("the replica is ready before it has a certificate")
		}
	}
	for name, content := range secret.Data {
		if err := os.WriteFile(filepath.Join(mounted, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the replica is ready", func() error { return r.healthy("/readyz") })
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(registration), registration); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(registration.Webhooks[0].ClientConfig.CABundle)
	connection, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots, ServerName: admission.WebhookHost(defaultNamespace)})
	if err != nil {
		t.Fatalf("the API server would not trust the webhook: %v", err)
	}
	connection.Close()
	served, err := r.served("/metrics")
	if err != nil || !regexp.MustCompile(`(?m)^nodegate_webhook_certificate_expiry_timestamp_seconds [1-9]`).MatchString(served) {
		t.Errorf("the metrics do not contain the expiry of the certificate (%v)", err)
	}
	if !regexp.MustCompile(`(?m)^nodegate_webhook_certificate_not_before_timestamp_seconds [1-9]`).MatchString(served) {
		t.Error("the metrics do not contain the time from which the certificate is valid")
	}
	r.terminate()
	for text, want := range map[string]int{`"check":"webhook","cause":"the webhook has no certificate yet`: 1, "healthz check failed": 0} {
		if got := strings.Count(r.log.String(), text); got != want {
			t.Errorf("%d lines in the log contain %q, want %d", got, text, want)
		}
	}
}

// certify runs 'nodegate webhook-certificate' twice, and returns the created certificate.
func certify(t *testing.T, api client.Client, kubeconfig string) *corev1.Secret {
	t.Helper()
	for _, want := range []string{"secret/nodegate-webhook created: valid until ", "secret/nodegate-webhook unchanged: valid until "} {
		var out bytes.Buffer
		command := newRoot()
		command.SetOut(&out)
		command.SetArgs([]string{"webhook-certificate", "--kubeconfig", kubeconfig})
		if err := command.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(out.String(), want) {
			t.Errorf("output %q, want %q", &out, want)
		}
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: admission.WebhookSecret}}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	return secret
}
