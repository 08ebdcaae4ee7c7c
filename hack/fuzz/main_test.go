// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The affected targets are those of the changed package, and of all packages that
// depend on it.
func TestAffected(t *testing.T) {
	of := func(path string, change func(*pkg)) pkg {
		p := pkg{ImportPath: path, Dir: "/src/" + path}
		p.Module.Dir = "/src"
		if change != nil {
			change(&p)
		}
		return p
	}
	all := []pkg{
		of("core", nil),
		of("core/inner", nil),
		of("shell", func(p *pkg) { p.Deps = []string{"core", "fmt"} }),
		of("tested", func(p *pkg) { p.TestImports = []string{"shell"} }),
		of("outside", func(p *pkg) { p.XTestImports = []string{"core/inner"} }),
	}
	for name, c := range map[string]struct {
		changed []string
		want    string
	}{
		"nothing":                   {nil, ""},
		"a page":                    {[]string{"README.md", "docs/a.md"}, ""},
		"a package":                 {[]string{"core/a.go"}, "core shell tested"},
		"one below it":              {[]string{"core/inner/a.go"}, "core/inner outside"},
		"data of a test":            {[]string{"shell/testdata/fuzz/FuzzA/1"}, "shell tested"},
		"a name that begins alike":  {[]string{"core2/a.go"}, ""},
		"the modules":               {[]string{"go.sum"}, "core core/inner shell tested outside"},
		"a package that is a leaf":  {[]string{"tested/a_test.go"}, "tested"},
		"two packages of different": {[]string{"outside/a.go", "tested/a.go"}, "tested outside"},
	} {
		var got []string
		for _, p := range affected(all, c.changed) {
			got = append(got, p.ImportPath)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}

// Every changed file has its own name, also if git would quote it.
func TestChanged(t *testing.T) {
	t.Chdir(t.TempDir())
	git := func(arguments ...string) {
		t.Helper()
		identity := []string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"}
		if out, err := exec.Command("git", append(identity, arguments...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", arguments, err, out)
		}
	}
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "base")
	git("branch", "base")
	want := []string{"core/testdata/two words", "größe.go"}
	for _, file := range want {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git("add", ".")
	git("commit", "-q", "-m", "change")
	if got, err := changed("base"); err != nil || !slices.Equal(got, want) {
		t.Errorf("changed: %q, %v; want %q", got, err, want)
	}
	if got, err := changed("HEAD"); err != nil || len(got) > 0 {
		t.Errorf("without a change: %q, %v", got, err)
	}
}

// All declared targets are found, and nothing else.
func TestTargets(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"a_test.go": "func FuzzA(f *testing.F) {\n}\n\nfunc FuzzB(f *testing.F)   { fuzz(f) }\n",
		"x_test.go": "func FuzzC(other *testing.F) {\n// func FuzzNone(f *testing.F)\nfunc Fuzzy(t *testing.T) {}\nfunc fuzz(f *testing.F) {}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := pkg{Dir: dir, TestGoFiles: []string{"a_test.go"}, XTestGoFiles: []string{"x_test.go"}}
	p.Module.Dir = filepath.Dir(dir)
	got, err := targetsOf([]pkg{p})
	at := "./" + filepath.Base(dir)
	if want := []target{{at, "FuzzA"}, {at, "FuzzB"}, {at, "FuzzC"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("found %v, %v; want %v", got, err, want)
	}
}
