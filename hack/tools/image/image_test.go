// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// built builds an image of a small program for all platforms.
func built(t *testing.T, o options) (out string) {
	t.Helper()
	source := t.TempDir()
	for file, text := range map[string]string{
		"go.mod":            "module example.com/hello\n",
		"cmd/hello/main.go": "package main\n\nimport \"runtime/debug\"\n\nfunc main() { i, _ := debug.ReadBuildInfo(); println(\"hello\", i.Main.Version) }\n",
		"cmd/world/main.go": "package main\n\nfunc main() {}\n",
	} {
		path := filepath.Join(source, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, variable := range os.Environ() {
		if key, _, _ := strings.Cut(variable, "="); strings.HasPrefix(key, "GIT_") {
			t.Setenv(key, "") // restores it after the test
			os.Unsetenv(key)
		}
	}
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_COMMITTER_DATE", "2026-11-20T12:00:00Z")
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "x", "--date", "2026-11-20T12:00:00Z"}, {"tag", "v1.2.3"}} {
		git := exec.Command("git", args...)
		git.Dir = source
		if output, err := git.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args[0], err, output)
		}
	}
	o.source, o.platforms, o.out = source, "linux/amd64,linux/arm64", filepath.Join(t.TempDir(), "image")
	o.packages = cmp.Or(o.packages, "./cmd/hello")
	o.repository, o.name = "https://example.com/hello", "example.com/hello"
	if err := o.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return o.out
}

// Hooks of git run with variables that select a repository.
func TestBuiltInAHook(t *testing.T) {
	unused := filepath.Join(t.TempDir(), "unused")
	t.Setenv("GIT_DIR", unused)
	built(t, options{})
	if _, err := os.Stat(unused); err == nil {
		t.Error("the test has used another repository")
	}
}

// indexOf returns the only index of a layout.
func indexOf(t *testing.T, dir string) v1.ImageIndex {
	t.Helper()
	path, err := layout.FromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := all.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%+v, %v", manifest, err)
	}
	if got := manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; got != "v1.2.3" {
		t.Errorf("the reference is %q", got)
	}
	index, err := all.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// assertName checks the name that containerd gives the image when it imports the archive.
func assertName(t *testing.T, dir, want string) {
	t.Helper()
	index, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.ReplaceAll(string(index), " ", ""), `"io.containerd.image.name":"`+want+`"`) {
		t.Errorf("the index does not have the name %s: %s", want, index)
	}
}

func TestImage(t *testing.T) {
	out := built(t, options{}) // with the version of the git tag
	assertName(t, out, "example.com/hello:v1.2.3")
	index := indexOf(t, out)
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 2 {
		t.Fatalf("%+v, %v", manifest, err)
	}
	for i, architecture := range []string{"amd64", "arm64"} {
		image, err := index.Image(manifest.Manifests[i].Digest)
		if err != nil {
			t.Fatal(err)
		}
		file, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		c := file.Config
		if p := manifest.Manifests[i].Platform; p.String() != "linux/"+architecture || file.Architecture != architecture || file.OS != "linux" {
			t.Errorf("image %d has the platform %s, and its configuration %s/%s", i, p, file.OS, file.Architecture)
		}
		if c.User != "65532:65532" || strings.Join(c.Entrypoint, " ") != "/hello" || len(c.Cmd) > 0 || len(c.Env) > 0 {
			t.Errorf("entrypoint %v, command %v, environment %v, user %s", c.Entrypoint, c.Cmd, c.Env, c.User)
		}
		for label, want := range map[string]string{
			"version": "v1.2.3", "created": "2026-11-20T12:00:00Z", "source": "https://example.com/hello", "licenses": "Apache-2.0",
		} {
			if got := c.Labels["org.opencontainers.image."+label]; got != want {
				t.Errorf("label %s is %q, want %q", label, got, want)
			}
		}
		if len(c.Labels["org.opencontainers.image.revision"]) != 40 {
			t.Errorf("labels %v", c.Labels)
		}
		program := only(t, image)
		if architecture == runtime.GOARCH {
			if output, err := exec.Command(program).CombinedOutput(); err != nil || string(output) != "hello v1.2.3\n" {
				t.Errorf("the program printed %q (%v)", output, err)
			}
		}
	}
}

