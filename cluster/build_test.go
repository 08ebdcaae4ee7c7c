// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestMissingGo(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv(assetsVariable, "")
	t.Setenv(cacheVariable, t.TempDir())
	_, err := Build(t.Context(), Options{})
	if err == nil {
		t.Fatal("built without Go")
	}
	for _, want := range []string{"building etcd", "no go command found", "install Go", assetsVariable} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in the error: %v", want, err)
		}
	}
}

func TestAssetsAreUsed(t *testing.T) {
	built, err := Build(t.Context(), Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	assets := t.TempDir()
	for _, component := range []Component{Etcd, APIServer} {
		if err := os.Symlink(built[component], filepath.Join(assets, string(component))); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(assetsVariable, assets)
	binaries, err := Build(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, component := range Components() {
		want := built[component]
		if component == Etcd || component == APIServer {
			want = filepath.Join(assets, string(component))
		}
		if binaries[component] != want {
			t.Errorf("%s is %s, want %s", component, binaries[component], want)
		}
	}
	c, err := Start(t.Context(), Options{Components: []Component{APIServer}})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.process(APIServer).command.Path; got != binaries[APIServer] {
		t.Errorf("%s runs, want %s", got, binaries[APIServer])
	}
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
}

// Ready-made programs are of one version: an older one that is asked for is
// built all the same.
func TestAssetsAreOfOneVersion(t *testing.T) {
	dir := t.TempDir()
	for _, component := range []Component{Etcd, APIServer} {
		if err := os.WriteFile(filepath.Join(dir, string(component)), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(assetsVariable, dir)
	for i, version := range append(Versions(), "") {
		found, err := assets(&Options{KubernetesVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		newest := i == 0 || version == ""
		if found[Etcd] == "" || (found[APIServer] != "") != newest {
			t.Errorf("version %q takes %v from the directory", version, found)
		}
	}
}

func TestMissingAssetsDirectory(t *testing.T) {
	t.Setenv(assetsVariable, filepath.Join(t.TempDir(), "nowhere"))
	if _, err := Build(t.Context(), Options{}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), assetsVariable) {
		t.Errorf("got %v, want an error about $%s", err, assetsVariable)
	}
}

func TestSimultaneousBuilds(t *testing.T) {
	t.Setenv(cacheVariable, t.TempDir())
	etcd, err := etcdModule()
	if err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	progress := newProgress(&output)
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			files, err := etcd.build(t.Context(), []string{"etcd"}, progress)
			if err != nil {
				t.Error(err)
			} else if info, err := os.Stat(files["etcd"]); err != nil || info.Mode()&0o111 == 0 {
				t.Errorf("%s: %v, %v", files["etcd"], info, err)
			}
		})
	}
	wait.Wait()
	if built := strings.Count(output.String(), "built etcd"); built != 1 {
		t.Errorf("built %d times, want once:\n%s", built, output.String())
	}
	root, _ := cacheRoot()
	if left, _ := filepath.Glob(filepath.Join(root, "*", "work")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCancelledBuild(t *testing.T) {
	t.Setenv(cacheVariable, t.TempDir())
	etcd, err := etcdModule()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	// Cancels it as soon as the compiler is being started.
	_, err = etcd.build(ctx, []string{"etcd"}, newProgress(writerFunc(func([]byte) { cancel() })))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context was cancelled", err)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(data []byte) (int, error) {
	f(data)
	return len(data), nil
}

func TestFollowCompiler(t *testing.T) {
	output := "go: downloading example.com/m v1.2.3\nexample.com/m/a\nexample.com/m/b\n# example.com/m/c\nc.go:1:2: undefined: x\n"
	state := followCompiler(strings.NewReader(output), func(compilerState) {})
	if got, want := state.String(), "1 modules downloaded, 2 packages compiled"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := strings.Join(state.messages, "|"); got != "# example.com/m/c|c.go:1:2: undefined: x" {
		t.Errorf("messages: %q", got)
	}
}

// TestFailedBuild builds a package that no module has.
func TestFailedBuild(t *testing.T) {
	t.Setenv(cacheVariable, t.TempDir())
	m := &module{
		name: "broken", version: "v0.0.0",
		mod:      []byte("module example.com/broken\n"),
		packages: map[string]string{"broken": "example.com/broken/nowhere"},
	}
	_, err := m.build(t.Context(), []string{"broken"}, nil)
	if err == nil || !strings.Contains(err.Error(), "building broken: go build: exit status 1") ||
		!strings.Contains(err.Error(), "example.com/broken/nowhere") {
		t.Errorf("got %v, want an error that shows what the compiler said", err)
	}
}

func TestPrune(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"etcd-v1-used", "etcd-v1-unused", "unrelated"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
		past := time.Now().Add(-2 * cachePeriod)
		if err := os.Chtimes(filepath.Join(root, name), past, past); err != nil {
			t.Fatal(err)
		}
	}
	markUsed(filepath.Join(root, "etcd-v1-used"))
	prune(root)
	left, _ := filepath.Glob(filepath.Join(root, "*"))
	if len(left) != 2 || filepath.Base(left[0]) != "etcd-v1-used" || filepath.Base(left[1]) != "unrelated" {
		t.Errorf("left in the cache: %v", left)
	}
}

func TestModules(t *testing.T) {
	known := Versions()
	if len(known) == 0 {
		t.Fatal("no Kubernetes version is known")
	}
	for i, version := range known {
		if i > 0 && minor(known[i-1]) <= minor(version) {
			t.Errorf("%v is not newest first", known)
		}
		m, err := kubernetesModule(version)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(m.version, "v"+version+".") {
			t.Errorf("module %s has Kubernetes %s", m.name, m.version)
		}
		if !regexp.MustCompile(`^kubernetes-v1\.\d+\.\d+-[0-9a-f]{12}$`).MatchString(m.key()) {
			t.Errorf("key %q", m.key())
		}
		changed := *m
		changed.ldflags += " -X x=y"
		if changed.key() == m.key() {
			t.Error("other flags have the same key")
		}
	}
}

func TestProgress(t *testing.T) {
	var output bytes.Buffer
	plain := newProgress(&output)
	plain.line("one")
	plain.update("too soon")
	plain.last = time.Now().Add(-plainInterval)
	plain.update("two")
	if got := output.String(); got != "one\ntwo\n" {
		t.Errorf("plain: %q", got)
	}
	output.Reset()
	terminal := &progress{writer: &output, terminal: true}
	terminal.update("one")
	terminal.update("two")
	terminal.line("three")
	terminal.line("four")
	terminal.update("five")
	terminal.clear()
	terminal.clear()
	if got := output.String(); got != "one\r\x1b[Ktwo\r\x1b[Kthree\nfour\nfive\r\x1b[K" {
		t.Errorf("terminal: %q", got)
	}
	newProgress(nil).line("nobody listens")
}
