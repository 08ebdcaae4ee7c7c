// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A preview without a change is one only if everything that decides about the nodes was read.
func TestPreviewOfWhatCannotBeRead(t *testing.T) {
	const pods = "/api/v1/namespaces/kube-system/pods"
	closing := strings.NewReplacer(
		"spec:\n", "spec:\n  existingNodes: Close\n  budget: {maxReclosed: \"100%\"}\n", "{name: fit, label: {key: fit}}, ", "",
		"name: agent,", "name: other,", "example.com/a", "example.com/other",
	).Replace(agentGate)
	file := filepath.Join(t.TempDir(), "gate.yaml")
	if err := os.WriteFile(file, []byte(closing), 0o600); err != nil {
		t.Fatal(err)
	}
	for refused, want := range map[string]int{"": exitNo, pods: exitError} {
		a := newAPIServer(t, smallCluster())
		a.forbid(refused)
		if got, out, err := a.run(t, "preview", "-f", file); got != want {
			t.Errorf("without access to %q: exit status %d, want %d:\n%s%s", refused, got, want, out, err)
		}
	}
}
