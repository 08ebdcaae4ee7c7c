// SPDX-License-Identifier: Apache-2.0

package nodegate_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unquoted matches the path of the checkout outside of quotes.
var unquoted = regexp.MustCompile(`[^']\$\((CURDIR|abspath )`)

// A checkout may be in a directory whose path contains a space.
func TestMakefileQuotesPaths(t *testing.T) {
	for line := range strings.Lines(read(t, "Makefile")) {
		if unquoted.MatchString(line) {
			t.Errorf("quote the path: %s", line)
		}
	}
}

// A go.work file of the user, in a directory above, does not contain the modules of tools.
func TestMakefileIgnoresWorkspaces(t *testing.T) {
	rule := filepath.Join(t.TempDir(), "print.mk")
	if err := os.WriteFile(rule, []byte("print:\n\t@echo $$GOWORK\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "make", "-s", "-f", "Makefile", "-f", rule, "print")
	command.Env = append(os.Environ(), "GOWORK="+filepath.Join(t.TempDir(), "go.work"))
	output, err := command.CombinedOutput()
	if got := strings.TrimSpace(string(output)); err != nil || got != "off" {
		t.Errorf("GOWORK is %q (%v), want off", got, err)
	}
}

// A release contains what is in the commit. Go and Helm would also use untracked files.
func TestReleaseRejectsUntrackedFiles(t *testing.T) {
	dir, unused := t.TempDir(), filepath.Join(t.TempDir(), "unused")
	t.Setenv("GIT_DIR", unused) // as in a hook of git
	for _, name := range []string{"Makefile", "charts/nodegate/Chart.yaml"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(read(t, name)), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	run := func(name string, args ...string) (string, error) {
		command := exec.CommandContext(t.Context(), name, args...)
		command.Dir = dir
		command.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
		command.Env = append(command.Env, "GIT_CONFIG_GLOBAL="+os.DevNull)
		output, err := command.CombinedOutput()
		return string(output), err
	}
	release := func() string {
		output, err := run("make", "-s", "release", "VERSION="+chartVersion(t), "MAKE=echo building", "DIST="+filepath.Join(dir, "dist"))
		if err == nil {
			t.Errorf("the release succeeded: %s", output) // its programs are not there
		}
		return output
	}
	const rejected = "The files are not those of the commit"
	if output := release(); !strings.Contains(output, rejected) {
		t.Errorf("without a repository: %s", output)
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "x"}} {
		if output, err := run("git", args...); err != nil {
			t.Fatalf("git %s: %v: %s", args[0], err, output)
		}
	}
	if output := release(); !strings.Contains(output, "building dist dist-plugin") {
		t.Errorf("with the files of the commit: %s", output)
	}
	if err := os.WriteFile(filepath.Join(dir, "charts/nodegate/more.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if output := release(); !strings.Contains(output, rejected) {
		t.Errorf("with an untracked file: %s", output)
	}
	if _, err := os.Stat(unused); err == nil {
		t.Error("the test has used another repository")
	}
}

var appVersion = regexp.MustCompile(`(?m)^appVersion: (\S+)$`)

func chartVersion(t *testing.T) string {
	t.Helper()
	return appVersion.FindStringSubmatch(read(t, "charts/nodegate/Chart.yaml"))[1]
}
