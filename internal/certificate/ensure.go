// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/admission"
)

// Keys of the Secret. Every Secret of type kubernetes.io/tls has the last two.
// cert-manager also uses the first one for authorities.
const (
	keyAuthorities = "ca.crt"
	keyCertificate = corev1.TLSCertKey
	keyPrivate     = corev1.TLSPrivateKeyKey
)

const (
	// renewBefore is the time before its expiry at which a certificate is renewed.
	renewBefore = 180 * 24 * time.Hour
	// defaultSettle is the default of Options.Settle. All API servers watch webhook
	// configurations, so a change usually takes effect within milliseconds.
	defaultSettle = 30 * time.Second
	// mountDelay is the time within which replicas serve the certificate in a changed Secret.
	mountDelay = 2 * time.Minute
	// injectedBy is the annotation with which cert-manager injects its authority.
	injectedBy = "cert-manager.io/inject-ca-from"
)

var errNone = errors.New("there is no certificate that matches its key")

// Options are the options of Ensure.
type Options struct {
	// Client reads from the API server, without a cache, and may write the Secret and the
	// MutatingWebhookConfiguration. Required.
	Client client.Client
	// Namespace is nodegate's namespace. Required.
	Namespace string
	// Hosts are the names and addresses at which the API server calls the webhook.
	// Defaults to the host name of its Service.
	Hosts []string
	// Renew replaces the certificate even if it is still valid.
	Renew bool
	// Settle is the time to wait for all API servers to trust a new authority before its
	// certificate is served. Defaults to 30 s.
	Settle time.Duration
	// Clock defaults to the real clock.
	Clock clock.Clock
	// Out receives one line per object with the result. Progress receives why a certificate
	// is replaced that must not be used any more, and what Ensure waits for. Both are required.
	Out, Progress io.Writer
}

// Ensure makes sure that the Secret contains a serving certificate for the webhook, and
// that the API server trusts it. If both are the case, it changes nothing, also if a user
// has created them and the Secret has no authorities.
//
// A certificate is replaced without interruption: first, the API server trusts the new
// authority in addition to the old one, and then the Secret is changed. The old authority
// remains trusted until the next renewal, because kubelets need a minute or two to update
// a mounted Secret. A renewal within that time keeps it, too. Ensure can be interrupted at
// any point and run again, also while another run has not ended.
func Ensure(ctx context.Context, o Options) error {
	if o.Hosts == nil {
		o.Hosts = []string{admission.WebhookHost(o.Namespace)}
	}
	if o.Settle == 0 {
		o.Settle = defaultSettle
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	configuration, err := o.configuration(ctx)
	if err != nil {
		return err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: admission.WebhookSecret}}
	if err := o.Client.Get(ctx, client.ObjectKeyFromObject(secret), secret); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the Secret: %w", err)
	}
	have, authorities := parse(secret.Data), secret.Data[keyAuthorities]
	invalid := have.validate(o.Hosts, o.Clock.Now())
	if invalid != nil || o.Renew {
		// The authority of a user's own certificate may be in the configuration only.
		authorities = trusted(configuration)
		have.trust(authorities)
		invalid = have.validate(o.Hosts, o.Clock.Now())
	}
	if invalid == nil && !o.Renew {
		fmt.Fprintf(o.Out, "secret/%s unchanged: valid until %s\n", secret.Name, have.serving.NotAfter.Format(time.DateOnly))
		return o.publish(ctx, configuration, withRecent(authorities, trusted(configuration), o.Clock.Now(), o.delay()))
	}
	if invalid != nil && len(secret.Data[keyCertificate]) > 0 { // it may be a user's own
		fmt.Fprintf(o.Progress, "replacing the certificate in secret/%s: %v\n", secret.Name, invalid)
	}
	return o.replace(ctx, configuration, secret, &have)
}

