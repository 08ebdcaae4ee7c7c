// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/release"
)

// The NodePools of Karpenter are reported whose nodes register with the taint of a gate, which may be
// known only from records.
func TestNodePoolsAreReported(t *testing.T) {
	const (
		pools = `{"apiVersion": "karpenter.sh/v1", "kind": "NodePoolList", "items": [` +
			`{"kind": "NodePool", "metadata": {"name": "a"}, "spec": {"template": {"spec": {"startupTaints": [{"key": "example.com/a", "effect": "NoSchedule"}, {"key": "b", "value": "v", "effect": "NoExecute"}, {"key": "c", "effect": "NoSchedule"}]}}}}, ` +
			`{"kind": "NodePool", "metadata": {"name": "b"}, "spec": {"template": {"spec": {"startupTaints": [{"key": "example.com/a", "effect": "NoExecute"}], "taints": [{"key": "example.com/a", "effect": "NoSchedule"}]}}}}]}`
		gates = `{"apiVersion": "nodegate.dev/v1alpha1", "kind": "NodeGateList", "items": [{"metadata": {"name": "a"}, "spec": {"taint": {"key": "example.com/a", "effect": "NoSchedule"}}}]}`
		nodes = `{"apiVersion": "v1", "kind": "NodeList", "items": [{"metadata": {"name": "n1", "annotations": ` +
			`{"gate.nodegate.dev/b": "{\"state\":\"Open\",\"taint\":\"b=v:NoExecute\"}", "gate.nodegate.dev/x": "damaged"}}}]}`
		noNodes = `{"apiVersion": "v1", "kind": "NodeList", "items": []}`
		report  = "warning: NodePool a: its nodes register with startup taints of gates (%s), and nodegate no longer removes them. " +
			"Remove them from spec.template.spec.startupTaints, unless another program removes them from nodes: see docs/runbooks/README.md#nodes-that-register-with-the-taint\n"
	)
	for name, c := range map[string]struct{ pools, gates, nodes, want string }{
		"gates and records": {pools, gates, nodes, strings.Replace(report, "%s", "example.com/a:NoSchedule, b=v:NoExecute", 1)},
		"gates":             {pools, gates, noNodes, strings.Replace(report, "%s", "example.com/a:NoSchedule", 1)},
		"records":           {pools, "", nodes, strings.Replace(report, "%s", "b=v:NoExecute", 1)},
		"no NodePools":      {"", gates, nodes, ""},
		"no gates":          {pools, "", noNodes, ""},
		"forbidden":         {"forbidden", gates, nodes, "warning: NodePools with startup taints of gates are not reported: listing nodepools.karpenter.sh: forbidden\n"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := map[string]string{"/apis/karpenter.sh/v1/nodepools": c.pools, "/apis/nodegate.dev/v1alpha1/nodegates": c.gates, "/api/v1/nodes": c.nodes}
			var out strings.Builder
			config := &rest.Config{Transport: kubetest.Transport(func(w http.ResponseWriter, r *http.Request) {
				switch object := objects[r.URL.Path]; object {
				case "":
					http.NotFound(w, r)
				case "forbidden":
					http.Error(w, object, http.StatusForbidden)
				default:
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, object) // never fails
				}
			})}
			err := Run(t.Context(), config, Options{Namespace: "here", ServiceAccount: "me", DryRun: release.DryRunClient, Out: &out})
			got := slices.DeleteFunc(strings.SplitAfter(out.String(), "\n"), func(line string) bool { return !strings.HasPrefix(line, "warning: ") })
			if err != nil || strings.Join(got, "") != c.want {
				t.Errorf("error %v\n%s, want\n%s", err, &out, c.want)
			}
		})
	}
}
