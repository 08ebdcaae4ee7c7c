// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/lint"
)

// lints are gates of a cluster with six nodes and the DaemonSet kube-system/agent,
// which has no readiness probe and tolerates one key.
var lints = []struct {
	name   string
	gates  []string
	unread map[lint.Kind]error
	ends   error
}{
	{name: "clean", gates: []string{gateText("agent", "reclosePolicy: Never")}},
	{name: "notes", gates: []string{waitingFor("agent", "example.com/a")}},
	{name: "errors", gates: []string{waitingFor("agent", "example.com/b"), waitingFor("none", "example.com/a"), gateText("label", "")}, ends: errNo},
	{name: "gaps", gates: []string{gateText("agent", "reclosePolicy: Never")}, unread: map[lint.Kind]error{
		lint.NodePools: errors.New("nodepools.karpenter.sh is forbidden"), lint.Nodes: errors.New("nodes is forbidden"),
	}, ends: errNotAllRead},
	{name: "findings-and-gaps", gates: []string{waitingFor("agent", "example.com/b")}, unread: map[lint.Kind]error{
		lint.Deployments: errors.New("deployments.apps is forbidden"),
	}, ends: errNo},
}

// waitingFor returns a gate that waits for the DaemonSet of the same name.
func waitingFor(name, key string) string {
	return "apiVersion: nodegate.dev/v1alpha1\nkind: NodeGate\nmetadata: {name: " + name + "}\nspec:\n  nodeSelector: {}\n" +
		"  taint: {key: " + key + ", effect: NoSchedule}\n  openWhen: [{name: pod, daemonSet: {namespace: kube-system, name: " + name + "}}]\n"
}

// testdata contains the expected output of each case, as text and as JSON.
func TestLint(t *testing.T) {
	for _, c := range lints {
		t.Run(c.name, func(t *testing.T) {
			w := &lint.World{Gates: decode(t, c.gates), Unread: c.unread, DaemonSets: &gate.DaemonSets{
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
			for format, file := range map[string]string{"": ".txt", "json": ".json"} {
				var out bytes.Buffer
				if err := printReport(&out, &output{format: format}, r); !errors.Is(err, c.ends) {
					t.Errorf("error %v, want %v", err, c.ends)
				}
				golden(t, "lint/"+c.name+file, out.String())
			}
		})
	}
}

// Gates from files replace declared gates of the same name, and only they are checked.
func TestLintOfFiles(t *testing.T) {
	w := &lint.World{Gates: decode(t, []string{gateText("one", ""), gateText("two", "")})}
	status := v1alpha1.NodeGateStatus{ObservedGeneration: 7}
	w.Gates[1].Status = status
	replaceGates(w, decode(t, []string{gateText("two", "mode: Paused"), gateText("three", "")}))
	var names []string
	for _, g := range w.Gates {
		names = append(names, fmt.Sprintf("%s:%s:%d", g.Name, g.Spec.Mode, g.Status.ObservedGeneration))
	}
	if got, want := fmt.Sprint(names, w.Checked), "[one:Enforce:0 two:Paused:7 three:Enforce:0] map[three:true two:true]"; got != want {
		t.Errorf("gates are %s, want %s", got, want)
	}
}
