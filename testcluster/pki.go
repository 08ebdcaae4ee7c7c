// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// serviceIP is the address of the Service "kubernetes", the first of
// serviceRange.
const (
	serviceRange = "10.0.0.0/24"
	serviceIP    = "10.0.0.1"
)

// ServiceAddress is the address and port of the Service "kubernetes", at which pods expect
// the API server.
const ServiceAddress = serviceIP + ":443"

// serverNames are the names in the components' serving certificates.
var serverNames = []string{
	"localhost", "127.0.0.1", serviceIP, "kubernetes", "kubernetes.default", "kubernetes.default.svc",
	"kubernetes.default.svc.cluster.local",
}

// A pair is a certificate and its private key in PEM.
type pair struct {
	certificate, key []byte
}

// An authority is a certificate authority.
type authority struct {
	pair
	certificate *x509.Certificate
	signer      crypto.Signer
}

// loadAuthority reads an authority from dir, or creates it there.
func loadAuthority(dir, name string) (*authority, error) {
	certificateFile, keyFile := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	certificate, err := os.ReadFile(certificateFile)
	if errors.Is(err, os.ErrNotExist) {
		return newAuthority(dir, name)
	}
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, err
	}
	a, err := pair{certificate: certificate, key: key}.authority()
	if err != nil {
		return nil, fmt.Errorf("parsing %s and %s: %w", certificateFile, keyFile, err)
	}
	return a, nil
}

// authority returns the authority with this certificate.
func (p pair) authority() (*authority, error) {
	parsed, err := tls.X509KeyPair(p.certificate, p.key)
	if err != nil {
		return nil, err
	}
	signer, _ := parsed.PrivateKey.(crypto.Signer) // as all keys of certificates are
	return &authority{pair: p, certificate: parsed.Leaf, signer: signer}, nil
}

func newAuthority(dir, name string) (*authority, error) {
	template := certificateTemplate(pkix.Name{CommonName: "nodegate-cluster-" + name}, 10)
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	signer, err := newKey()
	if err != nil {
		return nil, err
	}
	signed, err := sign(template, template, signer, signer)
	if err != nil {
		return nil, err
	}
	if _, err := signed.write(dir, name); err != nil {
		return nil, err
	}
	return signed.authority()
}

// client issues a certificate that authenticates a user.
func (a *authority) client(user string, groups ...string) (pair, error) {
	template := certificateTemplate(pkix.Name{CommonName: user, Organization: groups}, 1)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

// server issues a certificate for the components' endpoints.
func (a *authority) server(name string) (pair, error) {
	template := certificateTemplate(pkix.Name{CommonName: name}, 1)
	// etcd's gRPC gateway connects to etcd itself with this certificate.
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, name := range serverNames {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return a.issue(template)
}

func (a *authority) issue(template *x509.Certificate) (pair, error) {
	signer, err := newKey()
	if err != nil {
		return pair{}, err
	}
	return sign(template, a.certificate, signer, a.signer)
}

// certificateTemplate returns a certificate that is valid for several years. Its
// validity begins an hour in the past, because clocks are sometimes set back.
func certificateTemplate(subject pkix.Name, years int) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetInt64(now.UnixNano()),
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.AddDate(years, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func newKey() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

// sign creates the certificate for a key, signed by its parent's key.
func sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey, parentKey crypto.Signer) (pair, error) {
	certificate, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return pair{}, fmt.Errorf("signing a certificate: %w", err)
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return pair{}, fmt.Errorf("encoding a key: %w", err)
	}
	return pair{
		certificate: pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: certificate}),
		key:         encoded,
	}, nil
}

// write writes name.crt and name.key into dir and returns their paths.
func (p pair) write(dir, name string) (files pairFiles, err error) {
	files = pairFiles{
		certificate: filepath.Join(dir, name+".crt"),
		key:         filepath.Join(dir, name+".key"),
	}
	if err := os.WriteFile(files.key, p.key, 0o600); err != nil {
		return files, err
	}
	return files, os.WriteFile(files.certificate, p.certificate, 0o644)
}

// pairFiles are the paths of a certificate and its key.
type pairFiles struct {
	certificate, key string
}
