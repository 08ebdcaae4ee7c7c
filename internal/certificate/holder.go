// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Holder holds what this replica serves with.
type Holder struct {
	Options
	// taken is told until when a certificate that was taken up is good.
	taken   func(until time.Time)
	current atomic.Pointer[tls.Certificate]
	failed  bool
}

// NewHolder returns a holder that tells until when what it serves with is good.
func NewHolder(o Options, taken func(until time.Time)) *Holder {
	return &Holder{Options: o.withDefaults(), taken: taken}
}

// Follow keeps what is served with up to date, until the context ends.
func (h *Holder) Follow(ctx context.Context) error {
	for {
		err := h.look(ctx)
		if err != nil && !h.failed && ctx.Err() == nil {
			h.Log.Error(err, "cannot read the webhook's certificate, retrying")
		}
		h.failed = err != nil
		pause := h.Period
		if h.current.Load() == nil {
			pause /= hurry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-h.Clock.After(pause):
		}
	}
}

// look takes up what the Secret has. If that is nothing, what is here is kept.
func (h *Holder) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var secret corev1.Secret
	if err := h.Client.Get(ctx, h.Secret, &secret); err != nil {
		return fmt.Errorf("reading the Secret: %w", err)
	}
	m := parse(secret.Data)
	have := h.current.Load()
	if m.serving == nil || have != nil && bytes.Equal(have.Leaf.Raw, m.serving.Leaf.Raw) {
		return nil
	}
	if have != nil && expired(m.serving.Leaf, h.Clock.Now()) {
		return nil // at best no worse
	}
	h.current.Store(m.serving)
	h.taken(m.serving.Leaf.NotAfter)
	h.Log.Info("webhook certificate taken up", "until", m.serving.Leaf.NotAfter)
	return nil
}

// GetCertificate returns what to serve with; it is for a tls.Config.
func (h *Holder) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c := h.current.Load()
	if c == nil {
		return nil, errors.New("the webhook has no certificate yet")
	}
	return c, nil
}

// Ready is a readiness check: there is something to serve with.
func (h *Holder) Ready() error {
	c := h.current.Load()
	switch {
	case c == nil:
		return errors.New("the webhook has no certificate yet")
	case expired(c.Leaf, h.Clock.Now()):
		return fmt.Errorf("the webhook's certificate was good until %s", c.Leaf.NotAfter)
	}
	return nil
}
