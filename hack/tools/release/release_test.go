// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
)

// build builds a program of the module in a directory.
func build(t *testing.T, module, pkg string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if output, err := exec.Command("go", "build", "-C", module, "-o", path, pkg).CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v: %s", pkg, err, output)
	}
	content, err := os.ReadFile(path)
	must(t, err)
	return content
}

// small returns a small program.
func small(t *testing.T) []byte {
	t.Helper()
	module := t.TempDir()
	must(t, os.WriteFile(filepath.Join(module, "go.mod"), []byte("module example.com/small\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(module, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o644))
	return build(t, module, ".")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The modules in the SBOM are those that go list reports for the program.
func TestSBOMHasTheModulesOfTheProgram(t *testing.T) {
	const root = "../../.."
	program := build(t, root, "./cmd/nodegate")
	text, err := sbomText(program, "v1.2.3")
	must(t, err)
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	var bom cdx.BOM
	must(t, strict.Decode(&bom))
	if bom.SpecVersion != cdx.SpecVersion1_6 || bom.Metadata.Component.PackageURL != "pkg:golang/github.com/nodegate/nodegate@v1.2.3" {
		t.Errorf("the SBOM has version %s, and is of %s", bom.SpecVersion, bom.Metadata.Component.PackageURL)
	}
	list := exec.Command("go", "list", "-C", root, "-deps", "-f", "{{with .Module}}{{if not .Main}}pkg:golang/{{.Path}}@{{.Version}}{{end}}{{end}}", "./cmd/nodegate")
	output, err := list.Output()
	must(t, err)
	want := map[string]bool{}
	for module := range strings.FieldsSeq(string(output)) {
		want[strings.ReplaceAll(module, "+", "%2B")] = true
	}
	got, refs := map[string]bool{}, []string{}
	for _, c := range *bom.Components {
		refs = append(refs, c.BOMRef)
		if c.Name == "std" {
			continue
		}
		got[c.PackageURL] = true
		if c.Properties == nil || !strings.HasPrefix((*c.Properties)[0].Value, "h1:") {
			t.Errorf("%s has no checksum", c.Name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got) < 30 {
		t.Errorf("%d modules (-program +SBOM):\n%s", len(got), diff)
	}
	if len(slices.Compact(slices.Sorted(slices.Values(refs)))) != len(refs) || len(refs) != len(got)+1 {
		t.Errorf("a component exists twice, or the standard library is missing: %q", refs)
	}
	if d := (*bom.Dependencies)[0]; d.Ref != bom.Metadata.Component.BOMRef || !slices.Equal(*d.Dependencies, refs) {
		t.Errorf("dependencies: %+v", d)
	}
	again, err := sbomText(program, "v1.2.3")
	if err != nil || !bytes.Equal(text, again) {
		t.Errorf("the SBOM of a program differs the second time (%v)", err)
	}
}

func TestSBOMRejectsScripts(t *testing.T) {
	if _, err := sbomText([]byte("#!/bin/sh\n"), ""); err == nil {
		t.Error("a script is accepted")
	}
}

// newDist returns the directory of a release without SBOMs and checksums: one archive, the
// images, and a file.
func newDist(t *testing.T) string {
	t.Helper()
	content, dist := small(t), t.TempDir()
	must(t, os.WriteFile(filepath.Join(dist, "install.yaml"), []byte("kind: List\n"), 0o644))
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	must(t, errors.Join(tarOf(zipped, content, "kubectl-gate"), zipped.Close()))
	must(t, os.WriteFile(filepath.Join(dist, "kubectl-gate_linux_amd64.tar.gz"), archive.Bytes(), 0o644))
	writeImage(t, filepath.Join(dist, "image"), content, "nodegate")
	writeImage(t, filepath.Join(dist, "agent-image"), content, "nodegate-agent", "nodegate-hold")
	return dist
}

// writeImage writes an image of programs with the same content, for two platforms.
func writeImage(t *testing.T, dir string, content []byte, programs ...string) {
	t.Helper()
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, architecture := range []string{"amd64", "arm64"} {
		var files bytes.Buffer
		must(t, tarOf(&files, content, programs...))
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil })
		must(t, err)
		image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layer)
		must(t, err)
		config, err := image.ConfigFile()
		must(t, err)
		config = config.DeepCopy()
		config.OS, config.Architecture = "linux", architecture
		image, err = mutate.ConfigFile(image, config)
		must(t, err)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}}})
	}
	path, err := layout.Write(dir, empty.Index)
	must(t, err)
	must(t, path.AppendIndex(index))
}

func tarOf(w io.Writer, content []byte, names ...string) error {
	files := tar.NewWriter(w)
	for _, name := range names {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o555, Size: int64(len(content))}
		if err := files.WriteHeader(header); err != nil {
			return err
		}
		if _, err := files.Write(content); err != nil {
			return err
		}
	}
	return files.Close()
}

