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

// readPeriod is the default of Mounted.Period. It is short compared with the minute that
// kubelets need to update a mounted Secret.
const readPeriod = 10 * time.Second

// Mounted is the serving certificate in tls.crt and tls.key of a directory, in which a
// kubelet mounts a Secret of type kubernetes.io/tls. It may be created later, and may
// change.
type Mounted struct {
	Dir string
	// Host is the host name at which the API server calls the webhook.
	Host string
	// Period is the interval at which the files are read. Defaults to 10 s.
	Period time.Duration
	// OnLoad is called with the expiry of each certificate that is loaded.
	OnLoad func(until time.Time)
	Log    logr.Logger

	watcher atomic.Pointer[certwatcher.CertWatcher]
}

// NeedLeaderElection returns false, because every replica serves.
func (m *Mounted) NeedLeaderElection() bool { return false }

// Start keeps the certificate up to date until the context ends.
func (m *Mounted) Start(ctx context.Context) error {
	period := cmp.Or(m.Period, readPeriod)
	logged := false
	_ = wait.PollUntilContextCancel(ctx, period, true, func(context.Context) (bool, error) {
		w, err := certwatcher.New(filepath.Join(m.Dir, corev1.TLSCertKey), filepath.Join(m.Dir, corev1.TLSPrivateKeyKey))
		if err != nil {
			if !logged {
				m.Log.Error(err, "cannot read the webhook's certificate, retrying")
			}
			logged = true
			return false, nil
		}
		w.RegisterCallback(func(c tls.Certificate) {
			m.OnLoad(c.Leaf.NotAfter)
			m.Log.Info("loaded the webhook's certificate", "until", c.Leaf.NotAfter)
		})
		m.watcher.Store(w)
		return true, nil
	})
	if w := m.watcher.Load(); w != nil {
		return w.WithWatchInterval(period).Start(ctx)
	}
	return nil // the context ended before there was a certificate
}

var errNoCertificate = errors.New("the webhook has no certificate yet: run 'nodegate webhook-certificate' with an administrator's kubeconfig")

// GetCertificate returns the current certificate, as tls.Config.GetCertificate.
func (m *Mounted) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	w := m.watcher.Load()
	if w == nil {
		return nil, errNoCertificate
	}
	return w.GetCertificate(hello)
}

// Ready returns an error if there is no certificate that the API server can accept.
// Whether the API server trusts its authority is not checked.
func (m *Mounted) Ready() error {
	c, err := m.GetCertificate(nil)
	if err != nil {
		return err
	}
	if time.Now().After(c.Leaf.NotAfter) {
		return fmt.Errorf("the webhook's certificate expired at %s: run 'nodegate webhook-certificate', or check its issuer", c.Leaf.NotAfter.Format(time.RFC3339))
	}
	if err := c.Leaf.VerifyHostname(m.Host); err != nil {
		return fmt.Errorf("the webhook's certificate is for another host: %w", err)
	}
	return nil
}
