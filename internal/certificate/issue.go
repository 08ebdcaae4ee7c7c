// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"time"
)

const (
	authorityLife = 365 * 24 * time.Hour
	servingLife   = 90 * 24 * time.Hour
	// backdate is how far clocks may differ from each other.
	backdate = time.Hour

	// authorityName is the common name by which an authority is known as ours.
	authorityName = "nodegate webhook CA"
)

// newAuthority makes an authority that signs itself.
func newAuthority(now time.Time) (*tls.Certificate, error) {
	return issue(&x509.Certificate{
		Subject:   pkix.Name{CommonName: authorityName},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(authorityLife),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}, nil)
}

// newServing makes a certificate for a server that is called by these names and
// addresses. It does not outlive its authority.
func newServing(signer *tls.Certificate, hosts []string, now time.Time) (*tls.Certificate, error) {
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "nodegate webhook"},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(servingLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	if signer.Leaf.NotAfter.Before(template.NotAfter) {
		template.NotAfter = signer.Leaf.NotAfter
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return issue(template, signer)
}

// issue makes a key, and a certificate for it; a nil signer has it sign itself.
func issue(template *x509.Certificate, signer *tls.Certificate) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	parent, by := template, any(key)
	if signer != nil {
		parent, by = signer.Leaf, signer.PrivateKey
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate just made: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key, Leaf: leaf}, nil
}
