// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"path/filepath"
	"regexp"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/cluster"
	"github.com/nodegate/nodegate/cluster/clustertest"
	"github.com/nodegate/nodegate/internal/admission"
)

// With nothing but what the manifests give it, the process makes a certificate
// for the Service's name, publishes whom to trust, serves, and tells.
func TestWebhookServes(t *testing.T) {
	c := clustertest.Shared(t)
	api, err := client.New(c.Admin(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	applyManifests(t, api, "--birth", "webhook")
	registration := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: admission.BirthWebhook}}
	t.Cleanup(func() { // nobody can reach a Service here
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
	if err := cluster.WriteKubeconfig(path, config); err != nil {
		t.Fatal(err)
	}
	address := unused(t)
	r := startReplica(t, path, "--birth", "webhook", "--webhook-bind-address", address)
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
	served, err := read("http://" + r.metrics + "/metrics")
	if err != nil || !regexp.MustCompile(`(?m)^nodegate_webhook_certificate_expiry_timestamp_seconds [1-9]`).MatchString(served) {
		t.Errorf("the metrics do not tell when the certificate expires (%v)", err)
	}
	r.terminate()
}
