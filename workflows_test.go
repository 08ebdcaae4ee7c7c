// SPDX-License-Identifier: Apache-2.0

package nodegate_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
		wrong = append(wrong, "its permissions are not {}: set permissions per job")
	}
	for line := range strings.Lines(text) {
		if _, action, ok := strings.Cut(strings.TrimSpace(line), "uses: "); ok && !pinned.MatchString(action) {
			wrong = append(wrong, action+" is not pinned to a commit, with its version in a comment")
		}
		if strings.Contains(line, "pull_request_target") {
			wrong = append(wrong, "pull_request_target grants permissions to unreviewed code")
		}
	}
	for name, job := range w.Jobs {
		if len(job.Permissions) == 0 {
			wrong = append(wrong, "job "+name+" has no permissions")
		}
		for _, s := range job.Steps {
			if strings.HasPrefix(s.Uses, "actions/checkout@") && s.With["persist-credentials"] != false {
				wrong = append(wrong, "job "+name+" keeps the token in the checkout: set persist-credentials: false")
			}
			if strings.Contains(s.Run, "${{") {
				wrong = append(wrong, "job "+name+" has an expression in a script: pass it in env")
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

// Before the workflow signs anything, it compares the public key of the signing key with the one
// in the repository, which users verify with. It publishes the latter.
func TestReleaseIsSignedWithTheKeyOfTheRepository(t *testing.T) {
	const key = "docs/security/release.pub"
	text := read(t, ".github/workflows/release.yml")
	at := -1
	for _, want := range []string{"openssl pkey -in \"$RUNNER_TEMP/release.key\" -pubout | cmp - " + key, "make publish", "cp " + key + " dist/"} {
		next := strings.Index(text, want)
		if next < 0 || next < at {
			t.Errorf("release.yml does not contain %q in this order", want)
		}
		at = next
	}
	if page := read(t, "docs/security/verify.md"); !strings.Contains(page, "-out "+key) {
		t.Errorf("docs/security/verify.md does not create %s", key)
	}
}

// versions.yml and SCOPE.md must list the versions that can be built.
func TestEachKubernetesVersionIsTested(t *testing.T) {
	var workflow map[string]any
	if err := yaml.Unmarshal([]byte(read(t, ".github/workflows/versions.yml")), &workflow); err != nil {
		t.Fatal(err)
	}
	tested, _, err := unstructured.NestedStringSlice(workflow, "jobs", "test", "strategy", "matrix", "version")
	versions := components.Versions()
	if slices.Reverse(tested); err != nil || !slices.Equal(tested, versions) {
		t.Errorf("versions.yml tests %q, want those of testcluster/components: %q (%v)", tested, versions, err)
	}
	scope := read(t, "SCOPE.md")
	for _, version := range versions {
		if !strings.Contains(scope, "\n| "+version+" | ") {
			t.Errorf("SCOPE.md has no row for Kubernetes %s", version)
		}
	}
}

// Each change makes the workflow unsafe.
func TestUnsafeWorkflowsAreFound(t *testing.T) {
	text := read(t, ".github/workflows/ci.yml")
	for change, want := range map[[2]string]string{
		{"permissions: {}", ""}:                                  "its permissions",
		{"permissions: {}", "permissions: {contents: write}"}:    "its permissions",
		{"@3d3c42e5aac5ba805825da76410c181273ba90b1 #", "@v7 #"}: "not pinned",
		{" # v7.0.1", ""}:                                        "not pinned",
		{"persist-credentials: false", "fetch-depth: 0"}:         "token",
		{"contents: read", ""}:                                   "has no permissions",
		{"sh .ci/run", "echo ${{ github.event.head_commit }}"}:   "expression",
		{"pull_request:", "pull_request_target:"}:                "pull_request_target",
	} {
		got := strings.Join(unsafe(strings.Replace(text, change[0], change[1], 1)), "\n")
		if !strings.Contains(got, want) {
			t.Errorf("with %q for %q: %q, want %q", change[1], change[0], got, want)
		}
	}
}
