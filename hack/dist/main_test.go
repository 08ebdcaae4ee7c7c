// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// plugin is the format of krew's manifests (krew's pkg/index, and its
// validation).
type plugin struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string `json:"version"`
		Homepage         string `json:"homepage"`
		ShortDescription string `json:"shortDescription"`
		Description      string `json:"description"`
		Caveats          string `json:"caveats"`
		Platforms        []struct {
			Selector struct {
				MatchLabels map[string]string `json:"matchLabels"`
			} `json:"selector"`
			URI    string `json:"uri"`
			SHA256 string `json:"sha256"`
			Bin    string `json:"bin"`
			Files  []struct {
				From string `json:"from"`
				To   string `json:"to"`
			} `json:"files"`
		} `json:"platforms"`
	} `json:"spec"`
}

// The manifest has every field that krew requires and no unknown ones. It names
// the existing archives, with their contents.
func TestManifest(t *testing.T) {
	t.Chdir("../..")
	out := t.TempDir()
	build := func(_ context.Context, p platform) ([]byte, error) { return []byte(p.OS + p.Arch), nil }
	if err := run(t.Context(), "v0.1.0", out, build); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "gate.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var p plugin
	if err := yaml.UnmarshalStrict(text, &p); err != nil {
		t.Fatal(err)
	}
	s := p.Spec
	if p.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || p.Kind != "Plugin" || p.Metadata.Name != "gate" ||
		s.Version != "v0.1.0" || s.ShortDescription == "" || len(s.ShortDescription) > 50 || s.Description == "" || s.Homepage == "" {
		t.Errorf("manifest:\n%s", text)
	}
	if len(s.Platforms) != len(platforms) {
		t.Fatalf("%d platforms, want %d", len(s.Platforms), len(platforms))
	}
	for i, got := range s.Platforms {
		archive, err := os.ReadFile(filepath.Join(out, path.Base(got.URI)))
		if err != nil {
			t.Fatal(err)
		}
		labels := got.Selector.MatchLabels
		if labels["os"] != platforms[i].OS || labels["arch"] != platforms[i].Arch || got.SHA256 != fmt.Sprintf("%x", sha256.Sum256(archive)) {
			t.Errorf("platform %d is %+v", i, got)
		}
		content := unpack(t, archive)
		for _, f := range got.Files {
			if f.To != "." || content[f.From] == "" {
				t.Errorf("%s: the manifest copies %q to %q, of %d files", got.URI, f.From, f.To, len(content))
			}
		}
		if content[got.Bin] != labels["os"]+labels["arch"] {
			t.Errorf("%s: %s contains %q", got.URI, got.Bin, content[got.Bin])
		}
	}
}

func unpack(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	zipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	content := map[string]string{}
	for files := tar.NewReader(zipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return content
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		content[header.Name] = string(data)
	}
}

// The settings of the builder, in the environment or by 'go env -w', have no effect on programs.
func TestGoSettingsAreIgnored(t *testing.T) {
	const others = "GOAMD64=v3 GOARM64=v9.0 GOEXPERIMENT=nogreenteagc GOFIPS140=latest GOFLAGS=-gcflags=-N CGO_ENABLED=1"
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(others, " ", "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, set := range map[string]func(variable, value string){
		"go env -w":   func(variable, _ string) { t.Setenv(variable, "") },
		"environment": t.Setenv,
	} {
		t.Setenv("GOENV", file)
		for setting := range strings.FieldsSeq(others) {
			set(strings.SplitN(setting, "=", 2)[0], strings.SplitN(setting, "=", 2)[1])
		}
		command := exec.CommandContext(t.Context(), "go", "env", "GOARCH", "GOAMD64", "GOARM64", "GOFIPS140", "GOFLAGS", "CGO_ENABLED", "GOEXPERIMENT")
		command.Env = environment(platform{OS: "linux", Arch: "arm64"})
		output, err := command.Output()
		if got := strings.Fields(string(output)); err != nil || strings.Join(got, " ") != "arm64 v1 v8.0 off -mod=readonly 0 ," {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestRejectedVersions(t *testing.T) {
	for _, version := range []string{"", "0.1.0", "v1", "v1.2.3 ", "main"} {
		if err := run(t.Context(), version, t.TempDir(), nil); err == nil {
			t.Errorf("%q is accepted as a version", version)
		}
	}
}
