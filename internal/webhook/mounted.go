// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// readPeriod is the default. Kubelets take a minute to give a changed Secret to a
// pod; this adds little.
const readPeriod = 10 * time.Second

// Mounted is the certificate to serve with, in tls.crt and tls.key of a directory,
// as a kubelet mounts a Secret of type kubernetes.io/tls. It may come later, and it
// may change.
type Mounted struct {
	Dir string
	// Host is the name by which the API server calls the webhook.
	Host string
	// Period is how often the files are read. Default: 10 s.
	Period time.Duration
	// Taken is told until when a certificate that was taken up is good.
	Taken func(until time.Time)
	Log   logr.Logger

	watcher atomic.Pointer[certwatcher.CertWatcher]
}

// NeedLeaderElection is false: every replica serves.
func (m *Mounted) NeedLeaderElection() bool { return false }

// Start keeps the certificate up to date until the context ends.
func (m *Mounted) Start(ctx context.Context) error {
	period := cmp.Or(m.Period, readPeriod)
	told := false
	_ = wait.PollUntilContextCancel(ctx, period, true, func(context.Context) (bool, error) {
		w, err := certwatcher.New(filepath.Join(m.Dir, corev1.TLSCertKey), filepath.Join(m.Dir, corev1.TLSPrivateKeyKey))
		if err != nil {
			if !told {
				m.Log.Error(err, "cannot read the webhook's certificate, retrying")
			}
			told = true
			return false, nil
		}
		w.RegisterCallback(func(c tls.Certificate) {
			m.Taken(c.Leaf.NotAfter)
			m.Log.Info("webhook certificate taken up", "until", c.Leaf.NotAfter)
		})
		m.watcher.Store(w)
		return true, nil
	})
	if w := m.watcher.Load(); w != nil {
		return w.WithWatchInterval(period).Start(ctx)
	}
	return nil // told to stop before there was one
}

var errNoCertificate = errors.New("the webhook has no certificate yet: with an administrator's kubeconfig, run 'nodegate webhook-certificate'")

// GetCertificate returns what to serve with; it is for a tls.Config.
func (m *Mounted) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	w := m.watcher.Load()
	if w == nil {
		return nil, errNoCertificate
	}
	return w.GetCertificate(hello)
}

// Ready says why the API server would not accept what is served. Nil if it would,
// provided that it trusts who has signed it, which cannot be seen from here.
func (m *Mounted) Ready() error {
	c, err := m.GetCertificate(nil)
	if err != nil {
		return err
	}
	if time.Now().After(c.Leaf.NotAfter) {
		return fmt.Errorf("the webhook's certificate was good until %s: run 'nodegate webhook-certificate', or see to who issues it", c.Leaf.NotAfter.Format(time.RFC3339))
	}
	if err := c.Leaf.VerifyHostname(m.Host); err != nil {
		return fmt.Errorf("the webhook's certificate is for another server: %w", err)
	}
	return nil
}
