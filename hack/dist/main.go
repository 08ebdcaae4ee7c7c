// SPDX-License-Identifier: Apache-2.0

// Command dist builds kubectl-gate for each platform of kubectl, packs it, and
// writes the manifest from which krew installs it.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"text/template"
	"time"
)

// platforms lists operating systems and architectures, by the names in Go and
// krew.
var platforms = []platform{
	{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"},
	{OS: "darwin", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"},
	{OS: "windows", Arch: "amd64"},
}

// platform is a platform with an archive.
type platform struct {
	OS, Arch string
	// Bin is the program's name there, and Archive the archive's.
	Bin, Archive string
	SHA256       string
}

//go:embed gate.yaml.tmpl
var manifest string

// versions matches the versions that krew accepts: semantic, with a "v".
var versions = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func main() {
	version := flag.String("version", "", "the version, such as v0.1.0")
	out := flag.String("out", "dist", "the directory to write")
	flag.Parse()
	if err := run(context.Background(), *version, *out, compile); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// run writes the archives and the manifest. An archive contains the result of
// build for its platform.
func run(ctx context.Context, version, out string, build func(ctx context.Context, p platform) ([]byte, error)) error {
	if !versions.MatchString(version) {
		return fmt.Errorf("%q is not a version such as v0.1.0 (make dist-plugin VERSION=v0.1.0)", version)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("creating the output directory: %w", err)
	}
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return fmt.Errorf("reading the license: %w", err)
	}
	var built []platform
	for _, p := range platforms {
		p.Bin, p.Archive = "kubectl-gate", fmt.Sprintf("kubectl-gate_%s_%s.tar.gz", p.OS, p.Arch)
		if p.OS == "windows" {
			p.Bin += ".exe"
		}
		program, err := build(ctx, p)
		if err != nil {
			return fmt.Errorf("building for %s/%s: %w", p.OS, p.Arch, err)
		}
		archive, err := pack(file{p.Bin, 0o755, program}, file{"LICENSE", 0o644, license})
		if err != nil {
			return fmt.Errorf("packing %s: %w", p.Archive, err)
		}
		sum := sha256.Sum256(archive)
		p.SHA256 = hex.EncodeToString(sum[:])
		if err := os.WriteFile(filepath.Join(out, p.Archive), archive, 0o644); err != nil {
			return fmt.Errorf("writing an archive: %w", err)
		}
		built = append(built, p)
	}
	var text bytes.Buffer
	t := template.Must(template.New("gate.yaml").Option("missingkey=error").Parse(manifest))
	if err := t.Execute(&text, map[string]any{"Version": version, "Platforms": built}); err != nil {
		return fmt.Errorf("writing the manifest: %w", err)
	}
	if err := os.WriteFile(filepath.Join(out, "gate.yaml"), text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the manifest: %w", err)
	}
	return nil
}

// settings are those settings of Go that affect a program, which would otherwise be the
// builder's. Go uses the value of 'go env -w' if a variable is empty, so none is. A comma is an
// empty list of experiments. hack/tools/image has the same settings.
var settings = []string{
	"CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=,", "GOFIPS140=off", "GOFLAGS=-mod=readonly", "GOWORK=off",
}

// environment returns the environment of the compiler.
func environment(p platform) []string {
	return slices.Concat(os.Environ(), settings, []string{"GOOS=" + p.OS, "GOARCH=" + p.Arch})
}

// compile builds the program for a platform, reproducibly.
func compile(ctx context.Context, p platform) ([]byte, error) {
	dir, err := os.MkdirTemp("", "dist")
	if err != nil {
		return nil, fmt.Errorf("creating a temporary directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, p.Bin)
	command := exec.CommandContext(ctx, "go", "build", "-buildvcs=true", "-trimpath", "-ldflags=-s -w", "-o", path, "./cmd/kubectl-gate")
	command.Env = environment(p)
	if output, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, output)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the program: %w", err)
	}
	return program, nil
}

type file struct {
	name string
	mode int64
	data []byte
}

// pack packs files. The same files result in the same bytes.
func pack(files ...file) ([]byte, error) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	archive := tar.NewWriter(zipped)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	if err := zipped.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
