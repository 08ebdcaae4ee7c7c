// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

// fetched returns one of a number of layers of an artifact in a registry.
func fetched(tag name.Tag, n, layers int) (content []byte, annotations map[string]string, err error) {
	image, err := remote.Image(tag)
	if err != nil {
		return nil, nil, err
	}
	manifest, err := image.Manifest()
	if err != nil || len(manifest.Layers) != layers {
		return nil, nil, errors.Join(fmt.Errorf("%s does not have %d layers", tag, layers), err)
	}
	layer, err := image.LayerByDigest(manifest.Layers[n].Digest)
	if err != nil {
		return nil, nil, err
	}
	open, err := layer.Compressed()
	if err != nil {
		return nil, nil, err
	}
	defer open.Close()
	content, err = io.ReadAll(open)
	return content, manifest.Layers[n].Annotations, err
}

// verifySignature verifies like 'cosign verify --key' that the payload under the image's
// tag is signed with the key, has the right type, and contains the image's digest.
func verifySignature(verifier signature.Verifier, repository name.Repository, digest v1.Hash, change func([]byte) []byte) error {
	text, annotations, err := fetched(repository.Tag("sha256-"+digest.Hex+".sig"), 0, 1)
	if err != nil {
		return err
	}
	sig, err := base64.StdEncoding.DecodeString(annotations["dev.cosignproject.cosign/signature"])
	if err != nil {
		return err
	}
	text = change(text)
	if err := verifier.VerifySignature(bytes.NewReader(sig), bytes.NewReader(text)); err != nil {
		return err
	}
	var of payload.Cosign
	if err := json.Unmarshal(text, &of); err != nil {
		return err
	}
	if of.Image.DigestStr() != digest.String() || of.ClaimedIdentity != repository.Name() {
		return fmt.Errorf("the signature is for %s, %s", of.ClaimedIdentity, of.Image)
	}
	return nil
}

// verifyAttestation verifies one of a number of SBOMs like 'cosign verify-attestation --key
// --type cyclonedx', and returns it.
func verifyAttestation(verifier signature.Verifier, repository name.Repository, digest v1.Hash, n, all int, change func([]byte) []byte) ([]byte, error) {
	text, annotations, err := fetched(repository.Tag("sha256-"+digest.Hex+".att"), n, all)
	if err != nil {
		return nil, err
	}
	if annotations["predicateType"] != "https://cyclonedx.org/bom" {
		return nil, fmt.Errorf("annotations %v", annotations)
	}
	text = change(text)
	if err := dsse.WrapVerifier(verifier).VerifySignature(bytes.NewReader(text), nil); err != nil {
		return nil, err
	}
	var wrapped struct{ Payload []byte }
	var of struct {
		Type          string `json:"_type"`
		PredicateType string
		Predicate     json.RawMessage
		Subject       []struct{ Digest map[string]string }
	}
	if err := errors.Join(json.Unmarshal(text, &wrapped), json.Unmarshal(wrapped.Payload, &of)); err != nil {
		return nil, err
	}
	if of.Type != "https://in-toto.io/Statement/v0.1" || of.PredicateType != "https://cyclonedx.org/bom" ||
		len(of.Subject) != 1 || of.Subject[0].Digest["sha256"] != digest.Hex {
		return nil, fmt.Errorf("the attestation is a %s for %v", of.PredicateType, of.Subject)
	}
	return of.Predicate, nil
}

func same(text []byte) []byte { return text }

