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

// The change can affect a gate that closes on idle nodes, without containing it.
func TestPreviewReadsPodsForAffectedGates(t *testing.T) {
	selectsNone := strings.Replace(agentGate, "nodeSelector: {}", "nodeSelector: {matchLabels: {pool: none}}", 1)
	rejected := strings.NewReplacer("name: agent,", "name: later,", "00:00:00Z", "00:30:00Z", "{key: example.com/a,", "{key: example.com/a, value: v,",
		"spec:\n", "spec:\n  existingNodes: CloseIfIdle\n  budget: {maxReclosed: \"100%\"}\n").Replace(agentGate)
	node := "apiVersion: v1\nkind: Node\nmetadata: {name: n1, uid: uid, resourceVersion: \"1\", creationTimestamp: \"2026-03-01T01:00:00Z\"}\n"
	for name, test := range map[string]struct {
		forbidden string
		want      int
		contains  string
	}{
		"pods":                     {"", exitNo, "close immediately"},
		"pods that cannot be read": {"/api/v1/pods", exitError, "pods"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := smallCluster()
			objects[nodesPath] = list("v1", "NodeList", node)
			objects[gatesPath] = list("nodegate.dev/v1alpha1", "NodeGateList", selectsNone, rejected)
			a := newAPIServer(t, objects)
			a.forbid(test.forbidden)
			if got, out, err := a.run(t, "preview", "agent", "--delete"); got != test.want || !strings.Contains(out, test.contains) {
				t.Errorf("exit status %d, want %d and %q:\n%s%s", got, test.want, test.contains, out, err)
			}
		})
	}
}
