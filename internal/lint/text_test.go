// SPDX-License-Identifier: Apache-2.0

package lint_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/lint"
)

// lints are gates of a cluster with six nodes and the DaemonSet kube-system/agent,
// which has no readiness probe and tolerates one key.
var lints = []struct {
	name   string
	gates  []string
	unread map[lint.Kind]error
}{
	{name: "clean", gates: []string{clitest.Manifest("agent", "reclosePolicy: Never")}},
	{name: "notes", gates: []string{waitingFor("agent", "example.com/a")}},
	{name: "errors", gates: []string{waitingFor("agent", "example.com/b"), waitingFor("none", "example.com/a"), clitest.Manifest("label", "")}},
	{name: "gaps", gates: []string{clitest.Manifest("agent", "reclosePolicy: Never")}, unread: map[lint.Kind]error{
		lint.NodePools: errors.New("nodepools.karpenter.sh is forbidden"), lint.Nodes: errors.New("nodes is forbidden"),
	}},
	{name: "findings-and-gaps", gates: []string{waitingFor("agent", "example.com/b")}, unread: map[lint.Kind]error{
		lint.Deployments: errors.New("deployments.apps is forbidden"),
	}},
}

// waitingFor returns a gate that waits for the DaemonSet of the same name.
func waitingFor(name, key string) string {
	return "apiVersion: nodegate.dev/v1alpha1\nkind: NodeGate\nmetadata: {name: " + name + "}\nspec:\n  nodeSelector: {}\n" +
		"  taint: {key: " + key + ", effect: NoSchedule}\n  openWhen: [{name: pod, daemonSet: {namespace: kube-system, name: " + name + "}}]\n"
}

// testdata contains the expected output of each case, as text and as JSON.
func TestText(t *testing.T) {
	for _, c := range lints {
		t.Run(c.name, func(t *testing.T) {
			w := &lint.World{Gates: clitest.Decode(t, c.gates...), Unread: c.unread, DaemonSets: &gate.DaemonSets{
				Observed: map[string]bool{"kube-system": true},
				Items: []gate.DaemonSet{{
					Namespace: "kube-system", Name: "agent", Unprobed: true, Affinity: nodeaffinity.NewRequiredNodeAffinity(nil, nil),
					Tolerations: []corev1.Toleration{{Key: "example.com/a", Operator: corev1.TolerationOpExists}},
				}},
			}}
			if c.unread[lint.Nodes] == nil {
				for i := range 6 {
					w.Nodes = append(w.Nodes, &gate.Node{Name: fmt.Sprintf("n%d", i)})
				}
			}
			r := lint.Of(w)
			raw, err := json.MarshalIndent(r, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			clitest.Golden(t, c.name+".txt", r.Text())
			clitest.Golden(t, c.name+".json", string(raw)+"\n")
		})
	}
}
