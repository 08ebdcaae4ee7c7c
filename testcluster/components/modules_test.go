// SPDX-License-Identifier: Apache-2.0

package components

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestModules(t *testing.T) {
	known := Versions()
	if len(known) == 0 {
		t.Fatal("no Kubernetes version is known")
	}
	for i, version := range known {
		if i > 0 && minorNumber(known[i-1]) <= minorNumber(version) {
			t.Errorf("%v is not newest first", known)
		}
		m, err := moduleOf(version)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(m.version, "v"+version+".") {
			t.Errorf("the module of %s has Kubernetes %s", version, m.version)
		}
		if !regexp.MustCompile(`^root/kubernetes-v1\.\d+\.\d+-[0-9a-f]{12}$`).MatchString(m.dir("root")) {
			t.Errorf("directory %q", m.dir("root"))
		}
		changed := *m
		changed.sum = append(slices.Clone(m.sum), '\n')
		if changed.dir("root") == m.dir("root") {
			t.Error("modules with different sources have the same directory")
		}
	}
}

// The environment variable applies if no version is specified.
func TestDefaultVersion(t *testing.T) {
	newest, oldest := Versions()[0], Versions()[len(Versions())-1]
	for variable, want := range map[string]string{"": newest, oldest: oldest, "1.1": "1.1"} {
		t.Setenv(VersionVariable, variable)
		if got := DefaultVersion(); got != want {
			t.Errorf("with %q, it is %q, want %q", variable, got, want)
		}
	}
}

func TestBefore(t *testing.T) {
	for _, versions := range [][2]string{{"1.34", "1.35"}, {"1.9", "1.10"}} {
		older, newer := versions[0], versions[1]
		if !Before(older, newer) || Before(newer, older) || Before(older, older) {
			t.Errorf("Before(%s, %s) is wrong", older, newer)
		}
	}
}

// A package is compiled only once for nodegate and the control plane if both use
// the same version of it and of all its dependencies. Versions of other modules
// do not matter.
func TestSharedModulesHaveOneVersion(t *testing.T) {
	file := kubernetesFile + Versions()[0] + ".mod"
	ours, theirs := requirements(t, "../../go.mod"), requirements(t, file)
	shared := 0
	var get []string
	for path, version := range ours {
		if theirs[path] == "" {
			continue
		}
		shared++
		if version != theirs[path] {
			get = append(get, path+"@"+theirs[path])
		}
	}
	if slices.Sort(get); len(get) > 0 {
		t.Errorf("%d modules have one version in go.mod and another in %s, so that what they contain is compiled twice. "+
			"If nothing needs the newer one: go get %s", len(get), file, strings.Join(get, " "))
	}
	if shared < 50 {
		t.Errorf("only %d modules are shared: does this test read the right files?", shared)
	}
}

// requirements returns the required versions of a module file, after its
// replacements. They are the versions that are built, because the file also lists
// indirect requirements.
func requirements(t *testing.T, file string) map[string]string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", file).Output()
	if err != nil {
		t.Fatalf("reading %s: %v", file, err)
	}
	type version struct{ Path, Version string }
	var content struct {
		Require []version
		Replace []struct{ Old, New version }
	}
	if err := json.Unmarshal(output, &content); err != nil {
		t.Fatalf("reading %s: %v", file, err)
	}
	versions := map[string]string{}
	for _, r := range content.Require {
		versions[r.Path] = r.Version
	}
	for _, r := range content.Replace {
		if versions[r.Old.Path] != "" {
			versions[r.Old.Path] = fmt.Sprint(strings.TrimPrefix(r.New.Path, r.Old.Path), r.New.Version)
		}
	}
	return versions
}

// Each component with a module of its own is built from its project's module, whose version the
// file's name contains.
func TestOwnModules(t *testing.T) {
	for c, file := range ownModules {
		m, err := readModule(file)
		if err != nil {
			t.Errorf("%s: %v", c, err)
			continue
		}
		if !strings.HasPrefix(m.version, "v"+m.minor+".") {
			t.Errorf("%s.mod requires %s %s", file, m.project, m.version)
		}
		if pkg := mainPackages[c]; m.main == nil && !strings.HasPrefix(pkg, projects[m.project]+"/") {
			t.Errorf("%s is built from package %q, want one of %s", c, pkg, projects[m.project])
		}
	}
}

// Components with separate compiler flags could not share compiled packages with
// nodegate.
func TestComponentsHaveNoFlagsOfTheirOwn(t *testing.T) {
	m, err := moduleOf(Versions()[0])
	if err != nil {
		t.Fatal(err)
	}
	s := &set{module: m, dir: t.TempDir(), programs: ControlPlane()}
	j := s.job(ControlPlane())
	for _, flag := range j.flags {
		name, _, _ := strings.Cut(flag, "=")
		// None of these affects the compilation of a package.
		if strings.HasPrefix(flag, "-") && !slices.Contains([]string{"-mod", "-buildvcs", "-ldflags", "-tags"}, name) && flag != m.ldflags() {
			t.Errorf("flag %s", flag)
		}
	}
	for _, variable := range j.env {
		if name, _, _ := strings.Cut(variable, "="); !slices.Contains([]string{"GOWORK", "PWD", "GOOS", "GOARCH"}, name) {
			t.Errorf("variable %s", variable)
		}
	}
}
