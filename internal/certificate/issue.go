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
	// validity is the time for which a certificate is valid. It can be replaced earlier.
	validity = 10 * 365 * 24 * time.Hour
	// backdate is the tolerated difference between clocks.
	backdate = time.Hour
)

// issued is a serving certificate, its key, and the authority that signed it.
type issued struct {
	authority, certificate *x509.Certificate
	key                    *ecdsa.PrivateKey
}

// issue creates a serving certificate for a server with these names and addresses. The
// authority's key signs only this certificate. It is not stored, so that it can never
// sign another one.
func issue(hosts []string, now time.Time) (*issued, error) {
	authority := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "nodegate webhook CA"},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(validity),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}
	serving := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "nodegate webhook"},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(validity),
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

// sign creates a key and a certificate for it, which is self-signed if signer is nil.
func sign(template *x509.Certificate, signer *issued) (*issued, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	parent, by := template, key
	if signer != nil {
		parent, by = signer.certificate, signer.key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		return nil, fmt.Errorf("creating a certificate: %w", err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, fmt.Errorf("parsing the new certificate: %w", err)
	}
	return &issued{certificate: certificate, key: key}, nil
}

// contents are the contents of the Secret. Entries that cannot be read are omitted.
type contents struct {
	// trusted are the authorities that the API server trusts, or is to trust.
	trusted []*x509.Certificate
	// serving is the serving certificate, or nil.
	serving *x509.Certificate
	// intermediates are the certificates that are sent with the serving certificate.
	intermediates []*x509.Certificate
}

func parse(data map[string][]byte) contents {
	var h contents
	h.trusted, _ = cert.ParseCertsPEM(data[keyAuthorities])
	if pair, err := tls.X509KeyPair(data[keyCertificate], data[keyPrivate]); err == nil {
		h.serving = pair.Leaf
		for _, raw := range pair.Certificate[1:] {
			if c, err := x509.ParseCertificate(raw); err == nil {
				h.intermediates = append(h.intermediates, c)
			}
		}
	}
	return h
}

// trust adds the authorities in a bundle that the API server trusts.
func (h *contents) trust(bundle []byte) {
	authorities, _ := cert.ParseCertsPEM(bundle)
	for _, c := range authorities {
		if !slices.ContainsFunc(h.trusted, c.Equal) {
			h.trusted = append(h.trusted, c)
		}
	}
}

// verify returns an error if a client that trusts only these authorities would reject the
// serving certificate, which must not be nil. The host is not verified.
func (h *contents) verify(now time.Time, authorities ...*x509.Certificate) error {
	_, err := h.serving.Verify(x509.VerifyOptions{Roots: pool(authorities), Intermediates: pool(h.intermediates), CurrentTime: now})
	return err
}

// validate returns an error if an API server that trusts the authorities would reject the
// serving certificate, or if the certificate expires soon.
func (h *contents) validate(hosts []string, now time.Time) error {
	if h.serving == nil {
		return errNone
	}
	if err := h.verify(now, h.trusted...); err != nil {
		return fmt.Errorf("verifying the certificate: %w", err)
	}
	for _, host := range hosts {
		if err := h.serving.VerifyHostname(host); err != nil {
			return fmt.Errorf("the certificate is for another host: %w", err)
		}
	}
	if left := h.serving.NotAfter.Sub(now); left < renewBefore {
		return fmt.Errorf("the certificate expires on %s", h.serving.NotAfter.Format(time.DateOnly))
	}
	return nil
}

// needed returns the trusted authorities that replicas may need until they serve another
// certificate. Usually, these are the authorities with which the Secret's certificate is
// valid, and recent ones, because another run may be about to serve the certificate of one. If
// the certificate is valid with none, or if it is recent itself, replicas may serve a former
// certificate: they keep the last one that they could read. All authorities that have not expired
// are then needed.
func (h *contents) needed(now time.Time, delay time.Duration) []*x509.Certificate {
	unexpired := slices.DeleteFunc(slices.Clone(h.trusted), func(c *x509.Certificate) bool { return now.After(c.NotAfter) })
	signed := func(c *x509.Certificate) bool { return h.verify(now, c) == nil }
	if h.serving == nil || recent(h.serving, now, delay) || !slices.ContainsFunc(unexpired, signed) {
		return unexpired
	}
	return slices.DeleteFunc(unexpired, func(c *x509.Certificate) bool { return !signed(c) && !recent(c, now, delay) })
}

// recent reports whether a certificate was issued less than delay ago.
func recent(c *x509.Certificate, now time.Time, delay time.Duration) bool {
	return now.Sub(c.NotBefore.Add(backdate)) < delay
}

// withRecent returns a bundle with the recent authorities that the API server trusts, too: another
// run may be about to serve the certificate of one.
func withRecent(bundle, trusted []byte, now time.Time, delay time.Duration) []byte {
	have, _ := cert.ParseCertsPEM(bundle)
	authorities, _ := cert.ParseCertsPEM(trusted)
	for _, c := range authorities {
		if recent(c, now, delay) && !slices.ContainsFunc(have, c.Equal) {
			bundle = slices.Concat(bundle, []byte("\n"), pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw}))
		}
	}
	return bundle
}

func pool(certificates []*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range certificates {
		p.AddCert(c)
	}
	return p
}

// data returns the contents of a Secret with the certificate and trusted authorities.
func (i *issued) data(trusted []*x509.Certificate) (map[string][]byte, error) {
	key, err := keyutil.MarshalPrivateKeyToPEM(i.key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key: %w", err)
	}
	authorities, err := cert.EncodeCertificates(trusted...)
	if err != nil {
		return nil, fmt.Errorf("encoding the authorities: %w", err)
	}
	certificate, err := cert.EncodeCertificates(i.certificate)
	if err != nil {
		return nil, fmt.Errorf("encoding the certificate: %w", err)
	}
	return map[string][]byte{keyAuthorities: authorities, keyCertificate: certificate, keyPrivate: key}, nil
}
