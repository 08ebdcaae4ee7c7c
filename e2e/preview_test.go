// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/preview"
)

// file writes a gate to a YAML file, as a user would, and returns the file's path.
func (e *env) file(ng *v1alpha1.NodeGate) string {
	e.Helper()
	raw, err := yaml.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NodeGate",
		"metadata": map[string]any{"name": ng.Name}, "spec": ng.Spec,
	})
	e.must(err)
	path := filepath.Join(e.TempDir(), "gate.yaml")
	e.must(os.WriteFile(path, raw, 0o600))
	return path
}

// The preview of a gate changes nothing, and predicts how the gate changes the nodes.
func TestPreviewPredictsChanges(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	var nodes []*kubelet
	for i := range 6 {
		k := e.kubelet(fmt.Sprintf("n%d", i))
		k.register()
		k.report(corev1.ConditionTrue, "")
		if i >= 3 {
			k.label("ready")
		}
		nodes = append(nodes, k)
	}
	e.waitNextSecond() // the gate must be younger than the nodes
	ng := newGate("agent", keyA, byLabel("ready"))
	ng.Spec.ExistingNodes = v1alpha1.ExistingClose
	file, admin := e.file(ng), e.cluster.Admin()

	before := gatedParts(nodes)
	e.tells(e.ask(admin, "preview", "-f", file), 1, "agent (new)", "would close       2 nodes", "would wait        1 node", "would be adopted  3 nodes",
		"at most 2 of 6 nodes may be closed", "the gate would open on 3 of 6 nodes")
	a := e.ask(admin, "preview", "-f", file, "-o", "json")
	e.tells(a, 1)
	var p preview.Preview
	e.must(json.Unmarshal([]byte(a.out), &p))
	if len(p.Unread) > 0 || len(p.Gates) != 1 || p.Nodes != 6 {
		t.Fatalf("the administrator's preview is %s", a.out)
	}
	if after := gatedParts(nodes); after != before {
		t.Errorf("the preview changed nodes from %s to %s", before, after)
	}

	e.declare(ng)
	predicted := 0
	for _, group := range p.Gates[0].Groups {
		if group.What == preview.Closes {
			predicted = len(group.Nodes)
		}
	}
	e.eventually("as many nodes are closed as the preview predicted", func() error {
		closed := len(closedBy("agent", nodes))
		return errUnless(closed == predicted, fmt.Sprintf("%d nodes are closed, want %d", closed, predicted))
	})
	for _, k := range nodes[3:] {
		k.becomes("agent", isOpen, keyA)
	}

	e.tells(e.ask(admin, "preview", "-f", file), 0, "agent (unchanged)", "would wait", "[also without the change]")
	e.tells(e.ask(admin, "preview", "agent", "--delete"), 1, "would open         2 nodes", "would be released  3 nodes")
	e.tells(e.ask(admin, "preview", "agnt", "--delete"), 2, `gate "agnt" not found; did you mean agent?`)
	e.tells(e.ask(admin, "preview", "agent"), 2, "gate names require --delete")
	other := newGate("other", "example.com/not-allowed", byLabel("ready"))
	e.tells(e.ask(admin, "preview", "-f", e.file(other)), 0, "in force     no: the administrator has not allowed the taint example.com/not-allowed:NoSchedule")
	other.Spec.OpenWhen = nil
	e.tells(e.ask(admin, "preview", "-f", e.file(other)), 2, "set exactly one of openWhen")
	few := e.may("fewer", reads("", "nodes"), reads(v1alpha1.GroupName, "nodegates"))
	e.tells(e.ask(few, "preview", "-f", file), 0, "Incomplete: reading the allowed taint keys")
	nothing := e.may("nothing", reads(v1alpha1.GroupName, "nodegates"))
	e.tells(e.ask(nothing, "preview", "-f", file), 2, `cannot list resource "nodes"`)
}

// gatedParts returns the nodes' taints and annotations, which gates could change.
func gatedParts(nodes []*kubelet) string {
	var all []string
	for _, k := range nodes {
		n := k.node()
		all = append(all, fmt.Sprint(n.Spec.Taints, n.Annotations))
	}
	return strings.Join(all, " ")
}

// lint reads gates and all objects that they depend on, including Karpenter's NodePools if
// the cluster has them.
func TestLintOfACluster(t *testing.T) {
	e := newEnv(t)
	k := e.kubelet("n1")
	k.register()
	ds := e.daemonSet("agent")
	ng := newGate("agent", keyA, byDaemonSet("agent"))
	ng.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "p"}
	e.must(e.admin.Create(t.Context(), ng))
	k.patch(`{"metadata":{"labels":{"pool":"p"}}}`)
	admin := e.cluster.Admin()
	e.tells(e.ask(admin, "lint"), 0, "note: daemon-without-probe: gate agent")

	e.createOther(map[string]any{
		"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": map[string]any{"name": "spot"},
		"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"pool": "p"}}, "spec": map[string]any{}}},
	})
	e.tells(e.ask(admin, "lint", "agent"), 1, "error: karpenter-startup-taint-missing: gate agent: startupTaints of NodePool spot do not contain "+keyA+":NoSchedule")

	e.edit(ds, func() { ds.Spec.Template.Spec.Tolerations = nil })
	e.tells(e.ask(admin, "lint", "-o", "json"), 1, `"id": "daemon-does-not-tolerate"`, `"object": "daemonset/daemons/agent"`)
	changed := ng.DeepCopy()
	changed.Spec.Taint.Key, changed.Spec.NodeSelector.MatchLabels = "example.com/not-allowed", map[string]string{"node-role.kubernetes.io/worker": ""}
	e.tells(e.ask(admin, "lint", "-f", e.file(changed)), 1, "late-label", "not-accepted", "selects-no-node")
	e.tells(e.ask(admin, "lint", "agnt"), 2, `did you mean agent?`)

	few := e.may("linter", reads("", "nodes"), reads(v1alpha1.GroupName, "nodegates"))
	a := e.ask(few, "lint")
	if a.status != 2 || !strings.Contains(a.out, "No findings for 1 gate") || !strings.Contains(a.out, "Not checked: nodepools") ||
		!strings.Contains(a.out, "Not checked: daemonsets") || !strings.Contains(a.err, "not everything could be read") {
		t.Errorf("with few permissions, the exit status is %d and the output is\n%s%s", a.status, a.out, a.err)
	}
	e.must(client.IgnoreNotFound(e.admin.Delete(t.Context(), ng)))
	e.tells(e.ask(admin, "lint"), 0, "No findings for 0 gates")
}
