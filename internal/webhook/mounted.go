// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
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
	// OnLoad is called with the validity period of each certificate that is loaded.
	OnLoad func(from, until time.Time)
	Log    logr.Logger

	current atomic.Pointer[tls.Certificate]
}

// NeedLeaderElection returns false, because every replica serves.
func (m *Mounted) NeedLeaderElection() bool { return false }

// Start keeps the certificate up to date until the context ends. It reads the files
// periodically instead of watching them, because a watch requires an inotify instance:
// containers with the same user ID share a limited number of them on each node.
func (m *Mounted) Start(ctx context.Context) error {
	logged := ""
	wait.UntilWithContext(ctx, func(context.Context) {
		err := m.load()
		switch {
		case err == nil:
			logged = ""
		case err.Error() != logged:
			logged = err.Error()
			m.Log.Error(err, "cannot read the webhook's certificate, retrying", "served", m.current.Load() != nil)
		}
	}, cmp.Or(m.Period, readPeriod))
	return nil
}

// load reads the files. If they have changed, it replaces the certificate; if they are
// invalid, it keeps the last one. It also keeps that one if API servers would reject only the new one.
func (m *Mounted) load() error {
	read, err := tls.LoadX509KeyPair(filepath.Join(m.Dir, corev1.TLSCertKey), filepath.Join(m.Dir, corev1.TLSPrivateKeyKey))
	if err != nil {
		return err
	}
	if last := m.current.Load(); last != nil {
		if slices.EqualFunc(last.Certificate, read.Certificate, bytes.Equal) {
			return nil // the same certificates have the same key
		}
		if err := m.check(read.Leaf); err != nil && m.check(last.Leaf) == nil {
			return fmt.Errorf("keeping the former certificate, because the new one %w", err)
		}
	}
	m.current.Store(&read)
	m.OnLoad(read.Leaf.NotBefore, read.Leaf.NotAfter)
	m.Log.Info("loaded the webhook's certificate", "until", read.Leaf.NotAfter)
	return nil
}

// check returns why API servers would reject a certificate, or nil. The error begins with a verb. Whether
// they trust the certificate's authority is not checked.
func (m *Mounted) check(c *x509.Certificate) error {
	switch now := time.Now(); {
	case now.Before(c.NotBefore):
		return fmt.Errorf("is not valid before %s: check the clock of the machine that issued it, and run 'nodegate webhook-certificate', or check its issuer",
			c.NotBefore.Format(time.RFC3339))
	case now.After(c.NotAfter):
		return fmt.Errorf("expired at %s: run 'nodegate webhook-certificate', or check its issuer", c.NotAfter.Format(time.RFC3339))
	}
	if err := c.VerifyHostname(m.Host); err != nil {
		return fmt.Errorf("is for another host: %w", err)
	}
	return nil
}

var errNoCertificate = errors.New("the webhook has no certificate yet: run 'nodegate webhook-certificate' with an administrator's kubeconfig")

// GetCertificate returns the current certificate, as tls.Config.GetCertificate.
func (m *Mounted) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := m.current.Load(); c != nil {
		return c, nil
	}
	return nil, errNoCertificate
}

// Ready returns an error if there is no certificate that the API server can accept (see check).
func (m *Mounted) Ready() error {
	c, err := m.GetCertificate(nil)
	if err != nil {
		return err
	}
	if err := m.check(c.Leaf); err != nil {
		return fmt.Errorf("the webhook's certificate %w", err)
	}
	return nil
}