// onlyLayer returns the files of the only layer of an image.
func onlyLayer(t *testing.T, image v1.Image) *tar.Reader {
	t.Helper()
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { content.Close() })
	return tar.NewReader(content)
}

// only extracts the only file of an image.
func only(t *testing.T, image v1.Image) string {
	t.Helper()
	r := onlyLayer(t, image)
	header, err := r.Next()
	if err != nil || header.Name != "hello" || header.Mode != 0o555 || header.Uid != 0 {
		t.Fatalf("%+v, %v", header, err)
	}
	program, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "hello")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (&compiled{dir: filepath.Dir(path), names: []string{"hello"}}).check(); err != nil {
		t.Error(err)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("the layer has another file (%v)", err)
	}
	return path
}

// The same source results in the same archive, in any directory.
func TestImageIsReproducible(t *testing.T) {
	first, err := os.ReadFile(built(t, options{version: "v1.2.3"}) + ".tar")
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(built(t, options{version: "v1.2.3"}) + ".tar")
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("two builds differ (%v)", err)
	}
}

// The settings of the builder, in the environment or by 'go env -w', change nothing.
func TestImageIgnoresGoSettings(t *testing.T) {
	build := func() []byte {
		t.Helper()
		archive, err := os.ReadFile(built(t, options{version: "v1.2.3"}) + ".tar")
		if err != nil {
			t.Fatal(err)
		}
		return archive
	}
	want := build()
	settings := map[string]string{"GOAMD64": "v2", "GOARM64": "v8.1", "GOEXPERIMENT": "nogreenteagc", "GOFIPS140": "latest", "GOFLAGS": "-gcflags=-N"}
	for name, value := range settings {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "env")
			if err := os.WriteFile(file, []byte(name+"="+value+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("GOENV", file)
			t.Setenv(name, "") // as if it were not set
			if !bytes.Equal(build(), want) {
				t.Error("with 'go env -w', the image differs")
			}
			t.Setenv(name, value)
			if !bytes.Equal(build(), want) {
				t.Error("with the variable in the environment, the image differs")
			}
		})
	}
}

// An image may have several programs. It runs the first one.
func TestSeveralPrograms(t *testing.T) {
	manifest, err := indexOf(t, built(t, options{version: "v1.2.3", packages: "./cmd/world,./cmd/hello"})).IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 2 {
		t.Errorf("the image is for %d platforms", len(manifest.Manifests))
	}
	c := compiled{dir: t.TempDir(), names: []string{"world", "hello"}}
	for _, name := range c.names {
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	image, err := c.image(&release{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil || !slices.Equal(config.Config.Entrypoint, []string{"/world"}) {
		t.Errorf("the image runs %v, %v", config.Config.Entrypoint, err)
	}
	for r := onlyLayer(t, image); len(c.names) > 0; c.names = c.names[1:] {
		header, err := r.Next()
		if err != nil || header.Name != c.names[0] || header.Mode != 0o555 {
			t.Fatalf("%+v, %v", header, err)
		}
	}
}

func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New())
	t.Cleanup(server.Close)
	image := strings.TrimPrefix(server.URL, "http://") + "/nodegate:v1.2.3"
	out := built(t, options{version: "v1.2.3", push: image})
	assertName(t, out, image)
	want, err := indexOf(t, out).Digest()
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := remote.Head(ref); err != nil || got.Digest != want {
		t.Errorf("the registry has %v, want %s (%v)", got, want, err)
	}
}

// A program that needs a dynamic linker could not start in the image.
func TestDynamicProgramIsRejected(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip(err)
	}
	if err := (&compiled{dir: filepath.Dir(git), names: []string{"git"}}).check(); err == nil || !strings.Contains(err.Error(), "not static") {
		t.Errorf("got %v", err)
	}
}

// An error contains git's reason, for example that the directory belongs to another user.
func TestErrorsOfGitHaveTheirReason(t *testing.T) {
	t.Setenv("GIT_DIR", filepath.Join(t.TempDir(), "missing"))
	err := (&options{source: t.TempDir(), platforms: "linux/amd64"}).run(t.Context())
	if want := "running git log: exit status 128: fatal: not a git repository"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}