// newKey creates a key as described in docs/security/verify.md, and returns Sigstore's
// verifier for it.
func newKey(t *testing.T) (path string, verifier signature.Verifier) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	path = filepath.Join(t.TempDir(), "release.key")
	must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	public, err := cryptoutils.MarshalPublicKeyToPEM(key.Public())
	must(t, err)
	parsed, err := cryptoutils.UnmarshalPEMToPublicKey(public)
	must(t, err)
	verifier, err = signature.LoadVerifier(parsed, crypto.SHA256)
	must(t, err)
	return path, verifier
}

// Sigstore's library verifies the signatures of unchanged files only.
func TestFilesAreSigned(t *testing.T) {
	dist := newDist(t)
	must(t, (&options{dist: dist}).run(t.Context()))
	key, verifier := newKey(t)
	must(t, (&options{dist: dist, key: key}).run(t.Context()))

	sums, err := os.ReadFile(filepath.Join(dist, checksumsFile))
	must(t, err)
	encoded, err := os.ReadFile(filepath.Join(dist, checksumsFile+".sig"))
	must(t, err)
	sig, err := base64.StdEncoding.DecodeString(string(encoded))
	must(t, err)
	must(t, verifier.VerifySignature(bytes.NewReader(sig), bytes.NewReader(sums)))
	if verifier.VerifySignature(bytes.NewReader(sig), bytes.NewReader(append([]byte("0"), sums...))) == nil {
		t.Error("the signature is valid for other checksums")
	}
	_, other := newKey(t)
	if other.VerifySignature(bytes.NewReader(sig), bytes.NewReader(sums)) == nil {
		t.Error("the signature is valid for another key")
	}
	check := exec.Command("sha256sum", "--check", "--strict", checksumsFile)
	check.Dir = dist
	if output, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, output)
	}
	named := map[string]bool{}
	for line := range strings.Lines(string(sums)) {
		named[strings.Fields(line)[1]] = true
	}
	want := []string{
		"agent-image-digest.txt", "image-digest.txt", "install.yaml", "kubectl-gate_linux_amd64.cdx.json", "kubectl-gate_linux_amd64.tar.gz",
		"nodegate-agent_linux_amd64.cdx.json", "nodegate-agent_linux_arm64.cdx.json", "nodegate-hold_linux_amd64.cdx.json", "nodegate-hold_linux_arm64.cdx.json",
		"nodegate_linux_amd64.cdx.json", "nodegate_linux_arm64.cdx.json",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(named))); diff != "" {
		t.Errorf("checksums (-want +got):\n%s", diff)
	}
}

// replaceImage returns a function that replaces an image by an empty one.
func replaceImage(dir string) func(*testing.T, string) error {
	return func(t *testing.T, dist string) error {
		path, err := layout.Write(filepath.Join(dist, dir), empty.Index)
		must(t, err)
		return path.AppendIndex(mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	}
}

// Files that changed after the build are not signed.
func TestTamperedReleaseIsNotSigned(t *testing.T) {
	key, _ := newKey(t)
	for what, test := range map[string]struct {
		tamper func(t *testing.T, dist string) error
		want   string
	}{
		"a file": {func(_ *testing.T, dist string) error {
			return os.WriteFile(filepath.Join(dist, "install.yaml"), []byte("kind: Other\n"), 0o644)
		}, "do not match checksums.txt"},
		"one more file": {func(_ *testing.T, dist string) error {
			return os.WriteFile(filepath.Join(dist, "more.yaml"), nil, 0o644)
		}, "do not match checksums.txt"},
		"no checksums":        {func(_ *testing.T, dist string) error { return os.Remove(filepath.Join(dist, checksumsFile)) }, "make release"},
		"another image":       {replaceImage("image"), " image-digest.txt has sha256:"},
		"another agent image": {replaceImage("agent-image"), "agent-image-digest.txt has sha256:"},
		"a layer": {func(t *testing.T, dist string) error {
			blobs, err := filepath.Glob(filepath.Join(dist, "image", "blobs", "sha256", "*"))
			must(t, err)
			for _, blob := range blobs {
				content, err := os.ReadFile(blob)
				must(t, err)
				if len(content) > 100_000 { // others are manifests
					content[len(content)/2] ^= 1
					must(t, os.WriteFile(blob, content, 0o644))
				}
			}
			return nil
		}, "validating the image"},
	} {
		t.Run(what, func(t *testing.T) {
			dist := newDist(t)
			must(t, (&options{dist: dist}).run(t.Context()))
			must(t, test.tamper(t, dist))
			server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
			t.Cleanup(server.Close)
			image := strings.TrimPrefix(server.URL, "http://") + "/nodegate:v1"
			if err := (&options{dist: dist, key: key, image: image}).run(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want an error with %q", err, test.want)
			}
			ref, err := name.NewTag(image)
			must(t, err)
			if _, err := remote.Head(ref); err == nil {
				t.Error("the image was pushed")
			}
		})
	}
}
