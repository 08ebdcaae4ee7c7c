// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// write writes a peer's file, and returns its path.
func write(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "peer.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestLoad(t *testing.T) {
	t.Setenv("PEER_example", "/from/environment")
	file := write(t, `name: example
arguments: [--kubeconfig=$(KUBECONFIG)]
environment: [A=b]
taint: example.com/agent:NoSchedule
objects: objects.yaml
`)
	want := &Peer{
		Name: "example", Program: "/from/environment", Arguments: []string{"--kubeconfig=$(KUBECONFIG)"}, Environment: []string{"A=b"},
		Taint: "example.com/agent:NoSchedule", Objects: filepath.Join(filepath.Dir(file), "objects.yaml"),
	}
	got, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := expand(got.Arguments, "/config"); !slices.Equal(got, []string{"--kubeconfig=/config"}) {
		t.Errorf("arguments %q", got)
	}
	got, err = Load(write(t, "{name: example, program: /p, taint: 'a/b=c:NoExecute', objects: /o, csiDriver: d}"))
	if err != nil || got.Program != "/p" || got.Objects != "/o" || got.CSIDriver != "d" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestLoadRejects(t *testing.T) {
	for content, want := range map[string]string{
		"{program: /p, taint: 'a/b:NoSchedule'}":                   "no name",
		"{name: x, taint: 'a/b:NoSchedule'}":                       "PEER_x",
		"{name: x, program: /p}":                                   "taint",
		"{name: x, program: /p, taint: a/b}":                       "taint",
		"{name: x, program: /p, taint: 'a/b:Never'}":               "taint",
		"{name: x, program: /p, taint: ':NoSchedule'}":             "taint",
		"{name: x, program: /p, taint: 'a/b:NoSchedule', args: 1}": "args",
		"- a": "unmarshal",
	} {
		if p, err := Load(write(t, content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want an error with %q", content, p, err, want)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml")); err == nil {
		t.Error("a missing file is accepted")
	}
}
