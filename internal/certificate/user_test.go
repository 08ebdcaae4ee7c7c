// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/cert"
)

// ofUser returns a server with a certificate that a user has stored as the guide describes:
// the Secret has no authorities, and the configuration has the root. The root signed the
// certificate, or an intermediate authority did.
func ofUser(t *testing.T, intermediate bool) *server {
	t.Helper()
	authority := func(name string, signer *issued) *issued {
		next, err := sign(&x509.Certificate{
			Subject: pkix.Name{CommonName: name}, NotBefore: time.Now(), NotAfter: time.Now().Add(validity),
			KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		}, signer)
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	root := authority("root", nil)
	signer, chain := root, []*x509.Certificate(nil)
	if intermediate {
		signer = authority("intermediate", root)
		chain = append(chain, signer.certificate)
	}
	served, err := sign(&x509.Certificate{
		NotBefore: time.Now(), NotAfter: time.Now().Add(365 * day), DNSNames: []string{host}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, signer)
	if err != nil {
		t.Fatal(err)
	}
	data, err := served.data([]*x509.Certificate{root.certificate})
	if err != nil {
		t.Fatal(err)
	}
	registered := configuration()
	registered.Webhooks[0].ClientConfig.CABundle = data[keyAuthorities]
	delete(data, keyAuthorities)
	intermediates, err := cert.EncodeCertificates(chain...)
	if err != nil {
		t.Fatal(err)
	}
	data[keyCertificate] = append(data[keyCertificate], intermediates...)
	w := newServer(t, registered, secret(data))
	w.states = append(w.states, w.state())
	return w
}

// A valid certificate of a user's own is kept. If it is to be replaced, this causes no
// interruption.
func TestCertificateOfAUser(t *testing.T) {
	for _, intermediate := range []bool{false, true} {
		t.Run(fmt.Sprintf("intermediate %t", intermediate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := ofUser(t, intermediate)
				if err := w.ensure(false); err != nil {
					t.Fatal(err)
				}
				if len(w.states) != 1 || strings.Count(w.output.String(), "unchanged") != 2 {
					t.Errorf("a valid certificate was replaced:\n%s", &w.output)
				}
				pass(remount)
				if err := w.ensure(true); err != nil {
					t.Fatal(err)
				}
				pass(remount)
				w.check()
				if n := len(w.states); n != 3 {
					t.Errorf("%d writes, want 2", n-1)
				}
			})
		})
	}
}
