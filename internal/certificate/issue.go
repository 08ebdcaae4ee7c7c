// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	// life is how long a certificate is good. It can be replaced at any time.
	life = 10 * 365 * 24 * time.Hour
	// backdate is how far clocks may differ from each other.
	backdate = time.Hour
)

// issued is a serving certificate, and the authority that has signed it.
type issued struct {
	authority, certificate *x509.Certificate
	key                    *ecdsa.PrivateKey
}

// issue makes a serving certificate for a server that is called by these names and
// addresses. The authority's key signs this one certificate and is forgotten, so
// that nobody can ever have it sign another.
func issue(hosts []string, now time.Time) (*issued, error) {
	authority := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "nodegate webhook CA"},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(life),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}
	serving := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "nodegate webhook"},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			serving.IPAddresses = append(serving.IPAddresses, ip)
		} else {
			serving.DNSNames = append(serving.DNSNames, host)
		}
	}
	signer, err := sign(authority, nil)
	if err != nil {
		return nil, err
	}
	served, err := sign(serving, signer)
	if err != nil {
		return nil, err
	}
	return &issued{authority: signer.certificate, certificate: served.certificate, key: served.key}, nil
}

// sign makes a key and a certificate for it; with no signer it signs itself.
func sign(template *x509.Certificate, signer *issued) (*issued, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	parent, by := template, key
	if signer != nil {
		parent, by = signer.certificate, signer.key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate just made: %w", err)
	}
	return &issued{certificate: certificate, key: key}, nil
}

// held is what the Secret holds. What cannot be read there is not there.
type held struct {
	// trusted are the authorities that the API server is to trust.
	trusted []*x509.Certificate
	// serving is what replicas serve with. Nil if there is none.
	serving *x509.Certificate
}

func parse(data map[string][]byte) held {
	var h held
	h.trusted, _ = cert.ParseCertsPEM(data[keyAuthorities])
	if pair, err := tls.X509KeyPair(data[keyCertificate], data[keyPrivate]); err == nil {
		h.serving = pair.Leaf
	}
	return h
}

// fit says why an API server that trusts what is trusted would refuse what is
// served, or will before long. Nil if it does not.
func (h *held) fit(hosts []string, now time.Time) error {
	if h.serving == nil {
		return errNone
	}
	if _, err := h.serving.Verify(x509.VerifyOptions{Roots: pool(h.trusted), CurrentTime: now}); err != nil {
		return fmt.Errorf("the certificate is not trusted by %s beside it: %w", keyAuthorities, err)
	}
	for _, host := range hosts {
		if err := h.serving.VerifyHostname(host); err != nil {
			return fmt.Errorf("the certificate is for another server: %w", err)
		}
	}
	if left := h.serving.NotAfter.Sub(now); left < renewBefore {
		return fmt.Errorf("the certificate is good until %s only", h.serving.NotAfter.Format(time.DateOnly))
	}
	return nil
}

// signers are the trusted authorities by which the present certificate is trusted.
func (h *held) signers(now time.Time) []*x509.Certificate {
	return slices.DeleteFunc(slices.Clone(h.trusted), func(c *x509.Certificate) bool {
		if h.serving == nil {
			return true
		}
		_, err := h.serving.Verify(x509.VerifyOptions{Roots: pool([]*x509.Certificate{c}), CurrentTime: now})
		return err != nil
	})
}

func pool(certificates []*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range certificates {
		p.AddCert(c)
	}
	return p
}

// data is what the Secret holds once the certificate has been issued.
func (i *issued) data(trusted []*x509.Certificate) (map[string][]byte, error) {
	key, err := keyutil.MarshalPrivateKeyToPEM(i.key)
	if err != nil {
		return nil, fmt.Errorf("writing the key: %w", err)
	}
	return map[string][]byte{
		keyAuthorities: encode(trusted),
		keyCertificate: encode([]*x509.Certificate{i.certificate}),
		keyPrivate:     key,
	}, nil
}

// encode writes certificates as PEM.
func encode(certificates []*x509.Certificate) []byte {
	var out []byte
	for _, c := range certificates {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw})...)
	}
	return out
}
