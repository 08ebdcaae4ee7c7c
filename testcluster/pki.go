// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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
	a := &authority{pair: pair{certificate: certificate, key: key}}
	block, _ := pem.Decode(certificate)
	if block == nil {
		return nil, fmt.Errorf("%s has no certificate", certificateFile)
	}
	if a.certificate, err = x509.ParseCertificate(block.Bytes); err != nil {
		return nil, fmt.Errorf("parsing %s: %w", certificateFile, err)
	}
	if a.signer, err = parseKey(key); err != nil {
		return nil, fmt.Errorf("parsing %s: %w", keyFile, err)
	}
	return a, nil
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
	certificate, err := x509.ParseCertificate(mustDecode(signed.certificate))
	if err != nil {
		return nil, err
	}
	return &authority{pair: signed, certificate: certificate, signer: signer}, nil
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
	encoded, err := encodeKey(key)
	if err != nil {
		return pair{}, err
	}
	return pair{
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		key:         encoded,
	}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}), nil
}

func parseKey(key []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(key)
	if block == nil {
		return nil, errors.New("no key")
	}
	return x509.ParseECPrivateKey(block.Bytes)
}

// mustDecode returns the contents of PEM that this package encoded.
func mustDecode(encoded []byte) []byte {
	block, _ := pem.Decode(encoded)
	return block.Bytes
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
