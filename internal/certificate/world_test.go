// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const (
	day  = 24 * time.Hour
	year = 365 * day
	// host is what the API server calls the webhook.
	host = "nodegate-webhook.nodegate-system.svc"
)

// Time passes in days where there would be seconds, or years would take hours.
const (
	testPeriod = day
	testSettle = 2 * day
)

var (
	secretKey  = client.ObjectKey{Namespace: "nodegate-system", Name: "nodegate-webhook"}
	configName = "nodegate-birth"
)

// world is an API server, replicas, and API servers that hear of changes late.
type world struct {
	*testing.T
	api client.Client
	// beforeWrite may refuse a write; nil lets all pass.
	beforeWrite func() error

	mu       sync.Mutex
	bundles  []bundleAt // what was published, and when
	replicas []*Holder
	checks   int
	meddling bool            // what others do is not what we are to be judged by
	authors  map[string]bool // authorities that were published
	servings map[string]bool // certificates that were taken up
}

type bundleAt struct {
	at    time.Time
	roots *x509.CertPool
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, authors: map[string]bool{}, servings: map[string]bool{}}
	w.api = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secretKey.Namespace, Name: secretKey.Name}},
		&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: configName},
			Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "birth.nodegate.dev"}},
		},
	).WithInterceptorFuncs(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return w.write(func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return w.write(func() error { return c.Patch(ctx, o, p, opts...) })
		},
	}).Build()
	return w
}

func (w *world) write(do func() error) error {
	if w.beforeWrite != nil {
		if err := w.beforeWrite(); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	w.noteBundle()
	return nil
}

// noteBundle takes note of what is published now.
func (w *world) noteBundle() {
	m := parse(map[string][]byte{keyAuthorities: w.configuration().Webhooks[0].ClientConfig.CABundle})
	w.mu.Lock()
	defer w.mu.Unlock()
	roots := x509.NewCertPool()
	for _, c := range m.authorities {
		roots.AddCert(c)
		w.authors[string(c.Raw)] = true
	}
	w.bundles = append(w.bundles, bundleAt{time.Now(), roots})
	w.check()
}

func (w *world) configuration() *admissionregistrationv1.MutatingWebhookConfiguration {
	var c admissionregistrationv1.MutatingWebhookConfiguration
	if err := w.api.Get(context.Background(), client.ObjectKey{Name: configName}, &c); err != nil {
		w.Error(err)
	}
	return &c
}

func (w *world) options() Options {
	return Options{Client: w.api, Secret: secretKey, Configuration: configName, Hosts: []string{host}, Period: testPeriod, Settle: testSettle, Log: logr.Discard()}
}

// replica adds one that serves until the context ends.
func (w *world) replica(ctx context.Context, running *sync.WaitGroup) {
	var h *Holder
	h = NewHolder(w.options(), func(time.Time) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.servings[string(h.current.Load().Leaf.Raw)] = true
		w.check()
	})
	w.mu.Lock()
	w.replicas = append(w.replicas, h)
	w.mu.Unlock()
	running.Go(func() {
		_ = h.Follow(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range w.replicas {
			if w.replicas[i] == h {
				w.replicas = append(w.replicas[:i], w.replicas[i+1:]...)
				return
			}
		}
	})
}

// check: whatever a replica serves with is accepted by every API server, also by
// those that hear of things nearly as late as they may, and whose clocks differ.
// The caller holds the lock.
func (w *world) check() {
	if w.meddling {
		return
	}
	now := time.Now()
	for _, h := range w.replicas {
		c := h.current.Load()
		if c == nil {
			continue
		}
		for _, lag := range []time.Duration{0, testSettle - time.Second} {
			seen := w.seen(now.Add(-lag))
			if seen == nil {
				continue // there was no webhook yet
			}
			for _, skew := range []time.Duration{-backdate + time.Minute, backdate} {
				w.checks++
				if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: seen, DNSName: host, CurrentTime: now.Add(skew)}); err != nil {
					w.Errorf("%s: an API server that is %s behind, with a clock off by %s, refuses the webhook: %v", now, lag, skew, err)
				}
			}
		}
	}
}

// seen is what was published at a time.
func (w *world) seen(at time.Time) *x509.CertPool {
	var roots *x509.CertPool
	for _, b := range w.bundles {
		if !b.at.After(at) {
			roots = b.roots
		}
	}
	return roots
}

// watch checks every week for as long as the context lasts.
func (w *world) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(7 * day):
			w.mu.Lock()
			w.check()
			w.mu.Unlock()
		}
	}
}

// seeded returns randomness that a failure names.
func seeded(t *testing.T, seed uint64) *rand.Rand {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, seed))
}

var errKilled = fmt.Errorf("killed")
