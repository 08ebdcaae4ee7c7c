// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/internal/admission"
)

const (
	namespace = "nodegate-system"
	host      = "nodegate-webhook.nodegate-system.svc"
	day       = 24 * time.Hour
	// settle is the maximum delay with which an API server receives authorities, and
	// remount that with which a replica receives a changed Secret.
	settle  = 30 * time.Second
	remount = 2 * time.Minute
)

// server is an API server that records the history of its state.
type server struct {
	*testing.T
	api client.Client
	// beforeWrite, if not nil, can reject a write.
	beforeWrite func() error
	output      bytes.Buffer
	progress    bytes.Buffer
	writing     sync.Mutex
	states      []state
}

// state is the state from a time on.
type state struct {
	from    time.Time
	bundle  []byte
	serving *x509.Certificate
	// intermediates are sent with the serving certificate.
	intermediates *x509.CertPool
}

func newServer(t *testing.T, objects ...client.Object) *server {
	w := &server{T: t}
	w.api = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				return w.write(func() error { return c.Create(ctx, o, opts...) })
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				return w.write(func() error { return c.Update(ctx, o, opts...) })
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				return w.write(func() error { return c.Patch(ctx, o, p, opts...) })
			},
		}).Build()
	return w
}

func configuration() *admissionregistrationv1.MutatingWebhookConfiguration {
	return admission.WebhookConfiguration(namespace)
}

func secret(data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: admission.WebhookSecret}, Data: data}
}

func (w *server) write(do func() error) error {
	if w.beforeWrite != nil {
		if err := w.beforeWrite(); err != nil {
			return err
		}
	}
	w.writing.Lock()
	defer w.writing.Unlock()
	if err := do(); err != nil {
		return err
	}
	s := w.state()
	if n := len(w.states); n > 0 && s.serving == nil { // replicas keep the last certificate
		s.serving, s.intermediates = w.states[n-1].serving, w.states[n-1].intermediates
	}
	w.states = append(w.states, s)
	return nil
}

func (w *server) state() state {
	c, s := configuration(), secret(nil)
	if err := errors.Join(w.api.Get(context.Background(), client.ObjectKeyFromObject(c), c), client.IgnoreNotFound(w.api.Get(context.Background(), client.ObjectKeyFromObject(s), s))); err != nil {
		w.Error(err)
	}
	h := parse(s.Data)
	return state{from: time.Now(), bundle: c.Webhooks[0].ClientConfig.CABundle, serving: h.serving, intermediates: pool(h.intermediates)}
}

func (w *server) ensure(renew bool) error {
	return Ensure(w.Context(), Options{Client: w.api, Namespace: namespace, Renew: renew, Settle: settle, Out: &w.output, Progress: &w.progress})
}

// lately returns the states that a client with a delay of up to late may observe at a time.
func (w *server) lately(at time.Time, late time.Duration) (seen []state) {
	for i := range w.states {
		ended := i+1 < len(w.states) && !w.states[i+1].from.After(at.Add(-late))
		if !ended && !w.states[i].from.After(at) {
			seen = append(seen, w.states[i])
		}
	}
	return seen
}

// check checks that no replica ever serves a certificate that an API server rejects,
// whatever their delays are.
func (w *server) check() {
	w.Helper()
	checks := 0
	for _, s := range w.states {
		for _, at := range []time.Time{s.from, s.from.Add(settle - time.Millisecond), s.from.Add(remount)} {
			for _, replica := range w.lately(at, remount) {
				for _, caller := range w.lately(at, settle-time.Millisecond) {
					if replica.serving == nil || len(caller.bundle) == 0 {
						continue // the webhook was not in use yet
					}
					checks++
					roots := x509.NewCertPool()
					roots.AppendCertsFromPEM(caller.bundle)
					if _, err := replica.serving.Verify(x509.VerifyOptions{Roots: roots, Intermediates: replica.intermediates, DNSName: host, CurrentTime: at}); err != nil {
						w.Errorf("at %s, an API server rejects a replica: %v", at, err)
					}
				}
			}
		}
	}
	if checks == 0 {
		w.Error("nothing was checked")
	}
}

// pass lets time pass in the bubble.
func pass(d time.Duration) { <-time.After(d) }

func TestFirstCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, began := newServer(t, configuration()), time.Now()
		if err := w.ensure(false); err != nil {
			t.Fatal(err)
		}
		w.check()
		if waited := time.Since(began); waited > 0 {
			t.Errorf("waited for %s, although no replica serves yet", waited)
		}
		if s := w.state(); s.serving == nil || s.serving.NotAfter.Before(began.Add(9*365*day)) {
			t.Errorf("the certificate is %v", s.serving)
		}
		writes := len(w.states)
		w.output.Reset()
		pass(365 * day)
		if err := w.ensure(false); err != nil {
			t.Fatal(err)
		}
		if len(w.states) != writes || strings.Count(w.output.String(), "unchanged") != 2 {
			t.Errorf("a second run wrote:\n%s", &w.output)
		}
	})
}

// A renewal causes no interruption, even if it is killed at any write, and whether or not
// that write succeeded.
func TestRenewLeavesNoGap(t *testing.T) {
	for at := range 3 {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, lost %t", at, lost), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newServer(t, configuration())
					for range 4 {
						left := at
						w.beforeWrite = func() error {
							if left--; left == -1 && lost {
								return errors.New("killed")
							}
							if left == -2 && !lost {
								return errors.New("killed")
							}
							return nil
						}
						_ = w.ensure(true)
						w.beforeWrite = nil
						if err := w.ensure(false); err != nil {
							t.Fatal(err)
						}
						pass(remount)
						if err := w.ensure(true); err != nil {
							t.Fatal(err)
						}
						pass(remount)
					}
					w.check()
					if n := bytes.Count(w.state().bundle, []byte("BEGIN")); n != 2 {
						t.Errorf("%d authorities are trusted, want the current and the previous one", n)
					}
				})
			})
		}
	}
}

// Replicas keep the last certificate that they could read, so its authority remains trusted
// while an invalid or deleted Secret is replaced.
func TestInvalidSecretLeavesNoGap(t *testing.T) {
	for name, damage := range map[string]func(*server) error{
		"deleted": func(w *server) error { return w.api.Delete(w.Context(), secret(nil)) },
		"garbage": func(w *server) error {
			damaged := secret(map[string][]byte{keyCertificate: []byte("garbage")})
			return errors.Join(w.api.Delete(w.Context(), secret(nil)), w.api.Create(w.Context(), damaged))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newServer(t, configuration())
				if err := w.ensure(false); err != nil {
					t.Fatal(err)
				}
				pass(remount)
				if err := damage(w); err != nil {
					t.Fatal(err)
				}
				if err := w.ensure(false); err != nil {
					t.Fatal(err)
				}
				pass(remount)
				w.check()
			})
		})
	}
}

// A second renewal causes no interruption even if replicas still serve the certificate from
// before the first one.
func TestRenewTwiceLeavesNoGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newServer(t, configuration())
		for _, wait := range []time.Duration{remount, 0, remount, remount} {
			if err := w.ensure(len(w.states) > 0); err != nil {
				t.Fatal(err)
			}
			pass(wait)
		}
		w.check()
		if n := bytes.Count(w.state().bundle, []byte("BEGIN")); n != 2 {
			t.Errorf("%d authorities are trusted, want the current and the previous one", n)
		}
	})
}

// The authorities are published again after the registration was applied again without
// them.
func TestPublishesAgain(t *testing.T) {
	w := newServer(t, configuration())
	if err := w.ensure(false); err != nil {
		t.Fatal(err)
	}
	want := w.state()
	c := configuration()
	if err := errors.Join(w.api.Delete(t.Context(), c), w.api.Create(t.Context(), configuration())); err != nil {
		t.Fatal(err)
	}
	if err := w.ensure(false); err != nil {
		t.Fatal(err)
	}
	if got := w.state(); !bytes.Equal(got.bundle, want.bundle) || !got.serving.Equal(want.serving) {
		t.Error("the authorities were not restored")
	}
}

