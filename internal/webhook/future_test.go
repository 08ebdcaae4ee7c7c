// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// from returns the files of a certificate that is valid for a day from a time on.
func (v *volume) from(start time.Time) map[string][]byte {
	v.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	v.must(err)
	template := &x509.Certificate{DNSNames: []string{host}, NotBefore: start, NotAfter: start.Add(24 * time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	v.must(err)
	private, err := keyutil.MarshalPrivateKeyToPEM(key)
	v.must(err)
	return map[string][]byte{"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), "tls.key": private}
}

// A certificate from a machine whose clock is ahead is not served while a valid one can be.
func TestMountedBeforeItIsValid(t *testing.T) {
	v := newVolume(t)
	synctest.Test(t, func(t *testing.T) {
		r := &reads{T: t}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		m := r.mounted(v.dir)
		first, second, third := v.from(time.Now()), v.from(time.Now().Add(2*time.Hour)), v.from(time.Now().Add(99*time.Hour))
		v.write(first)
		go func() { ended <- m.Start(ctx) }()
		r.after(0, "at the start", serves(m, first), 1, 0)
		v.write(second)
		r.after(2*time.Hour-1, "before the second is valid", serves(m, first), 1, 1)
		r.after(m.Period, "when the second is valid", serves(m, second), 2, 1)
		v.write(third)
		r.after(24*time.Hour-2*m.Period, "while the second is valid", serves(m, second), 2, 2)
		v.must(m.Ready())
		r.after(3*m.Period, "when no certificate is valid", serves(m, third), 3, 2)
		if err := m.Ready(); err == nil || !strings.Contains(err.Error(), "the webhook's certificate is not valid before 2000-01-05T03:00:00Z: ") {
			t.Errorf("Ready() = %v", err)
		}
		v.write(first)
		r.after(m.Period, "instead of one that is not valid yet", serves(m, first), 4, 2)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Start returned %v", err)
		}
	})
}

// A certificate that API servers would reject replaces no valid one, such as a Secret that was
// edited or restored from a backup. If there is no valid one, it is served, and Ready reports it.
func TestMountedThatWouldBeRejected(t *testing.T) {
	v := newVolume(t)
	synctest.Test(t, func(t *testing.T) {
		valid := v.from(time.Now())
		for want, rejected := range map[string]map[string][]byte{
			"is for another host: x509: certificate is valid for other.svc, ":                                            v.pair("other.svc"),
			"expired at 1999-12-31T23:00:00Z: run 'nodegate webhook-certificate', or check its issuer":                   v.from(time.Now().Add(-25 * time.Hour)),
			"is not valid before 2000-01-01T01:00:00Z: check the clock of the machine that issued it, and run 'nodegate": v.from(time.Now().Add(time.Hour)),
		} {
			r := &reads{T: t}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			m := r.mounted(v.dir)
			v.write(rejected)
			go func() { ended <- m.Start(ctx) }()
			r.after(0, "without a valid one", serves(m, rejected), 1, 0)
			if err := m.Ready(); err == nil || !strings.HasPrefix(err.Error(), "the webhook's certificate "+want) {
				t.Errorf("Ready() = %v, want %q", err, want)
			}
			v.write(valid)
			r.after(m.Period, "when there is a valid one", serves(m, valid), 2, 0)
			v.write(rejected)
			r.after(3*m.Period, "instead of a valid one", serves(m, valid), 2, 1)
			v.must(m.Ready())
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Start returned %v", err)
			}
		}
	})
}
