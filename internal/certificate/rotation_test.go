// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// live lets a life of some years pass, and checks all the while.
func live(t *testing.T, years int, leaders func(ctx context.Context, w *world)) *world {
	t.Helper()
	var w *world
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for range 2 {
			w.replica(ctx, &running)
		}
		running.Go(func() { leaders(ctx, w) })
		running.Go(func() { w.watch(ctx) })
		select {
		case <-time.After(time.Duration(years) * year):
		case <-t.Context().Done():
		}
		w.mu.Lock()
		for _, h := range w.replicas {
			if err := h.Ready(); err != nil {
				t.Errorf("at the end: %v", err)
			}
		}
		w.mu.Unlock()
		cancel()
		running.Wait()
	})
	// An authority lives eight months as the newest, a serving certificate two.
	if len(w.authors) < years || len(w.servings) < 5*years || w.checks < years*52 {
		t.Errorf("in %d years there were %d authorities, %d serving certificates and %d checks", years, len(w.authors), len(w.servings), w.checks)
	}
	return w
}

func TestRotationLeavesNoGap(t *testing.T) {
	w := live(t, 3, func(ctx context.Context, w *world) { _ = NewKeeper(w.options()).Run(ctx) })
	// Not one more than there must be.
	if len(w.authors) > 6 || len(w.servings) > 25 {
		t.Errorf("there were %d authorities and %d serving certificates in three years", len(w.authors), len(w.servings))
	}
}

// A leader is killed before or after any of its writes, and another one comes
// after a while, or at once.
func TestLeadersDie(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := seeded(t, seed)
			live(t, 2, func(ctx context.Context, w *world) {
				for ctx.Err() == nil {
					life, die := context.WithCancel(ctx)
					left := random.IntN(3)
					w.beforeWrite = func() error {
						if left--; left >= 0 {
							return nil
						}
						die()
						if random.IntN(2) == 0 {
							return errKilled // the write did not reach the API server
						}
						return nil // it did, and nobody was told
					}
					_ = NewKeeper(w.options()).Run(life)
					die()
					pause := time.Duration(random.IntN(3)) * day
					select {
					case <-ctx.Done():
					case <-time.After(pause):
					}
				}
			})
		})
	}
}

// Two that both think they lead, and read and write in any order.
func TestTwoLeaders(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := seeded(t, seed)
			var mu sync.Mutex
			live(t, 2, func(ctx context.Context, w *world) {
				w.beforeWrite = func() error { // now and then, the other one comes first
					mu.Lock()
					pause := time.Duration(random.IntN(4000)) * time.Millisecond
					mu.Unlock()
					<-time.After(pause)
					return nil
				}
				var both sync.WaitGroup
				for range 2 {
					both.Go(func() { _ = NewKeeper(w.options()).Run(ctx) })
				}
				both.Wait()
			})
		})
	}
}

// What people and tools do: empty the Secret, damage it, take the bundle away.
// Replicas that are serving go on, and all is put right.
func TestOthersMeddle(t *testing.T) {
	meddle := map[string]func(*world) error{
		"the Secret is emptied":      func(w *world) error { return w.edit(func(s *corev1.Secret) { s.Data = nil }) },
		"the authority's key is odd": func(w *world) error { return w.edit(func(s *corev1.Secret) { s.Data[keyAuthorityKey] = []byte("x") }) },
		"the serving key is another": func(w *world) error {
			return w.edit(func(s *corev1.Secret) { s.Data[keyServingKey] = s.Data[keyAuthorityKey] })
		},
		"everything is garbage": func(w *world) error {
			return w.edit(func(s *corev1.Secret) {
				for key := range s.Data {
					s.Data[key] = []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
				}
			})
		},
		"the bundle is removed": func(w *world) error {
			c := w.configuration()
			before := c.DeepCopy()
			c.Webhooks[0].ClientConfig.CABundle = nil
			return w.api.Patch(w.Context(), c, client.MergeFrom(before))
		},
	}
	for name, do := range meddle {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				w.replica(ctx, &running)
				running.Go(func() { _ = NewKeeper(w.options()).Run(ctx) })
				<-time.After(10*day + time.Hour)
				w.mu.Lock()
				if w.checks == 0 {
					t.Error("nothing is served after ten days")
				}
				w.mu.Unlock()
				w.mu.Lock()
				w.meddling = true
				w.mu.Unlock()
				if err := do(w); err != nil {
					t.Error(err)
				}
				w.mu.Lock()
				w.bundles, w.meddling = nil, false
				w.mu.Unlock()
				<-time.After(testSettle + 5*day)
				w.mu.Lock()
				w.check()
				w.mu.Unlock()
				var secret corev1.Secret
				if err := w.api.Get(ctx, secretKey, &secret); err != nil {
					t.Error(err)
				}
				m := parse(secret.Data)
				if m.signer == nil || !m.current(time.Now(), []string{host}) || !bytes.Equal(w.configuration().Webhooks[0].ClientConfig.CABundle, secret.Data[keyAuthorities]) {
					t.Errorf("it is not put right: %+v", m)
				}
				cancel()
				running.Wait()
			})
		})
	}
}

func (w *world) edit(change func(*corev1.Secret)) error {
	var s corev1.Secret
	if err := w.api.Get(w.Context(), secretKey, &s); err != nil {
		return err
	}
	change(&s)
	return w.api.Update(w.Context(), &s)
}

// What cannot be done is told, once, and done as soon as it can be.
func TestKeeperWithoutItsObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		configuration := w.configuration()
		if err := w.api.Delete(t.Context(), configuration); err != nil {
			t.Fatal(err)
		}
		k := NewKeeper(w.options())
		if again, err := k.step(t.Context()); again || client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("without a configuration: %t, %v", again, err)
		}
		h := NewHolder(w.options(), func(time.Time) {})
		if _, err := h.GetCertificate(nil); err == nil || h.Ready() == nil {
			t.Error("it is ready without a certificate")
		}
		if err := h.look(t.Context()); err != nil {
			t.Error(err)
		}
		configuration.ResourceVersion = ""
		if err := w.api.Create(t.Context(), configuration); err != nil {
			t.Fatal(err)
		}
		for again := true; again; {
			var err error
			if again, err = k.step(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(h.look(t.Context()), h.Ready()); err != nil {
			t.Error(err)
		}
		<-time.After(2 * servingLife)
		if h.Ready() == nil {
			t.Error("it is ready with an expired certificate")
		}
	})
}
