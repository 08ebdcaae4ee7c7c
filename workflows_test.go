// SPDX-License-Identifier: Apache-2.0

package nodegate_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/testcluster/components"
)

// pinned matches an action that is pinned to a commit, with its version in a
// comment.
var pinned = regexp.MustCompile(`^[\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)

// unsafe returns the problems of a workflow that OpenSSF Scorecard detects and
// actionlint (in 'make lint') does not.
func unsafe(text string) []string {
	type step struct {
		Uses string         `json:"uses"`
		With map[string]any `json:"with"`
		Run  string         `json:"run"`
	}
	var w struct {
		Permissions *map[string]string `json:"permissions"`
		Jobs        map[string]struct {
			Permissions map[string]string `json:"permissions"`
			Steps       []step            `json:"steps"`
		} `json:"jobs"`
	}
	if err := yaml.Unmarshal([]byte(text), &w); err != nil {
		return []string{err.Error()}
	}
	var wrong []string
	if w.Permissions == nil || len(*w.Permissions) > 0 {
		wrong = append(wrong, "its permissions are not {}: each job should ask for its own")
	}
	for line := range strings.Lines(text) {
		if _, action, ok := strings.Cut(strings.TrimSpace(line), "uses: "); ok && !pinned.MatchString(action) {
			wrong = append(wrong, action+" is not pinned by a commit, with its version in a comment")
		}
		if strings.Contains(line, "pull_request_target") {
			wrong = append(wrong, "pull_request_target gives rights to code that nobody has reviewed")
		}
	}
	for name, job := range w.Jobs {
		if len(job.Permissions) == 0 {
			wrong = append(wrong, "job "+name+" does not say its permissions")
		}
		for _, s := range job.Steps {
			if strings.HasPrefix(s.Uses, "actions/checkout@") && s.With["persist-credentials"] != false {
				wrong = append(wrong, "job "+name+" leaves the token in the checkout")
			}
			if strings.Contains(s.Run, "${{") {
				wrong = append(wrong, "job "+name+" puts an expression into a script: hand it over in env")
			}
		}
	}
	return wrong
}

func TestWorkflowsAreSafe(t *testing.T) {
	paths, err := filepath.Glob(".github/workflows/*.y*ml")
	if err != nil || len(paths) < 3 {
		t.Fatalf("%q, %v", paths, err)
	}
	for _, path := range paths {
		for _, wrong := range unsafe(read(t, path)) {
			t.Errorf("%s: %s", path, wrong)
		}
	}
}

// The tested versions must equal the versions that can be built, and those on the
// page.
func TestEachKubernetesVersionIsTested(t *testing.T) {
	var w struct {
		Jobs struct {
			Test struct {
				Strategy struct {
					Matrix struct {
						Version []string `json:"version"`
					} `json:"matrix"`
				} `json:"strategy"`
			} `json:"test"`
		} `json:"jobs"`
	}
	if err := yaml.Unmarshal([]byte(read(t, ".github/workflows/versions.yml")), &w); err != nil {
		t.Fatal(err)
	}
	versions := components.Versions()
	tested := slices.Clone(w.Jobs.Test.Strategy.Matrix.Version)
	if slices.Reverse(tested); !slices.Equal(tested, versions) {
		t.Errorf("versions.yml tests %q, which testcluster/components has: %q", tested, versions)
	}
	scope := read(t, "SCOPE.md")
	for _, version := range versions {
		if !strings.Contains(scope, "\n| "+version+" | ") {
			t.Errorf("SCOPE.md has no row for Kubernetes %s", version)
		}
	}
}

func TestUnsafeWorkflowsAreFound(t *testing.T) {
	text, err := os.ReadFile(".github/workflows/ci.yml")
	if err != nil {
		t.Fatal(err)
	}
	for change, want := range map[[2]string]string{
		{"permissions: {}", ""}:                                  "its permissions",
		{"permissions: {}", "permissions: {contents: write}"}:    "its permissions",
		{"@3d3c42e5aac5ba805825da76410c181273ba90b1 #", "@v7 #"}: "not pinned",
		{" # v7.0.1", ""}:                                        "not pinned",
		{"persist-credentials: false", "fetch-depth: 0"}:         "token",
		{"contents: read", ""}:                                   "does not say",
		{"sh .ci/run", "echo ${{ github.event.head_commit }}"}:   "expression",
		{"pull_request:", "pull_request_target:"}:                "pull_request_target",
	} {
		got := strings.Join(unsafe(strings.Replace(string(text), change[0], change[1], 1)), "\n")
		if !strings.Contains(got, want) {
			t.Errorf("with %q for %q: %q, want %q", change[1], change[0], got, want)
		}
	}
}