// Certificates that are invalid or expire soon are replaced.
func TestReplacesWhatIsUnfit(t *testing.T) {
	now := time.Now()
	good := func(hosts []string, now time.Time) map[string][]byte {
		i, err := issue(hosts, now)
		if err != nil {
			t.Fatal(err)
		}
		data, err := i.data([]*x509.Certificate{i.authority})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	other := good([]string{host}, now)
	const noKey, unknown = "there is no certificate that matches its key", "signed by unknown authority"
	for name, test := range map[string]struct {
		change func(map[string][]byte) map[string][]byte
		reason string
	}{
		"nothing":           {func(map[string][]byte) map[string][]byte { return nil }, ""},
		"no key":            {func(d map[string][]byte) map[string][]byte { delete(d, "tls.key"); return d }, noKey},
		"another's key":     {func(d map[string][]byte) map[string][]byte { d["tls.key"] = other["tls.key"]; return d }, noKey},
		"no authority":      {func(d map[string][]byte) map[string][]byte { delete(d, "ca.crt"); return d }, unknown},
		"another authority": {func(d map[string][]byte) map[string][]byte { d["ca.crt"] = other["ca.crt"]; return d }, unknown},
		"garbage":           {func(d map[string][]byte) map[string][]byte { d["tls.crt"] = []byte("garbage"); return d }, noKey},
		"another host":      {func(map[string][]byte) map[string][]byte { return good([]string{"other.svc"}, now) }, "the certificate is for another host"},
		"expires soon":      {func(map[string][]byte) map[string][]byte { return good([]string{host}, now.Add(170*day-validity)) }, "the certificate expires on "},
		"expired":           {func(map[string][]byte) map[string][]byte { return good([]string{host}, now.Add(-day-validity)) }, "certificate has expired"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pass(time.Until(now))
				w := newServer(t, configuration(), secret(test.change(good([]string{host}, now))))
				if err := w.ensure(false); err != nil {
					t.Fatal(err)
				}
				if said := w.progress.String(); strings.Contains(said, "replacing the certificate in secret/nodegate-webhook: ") != (test.reason != "") || !strings.Contains(said, test.reason) {
					t.Errorf("said %q, want the reason %q", said, test.reason)
				}
				h := parse(w.data())
				if err := h.validate([]string{host}, time.Now()); err != nil {
					t.Error(err)
				}
				if !bytes.Equal(w.state().bundle, w.data()["ca.crt"]) {
					t.Error("the API server trusts other authorities than those in the Secret")
				}
			})
		})
	}
}

func (w *server) data() map[string][]byte {
	s := secret(nil)
	if err := w.api.Get(w.Context(), client.ObjectKeyFromObject(s), s); err != nil {
		w.Error(err)
	}
	return s.Data
}

func TestRefuses(t *testing.T) {
	managed := configuration()
	managed.Annotations = map[string]string{injectedBy: namespace + "/nodegate-webhook"}
	for name, test := range map[string]struct {
		objects []client.Object
		want    string
	}{
		"no webhook":            {nil, "MutatingWebhookConfiguration nodegate-birth does not exist: apply the manifests of --birth=webhook first"},
		"another namespace":     {[]client.Object{admission.WebhookConfiguration("platform")}, "nodegate is installed in namespace platform, not in nodegate-system: use --namespace=platform"},
		"one of cert-manager's": {[]client.Object{managed}, "cert-manager manages this certificate: renew its Certificate nodegate-system/nodegate-webhook instead (cmctl renew)"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newServer(t, test.objects...)
			if err := w.ensure(true); err == nil || err.Error() != test.want {
				t.Errorf("%v, want %s", err, test.want)
			}
			if len(w.states) > 0 {
				t.Error("something was written")
			}
		})
	}
}

// If two administrators run Ensure at once, one of them gets an error.
func TestConflict(t *testing.T) {
	w := newServer(t, configuration(), secret(nil))
	meddle := func() {
		s := secret(nil)
		if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
			t.Fatal(err)
		}
		s.Labels = map[string]string{"changed": "yes"}
		if err := w.api.Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	w.beforeWrite = func() error {
		w.beforeWrite = nil
		meddle()
		return nil
	}
	if err := w.ensure(false); err == nil || !strings.Contains(err.Error(), "updating the Secret") {
		t.Errorf("the other administrator's change was overwritten: %v", err)
	}
	if err := w.ensure(false); err != nil {
		t.Error(err)
	}
}
