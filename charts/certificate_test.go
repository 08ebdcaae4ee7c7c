// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/nodegate/nodegate/internal/admission"
)

// For each way to create the webhook's certificate, replicas mount it, and the API server
// gets the CA bundle from the same source. Without a webhook, none of this is rendered.
func TestWebhookCertificate(t *testing.T) {
	for name, test := range map[string]struct {
		values            object
		version           string
		want              []string // objects that only create certificates
		bundle, injection bool
	}{
		"by policy":    {object{"certificate": "certManager"}, "1.36", nil, false, false},
		"generated":    {object{}, "1.35", []string{"Secret nodegate-system/nodegate-webhook"}, true, false},
		"existing":     {object{"certificate": "existing"}, "1.35", nil, false, false},
		"by an issuer": {object{"certificate": "certManager", "issuerRef": object{"kind": "ClusterIssuer", "name": "internal"}}, "1.35", []string{"Certificate nodegate-system/nodegate-webhook"}, false, true},
		"by cert-manager": {object{"certificate": "certManager"}, "1.35", []string{
			"Certificate nodegate-system/nodegate-webhook", "Certificate nodegate-system/nodegate-webhook-ca",
			"Issuer nodegate-system/nodegate-webhook-ca", "Issuer nodegate-system/nodegate-webhook-self-signed",
		}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			objects := rendered(t, object{"webhook": test.values}, "--kube-version", test.version)
			var got []string
			for _, o := range objects {
				if kind := o.GetKind(); kind == "Secret" || strings.HasPrefix(o.GetAPIVersion(), "cert-manager.io/") {
					got = append(got, key(o))
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
			pod := deployment(t, objects).Spec.Template.Spec
			if test.version == "1.36" {
				if len(pod.Volumes) > 0 {
					t.Errorf("volumes %v", pod.Volumes)
				}
				return
			}
			if v, m := pod.Volumes[0], pod.Containers[0].VolumeMounts[0]; v.Secret.SecretName != admission.WebhookSecret || !*v.Secret.Optional || m.Name != v.Name || m.MountPath != "/etc/nodegate/webhook" || !m.ReadOnly {
				t.Errorf("volume %v, mounted as %v", v, m)
			}
			c := decoded[admissionregistrationv1.MutatingWebhookConfiguration](t, objects, "MutatingWebhookConfiguration "+admission.BirthWebhook)
			if got := len(c.Webhooks[0].ClientConfig.CABundle) > 0; got != test.bundle {
				t.Errorf("caBundle %q", c.Webhooks[0].ClientConfig.CABundle)
			}
			if from := c.Annotations["cert-manager.io/inject-ca-from"]; (from == "nodegate-system/nodegate-webhook") != test.injection {
				t.Errorf("cert-manager injects the CA of %q", from)
			}
		})
	}
}

// If the values contain the CA of client certificates, replicas only respond to API
// servers with a client certificate.
func TestWebhookClients(t *testing.T) {
	t.Parallel()
	const file = "--webhook-client-ca-file=/etc/nodegate/webhook-clients/ca.crt"
	for name, test := range map[string]struct {
		values  object
		version string
		args    []string // about client certificates
		from    string   // what is mounted
	}{
		"all clients":            {object{}, "1.35", nil, ""},
		"by a ConfigMap":         {object{"configMap": "clients"}, "1.35", []string{file}, "ConfigMap clients ca.crt"},
		"by a Secret, and names": {object{"secret": "clients", "key": "tls.crt", "names": []string{"a", "b c"}}, "1.35", []string{file, "--webhook-client-names=a,b c"}, "Secret clients tls.crt"},
		"no webhook":             {object{"configMap": "clients", "names": []string{"a"}}, "1.36", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects := rendered(t, object{"webhook": object{"certificate": "existing", "clientCA": test.values}}, "--kube-version", test.version)
			d := deployment(t, objects)
			pod, args := d.Spec.Template.Spec, argsOf(d, "--webhook-client-")
			from := ""
			for i, m := range pod.Containers[0].VolumeMounts {
				if m.MountPath != "/etc/nodegate/webhook-clients" || !m.ReadOnly || m.Name != pod.Volumes[i].Name {
					continue
				}
				if v := pod.Volumes[i].ConfigMap; v != nil && v.Items[0].Path == "ca.crt" {
					from = "ConfigMap " + v.Name + " " + v.Items[0].Key
				}
				if v := pod.Volumes[i].Secret; v != nil && v.Items[0].Path == "ca.crt" {
					from = "Secret " + v.SecretName + " " + v.Items[0].Key
				}
			}
			if !slices.Equal(args, test.args) || from != test.from {
				t.Errorf("arguments %q and volume %q, want %q and %q", args, from, test.args, test.from)
			}
		})
	}
}