// configuration returns the webhook configuration. It is an error if another program manages its
// authorities, or if it calls a Service in another namespace, whose pods would not mount the Secret.
func (o *Options) configuration(ctx context.Context) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	var c admissionregistrationv1.MutatingWebhookConfiguration
	if err := o.Client.Get(ctx, client.ObjectKey{Name: admission.BirthWebhook}, &c); apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("MutatingWebhookConfiguration %s does not exist: apply the manifests of --birth=webhook first", admission.BirthWebhook)
	} else if err != nil {
		return nil, fmt.Errorf("reading the MutatingWebhookConfiguration: %w", err)
	}
	if from, ok := c.Annotations[injectedBy]; ok {
		return nil, fmt.Errorf("cert-manager manages this certificate: renew its Certificate %s instead (cmctl renew)", from)
	}
	for i := range c.Webhooks {
		if s := c.Webhooks[i].ClientConfig.Service; s != nil && s.Namespace != o.Namespace {
			return nil, fmt.Errorf("nodegate is installed in namespace %s, not in %s: use --namespace=%[1]s", s.Namespace, o.Namespace)
		}
	}
	return &c, nil
}

// delay returns the time after which replicas serve a certificate whose authority has been published.
func (o *Options) delay() time.Duration { return o.Settle + mountDelay }

// trusted returns the authorities that the API server trusts.
func trusted(configuration *admissionregistrationv1.MutatingWebhookConfiguration) []byte {
	if len(configuration.Webhooks) == 0 {
		return nil
	}
	return configuration.Webhooks[0].ClientConfig.CABundle // it has one webhook
}

// replace replaces the certificate, if there is one, by a new one.
func (o *Options) replace(ctx context.Context, configuration *admissionregistrationv1.MutatingWebhookConfiguration, secret *corev1.Secret, have *contents) error {
	next, err := issue(o.Hosts, o.Clock.Now())
	if err != nil {
		return err
	}
	former := have.needed(o.Clock.Now(), o.delay())
	data, err := next.data(append([]*x509.Certificate{next.authority}, former...))
	if err != nil {
		return err
	}
	until := next.certificate.NotAfter
	if len(former) == 0 { // no replica serves a certificate that the API server accepts
		if err := o.store(ctx, secret, data, until); err != nil {
			return err
		}
		return o.publish(ctx, configuration, data[keyAuthorities])
	}
	if err := o.publish(ctx, configuration, data[keyAuthorities]); err != nil {
		return err
	}
	fmt.Fprintf(o.Progress, "waiting for %s, so that every API server trusts the new certificate before it is served\n", o.Settle)
	select {
	case <-ctx.Done():
		return fmt.Errorf("waiting until every API server trusts the new certificate: %w", ctx.Err())
	case <-o.Clock.After(o.Settle):
	}
	return o.store(ctx, secret, data, until)
}

// publish sets the authorities that the API server trusts, unless they are already set.
func (o *Options) publish(ctx context.Context, configuration *admissionregistrationv1.MutatingWebhookConfiguration, bundle []byte) error {
	before, changed := configuration.DeepCopy(), false
	for i := range configuration.Webhooks {
		have := &configuration.Webhooks[i].ClientConfig.CABundle
		changed = changed || !bytes.Equal(*have, bundle)
		*have = bundle
	}
	if !changed {
		fmt.Fprintf(o.Out, "mutatingwebhookconfiguration.admissionregistration.k8s.io/%s unchanged\n", configuration.Name)
		return nil
	}
	// Patch only this field, and only if the object has not changed since it was read.
	patch := client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})
	if err := o.Client.Patch(ctx, configuration, patch); err != nil {
		return fmt.Errorf("patching the MutatingWebhookConfiguration: %w", err)
	}
	fmt.Fprintf(o.Out, "mutatingwebhookconfiguration.admissionregistration.k8s.io/%s configured\n", configuration.Name)
	return nil
}

// store writes the certificate to the Secret, which it creates if necessary.
func (o *Options) store(ctx context.Context, secret *corev1.Secret, data map[string][]byte, until time.Time) error {
	secret.Data = data
	result := "configured"
	if secret.ResourceVersion == "" {
		result, secret.Type = "created", corev1.SecretTypeTLS
		secret.Labels = map[string]string{"app.kubernetes.io/managed-by": "nodegate"}
		if err := o.Client.Create(ctx, secret); err != nil {
			return fmt.Errorf("creating the Secret: %w", err)
		}
	} else if err := o.Client.Update(ctx, secret); err != nil {
		return fmt.Errorf("updating the Secret: %w", err)
	}
	fmt.Fprintf(o.Out, "secret/%s %s: valid until %s\n", secret.Name, result, until.Format(time.DateOnly))
	return nil
}
