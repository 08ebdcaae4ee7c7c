// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Keys of the Secret.
const (
	keyAuthorities  = "ca.crt" // newest first; all that the API server is to trust
	keyAuthorityKey = "ca.key" // that of the newest
	keyServing      = "tls.crt"
	keyServingKey   = "tls.key"
)

// material is what the Secret holds. What cannot be read there is not there.
type material struct {
	// authorities are trusted, the newest first.
	authorities []*x509.Certificate
	// signer signs for the newest. Nil if its key is missing.
	signer *tls.Certificate
	// serving is what the webhook serves with.
	serving *tls.Certificate
}

func parse(data map[string][]byte) material {
	var m material
	m.authorities, _ = cert.ParseCertsPEM(data[keyAuthorities])
	if len(m.authorities) > 0 {
		m.signer = pair(encode(m.authorities[:1]), data[keyAuthorityKey])
	}
	m.serving = pair(data[keyServing], data[keyServingKey])
	return m
}

// pair returns a certificate with its key; nil if they are not one.
func pair(certificate, key []byte) *tls.Certificate {
	p, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil
	}
	return &p
}

// data writes the material as the Secret holds it.
func (m *material) data() (map[string][]byte, error) {
	data := map[string][]byte{keyAuthorities: encode(m.authorities)}
	if err := addKey(data, keyAuthorityKey, m.signer); err != nil {
		return nil, err
	}
	if m.serving != nil {
		data[keyServing] = encode([]*x509.Certificate{m.serving.Leaf})
	}
	return data, addKey(data, keyServingKey, m.serving)
}

// addKey adds the private key of a certificate, if there is one.
func addKey(data map[string][]byte, name string, p *tls.Certificate) error {
	if p == nil {
		return nil
	}
	key, err := keyutil.MarshalPrivateKeyToPEM(p.PrivateKey)
	if err != nil {
		return fmt.Errorf("writing private key %s: %w", name, err)
	}
	data[name] = key
	return nil
}

// encode writes certificates as PEM.
func encode(certificates []*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, c := range certificates {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw}))
	}
	return out.Bytes()
}

func contains(certificates []*x509.Certificate, c *x509.Certificate) bool {
	return slices.ContainsFunc(certificates, c.Equal)
}

func expired(c *x509.Certificate, now time.Time) bool { return now.After(c.NotAfter) }

// due tells whether it is time for a successor: two thirds are over.
func due(c *x509.Certificate, now time.Time) bool {
	life := c.NotAfter.Sub(c.NotBefore)
	return now.After(c.NotBefore.Add(life * 2 / 3))
}
