// SPDX-License-Identifier: Apache-2.0

package components

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// buildOnly sets up an environment with only Go and an empty cache.
func buildOnly(t *testing.T) {
	t.Helper()
	t.Setenv(assetsVariable, "")
	t.Setenv(cacheVariable, t.TempDir())
	path := t.TempDir()
	for _, program := range []string{"go", "git", "gcc", "cc", "as", "ld"} {
		link(t, program, path)
	}
	t.Setenv("PATH", path)
}

func TestMissingGo(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv(assetsVariable, "")
	t.Setenv(cacheVariable, t.TempDir())
	_, err := Build(t.Context(), Options{Components: []Component{Etcd}})
	if err == nil {
		t.Fatal("built without Go")
	}
	for _, want := range []string{"building etcd", "no go command found", "install Go", assetsVariable} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in the error: %v", want, err)
		}
	}
}

// Several processes that need the same program build it once. This test uses
// several goroutines instead.
func TestSimultaneousBuilds(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles etcd: run without -short")
	}
	buildOnly(t)
	var output lockedBuffer
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			files, err := Build(t.Context(), Options{Components: []Component{Etcd}, Progress: &output})
			if err != nil {
				t.Error(err)
			} else if info, err := os.Stat(files[Etcd]); err != nil || info.Mode()&0o111 == 0 {
				t.Errorf("%s: %v, %v", files[Etcd], info, err)
			}
		})
	}
	wait.Wait()
	if built := strings.Count(output.String(), "built etcd"); built != 1 {
		t.Errorf("built %d times, want once:\n%s", built, output.String())
	}
	if left, _ := filepath.Glob(filepath.Join(os.Getenv(cacheVariable), "*", "work")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// lockedBuffer is a buffer for several goroutines. It does not embed a Buffer, whose
// WriteString would be called without the lock.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(data)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestCancelledBuild(t *testing.T) {
	buildOnly(t)
	ctx, cancel := context.WithCancel(t.Context())
	// Cancel the build at its first output.
	_, err := Build(ctx, Options{Components: []Component{Etcd}, Progress: writerFunc(func([]byte) { cancel() })})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(data []byte) (int, error) {
	f(data)
	return len(data), nil
}

// source creates a module with one program.
func source(t *testing.T, program string) Source {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"go.mod": "module example.com/m\n\ngo 1.26\n", "main.go": program} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Source{Name: "m", Dir: dir, Output: filepath.Join(dir, "bin") + "/", Packages: []string{"."}}
}

func TestSources(t *testing.T) {
	buildOnly(t)
	var output bytes.Buffer
	m := source(t, "package main\n\nfunc main() {}\n")
	if _, err := Build(t.Context(), Options{Sources: []Source{m}, Progress: &output}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(m.Output, "m")); err != nil {
		t.Error(err)
	}
	if text := output.String(); !strings.Contains(text, "building m: 0 of ") || !strings.Contains(text, "built m in ") {
		t.Errorf("progress is %q", text)
	}
}

func TestFailedBuilds(t *testing.T) {
	buildOnly(t)
	for name, test := range map[string]struct {
		program string
		change  func(*Source)
		want    string
	}{
		"a mistake": {
			program: "package main\n\nfunc main() { x }\n",
			want:    "undefined: x",
		},
		"no such package": {
			program: "package main\n\nfunc main() {}\n",
			change:  func(s *Source) { s.Packages = []string{"./nowhere"} },
			want:    "nowhere",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := source(t, test.program)
			if test.change != nil {
				test.change(&m)
			}
			_, err := Build(t.Context(), Options{Sources: []Source{m}})
			if err == nil || !strings.Contains(err.Error(), "building m: go ") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want one with the compiler's message %q", err, test.want)
			}
		})
	}
}

func TestUnknown(t *testing.T) {
	for _, opts := range []Options{
		{Components: []Component{"kube-proxy"}},
		{KubernetesVersion: "1.1"},
	} {
		if _, err := Build(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "unknown") || !strings.Contains(err.Error(), "must be one of") {
			t.Errorf("%+v: error is %v, want one with the known values", opts, err)
		}
	}
	t.Setenv(VersionVariable, "1.1")
	if _, err := Build(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), `unknown Kubernetes version "1.1"`) {
		t.Errorf("with $%s=1.1 the error is %v", VersionVariable, err)
	}
}

func TestFollow(t *testing.T) {
	output := "go: downloading example.com/m v1.2.3\nexample.com/m/a\nexample.com/m/b\n# example.com/m/c\nc.go:1:2: undefined: x\n"
	var compiled []string
	log := buildLog{compiled: func(pkg string) { compiled = append(compiled, pkg) }}
	follow(strings.NewReader(output), log.add, func() {})
	if got := strings.Join(compiled, " "); got != "example.com/m/a example.com/m/b" || log.packages != 2 {
		t.Errorf("compiled %q, %d packages", got, log.packages)
	}
	if got := strings.Join(log.messages, "|"); got != "# example.com/m/c|c.go:1:2: undefined: x" {
		t.Errorf("messages: %q", got)
	}
}

func TestEstimate(t *testing.T) {
	var e estimate
	e.add(map[string]int64{"a": 1_000_000, "b": 2_000_000})
	e.add(map[string]int64{"b": 2_000_000, "c": 1_000_000}) // b is compiled once
	if e.total != 4_000_000 {
		t.Errorf("total is %d", e.total)
	}
	before := e.left(0)
	e.compiled("a")
	e.compiled("other") // not added before
	if e.done != 1_000_000 || len(e.packages) != 2 || before <= 0 {
		t.Errorf("%+v, left before: %s", e, before)
	}
	// A machine that has done no more than this in an hour is slow.
	if slow := e.left(time.Hour); slow <= before {
		t.Errorf("left after an hour: %s, before: %s", slow, before)
	}
	e.finish("b")
	e.finish("b")
	e.finish("c")
	if got := e.left(time.Minute); got != 0 {
		t.Errorf("left in the end: %s", got)
	}
	if got, want := e.text(time.Minute), "2 of 4 packages compiled, linking"; got != want {
		t.Errorf("text in the end: %q, want %q", got, want)
	}
	if got, want := e.summary(time.Minute), "compiled 2 packages in 1m0s, none of them twice"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	e.compiled("a")
	if got, want := e.summary(time.Minute), "compiled 2 packages in 1m0s, 1 of them more than once: a"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRound(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 14 * time.Second: "10s", 89 * time.Second: "1m30s", 100 * time.Second: "2 minutes", 7 * time.Minute: "7 minutes",
	} {
		if got := round(d); got != want {
			t.Errorf("%s is %q, want %q", d, got, want)
		}
	}
}

func TestTuning(t *testing.T) {
	for processors, want := range map[int][]string{1: {"GOGC=200", "GOMAXPROCS=1"}, 4: {"GOGC=200", "GOMAXPROCS=1"}, 8: {"GOGC=200"}} {
		if got := tuning(processors); !slices.Equal(got, want) {
			t.Errorf("%d processors: %v, want %v", processors, got, want)
		}
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