func TestImagesAreSigned(t *testing.T) {
	dist := newDist(t)
	must(t, (&options{dist: dist}).run(t.Context()))
	key, verifier := newKey(t)
	_, other := newKey(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	must(t, (&options{dist: dist, key: key, image: host + "/nodegate:v0.1.0"}).run(t.Context()))

	for image, programs := range map[string][]string{"/nodegate": {"nodegate"}, "/nodegate-agent": {"nodegate-agent", "nodegate-hold"}} {
		t.Run(image, func(t *testing.T) {
			tag, err := name.NewTag(host + image + ":v0.1.0")
			must(t, err)
			index, err := remote.Index(tag)
			must(t, err)
			digest, err := index.Digest()
			must(t, err)
			file := map[string]string{"/nodegate": "image-digest.txt", "/nodegate-agent": "agent-image-digest.txt"}[image]
			if written, err := os.ReadFile(filepath.Join(dist, file)); err != nil || string(written) != digest.String()+"\n" {
				t.Errorf("the registry has %s, but the release %s (%v)", digest, written, err)
			}
			manifest, err := index.IndexManifest()
			must(t, err)
			if len(manifest.Manifests) != 2 {
				t.Fatalf("%d platforms, want 2", len(manifest.Manifests))
			}
			signed := []v1.Hash{digest}
			for _, m := range manifest.Manifests {
				signed = append(signed, m.Digest)
				for i, program := range programs {
					file := filepath.Join(dist, program+"_linux_"+m.Platform.Architecture+".cdx.json")
					assertAttested(t, file, func(by signature.Verifier, change func([]byte) []byte) ([]byte, error) {
						return verifyAttestation(by, tag.Context(), m.Digest, i, len(programs), change)
					}, verifier, other)
				}
			}
			for _, digest := range signed {
				assertSigned(t, tag.Context(), digest, verifier, other)
			}
		})
	}
}

// assertAttested checks that an attested SBOM is that in a file, and that it is valid only
// unchanged, and only for one key.
func assertAttested(t *testing.T, file string, verify func(signature.Verifier, func([]byte) []byte) ([]byte, error), verifier, other signature.Verifier) {
	t.Helper()
	bom, err := verify(verifier, same)
	must(t, err)
	want, err := os.ReadFile(file)
	must(t, err)
	if diff := cmp.Diff(compact(t, want), compact(t, bom)); diff != "" {
		t.Errorf("the image's SBOM differs from the release's:\n%s", diff)
	}
	if _, err := verify(other, same); err == nil {
		t.Error("an SBOM is valid for another key")
	}
	if _, err := verify(verifier, func(text []byte) []byte {
		return bytes.Replace(text, []byte(`"payload":"e`), []byte(`"payload":"f`), 1)
	}); err == nil {
		t.Error("a changed SBOM is valid")
	}
}

// assertSigned checks that the signature of an image is valid only unchanged, and only for one key.
func assertSigned(t *testing.T, repository name.Repository, digest v1.Hash, verifier, other signature.Verifier) {
	t.Helper()
	must(t, verifySignature(verifier, repository, digest, same))
	if verifySignature(other, repository, digest, same) == nil {
		t.Error("a signature is valid for another key")
	}
	if verifySignature(verifier, repository, digest, func(text []byte) []byte { return bytes.Replace(text, []byte("sha256:"), []byte("sha256:0"), 1) }) == nil {
		t.Error("a changed payload is valid")
	}
}

func compact(t *testing.T, text []byte) string {
	t.Helper()
	var out bytes.Buffer
	must(t, json.Compact(&out, text))
	return out.String()
}

// Other kinds of keys are rejected before anything is signed.
func TestRejectedKeys(t *testing.T) {
	other, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	must(t, err)
	bytesOf, err := x509.MarshalPKCS8PrivateKey(other)
	must(t, err)
	for what, test := range map[string]struct {
		text []byte
		want string
	}{
		"no PEM":        {[]byte("secret"), "openssl genpkey"},
		"another curve": {pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: bytesOf}), "P-256"},
		"no key":        {pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}), "parsing"},
	} {
		path := filepath.Join(t.TempDir(), "key")
		must(t, os.WriteFile(path, test.text, 0o600))
		err := (&options{dist: t.TempDir(), key: path}).run(t.Context())
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want an error with %q", what, err, test.want)
		}
	}
}

// Images are not published unsigned.
func TestImagesRequireAKey(t *testing.T) {
	dist := t.TempDir()
	err := (&options{dist: dist, image: "registry.example.com/nodegate:v0.1.0"}).run(t.Context())
	if files, _ := os.ReadDir(dist); err == nil || !strings.Contains(err.Error(), "-key") || len(files) > 0 {
		t.Errorf("%v, and %d files", err, len(files))
	}
}
