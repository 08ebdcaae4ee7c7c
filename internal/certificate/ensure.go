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

// Keys of the Secret. The last two are those of every Secret of type
// kubernetes.io/tls, and the first is cert-manager's for the same.
const (
	keyAuthorities = "ca.crt"
	keyCertificate = corev1.TLSCertKey
	keyPrivate     = corev1.TLSPrivateKeyKey
)

const (
	// renewBefore is how long before its end a certificate is renewed.
	renewBefore = 180 * 24 * time.Hour
	// defaultSettle is how long it may take until every API server has heard of a
	// change of a webhook configuration. All of them watch; it takes milliseconds.
	defaultSettle = 30 * time.Second
	// injectedBy is the annotation by which cert-manager fills in whom to trust.
	injectedBy = "cert-manager.io/inject-ca-from"
)

var errNone = errors.New("there is no certificate")

// Options say what Ensure works on.
type Options struct {
	// Client reads from the API server and has an administrator's rights on the
	// Secret and the MutatingWebhookConfiguration. Required.
	Client client.Client
	// Namespace is nodegate's. Required.
	Namespace string
	// Hosts are the names and addresses by which the API server calls the webhook.
	// Default: the name of its Service.
	Hosts []string
	// Renew replaces a certificate that is still good.
	Renew bool
	// Settle is how long API servers may take to trust a new authority before anybody
	// serves with a certificate of its. Default: 30 s.
	Settle time.Duration
	// Clock tells the time. Default: the real one.
	Clock clock.Clock
	// Out is told what was done, a line for each object; Progress, what it waits for.
	// Both are required.
	Out, Progress io.Writer
}

// Ensure sees to it that the Secret holds a serving certificate for the webhook, and
// that the API server trusts it. It changes nothing where that is so.
//
// A certificate is replaced without a gap: the API server is told to trust the new
// authority beside the old one; then the Secret changes; and the old authority stays
// trusted until the next renewal, because kubelets take a minute or two to give a
// changed Secret to the pods. It may be interrupted at any point and run again.
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
	var configuration admissionregistrationv1.MutatingWebhookConfiguration
	if err := o.Client.Get(ctx, client.ObjectKey{Name: admission.BirthWebhook}, &configuration); apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no MutatingWebhookConfiguration %s: apply the manifests of --birth=webhook first", admission.BirthWebhook)
	} else if err != nil {
		return fmt.Errorf("reading the MutatingWebhookConfiguration: %w", err)
	}
	if from, is := configuration.Annotations[injectedBy]; is {
		return fmt.Errorf("cert-manager looks after this certificate: renew its Certificate %s instead (cmctl renew)", from)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: admission.WebhookSecret}}
	if err := o.Client.Get(ctx, client.ObjectKeyFromObject(secret), secret); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the Secret: %w", err)
	}
	have := parse(secret.Data)
	if why := have.fit(o.Hosts, o.Clock.Now()); why == nil && !o.Renew {
		fmt.Fprintf(o.Out, "secret/%s unchanged: good until %s\n", secret.Name, have.serving.NotAfter.Format(time.DateOnly))
		return o.publish(ctx, &configuration, secret.Data[keyAuthorities])
	}
	return o.replace(ctx, &configuration, secret, &have)
}

// replace makes a new certificate and puts it in the place of the one that there is.
func (o *Options) replace(ctx context.Context, configuration *admissionregistrationv1.MutatingWebhookConfiguration, secret *corev1.Secret, have *held) error {
	next, err := issue(o.Hosts, o.Clock.Now())
	if err != nil {
		return err
	}
	signers := have.signers(o.Clock.Now())
	data, err := next.data(append([]*x509.Certificate{next.authority}, signers...))
	if err != nil {
		return err
	}
	until := next.certificate.NotAfter
	if len(signers) == 0 { // nobody serves with what the API server would accept
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

// publish tells the API server whom to trust, unless it has been told.
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
	// Only this field, and only if nobody has changed anything meanwhile.
	patch := client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})
	if err := o.Client.Patch(ctx, configuration, patch); err != nil {
		return fmt.Errorf("patching the MutatingWebhookConfiguration: %w", err)
	}
	fmt.Fprintf(o.Out, "mutatingwebhookconfiguration.admissionregistration.k8s.io/%s configured\n", configuration.Name)
	return nil
}

// store puts the certificate into the Secret, which it creates if need be.
func (o *Options) store(ctx context.Context, secret *corev1.Secret, data map[string][]byte, until time.Time) error {
	secret.Data = data
	what := "configured"
	if secret.ResourceVersion == "" {
		what, secret.Type = "created", corev1.SecretTypeTLS
		secret.Labels = map[string]string{"app.kubernetes.io/managed-by": "nodegate"}
		if err := o.Client.Create(ctx, secret); err != nil {
			return fmt.Errorf("creating the Secret: %w", err)
		}
	} else if err := o.Client.Update(ctx, secret); err != nil {
		return fmt.Errorf("updating the Secret: %w", err)
	}
	fmt.Fprintf(o.Out, "secret/%s %s: good until %s\n", secret.Name, what, until.Format(time.DateOnly))
	return nil
}
