// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"fmt"
	"os"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
)

// loadSigner reads a private key as written by openssl genpkey. Its signatures are those of
// 'cosign --key': ECDSA on P-256, over SHA-256.
func loadSigner(path string) (signature.Signer, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the signing key: %w", err)
	}
	parsed, err := cryptoutils.UnmarshalPEMToPrivateKey(text, nil)
	if err != nil {
		return nil, fmt.Errorf("parsing the signing key %s: %w; create one with 'openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256'", path, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%s is not an ECDSA key on P-256", path)
	}
	return signature.LoadECDSASigner(key, crypto.SHA256)
}

// signFile writes the signature of a file in Base64, with the extension .sig.
func signFile(s signature.Signer, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the file to sign: %w", err)
	}
	sig, err := s.SignMessage(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("signing %s: %w", path, err)
	}
	if err := os.WriteFile(path+".sig", []byte(base64.StdEncoding.EncodeToString(sig)), 0o644); err != nil {
		return fmt.Errorf("writing the signature: %w", err)
	}
	return nil
}
