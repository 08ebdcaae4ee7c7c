// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// signer signs as 'cosign --key' does: ECDSA on P-256, over SHA-256.
type signer struct{ key *ecdsa.PrivateKey }

var _ dsse.Signer = (*signer)(nil)

// loadSigner reads a private key in PKCS #8, as openssl genpkey writes it.
func loadSigner(path string) (*signer, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the signing key: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s has no key in PEM: make one with 'openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256'", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parsing the signing key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%s is not an ECDSA key on P-256", path)
	}
	return &signer{key}, nil
}

// Sign returns the signature of data in ASN.1.
func (s *signer) Sign(_ context.Context, data []byte) ([]byte, error) {
	sum := sha256.Sum256(data)
	return ecdsa.SignASN1(rand.Reader, s.key, sum[:])
}

// KeyID returns "", because verifiers have only one key and need no name.
func (*signer) KeyID() (string, error) { return "", nil }

// signFile writes the signature of a file beside it, as .sig, in Base64.
func (s *signer) signFile(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading what is to be signed: %w", err)
	}
	signature, err := s.Sign(context.Background(), content)
	if err != nil {
		return fmt.Errorf("signing %s: %w", path, err)
	}
	if err := os.WriteFile(path+".sig", []byte(base64.StdEncoding.EncodeToString(signature)), 0o644); err != nil {
		return fmt.Errorf("writing the signature: %w", err)
	}
	return nil
}
