// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/preview"
)

// file writes a gate to a file, as people do.
func (e *env) file(ng *v1alpha1.NodeGate) string {
	e.Helper()
	ng = ng.DeepCopy()
	ng.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeGate"}
	content, err := runtimeObject(ng)
	e.must(err)
	raw, err := yaml.Marshal(content)
	e.must(err)
	path := filepath.Join(e.TempDir(), "gate.yaml")
	e.must(os.WriteFile(path, raw, 0o600))
	return path
}

// runtimeObject is a gate as it is written by hand: without what only the API
// server sets.
func runtimeObject(ng *v1alpha1.NodeGate) (map[string]any, error) {
	raw, err := json.Marshal(ng)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if err := json.Unmarshal(raw, &content); err != nil {
		return nil, err
	}
	delete(content, "status")
	content["metadata"] = map[string]any{"name": ng.Name}
	return content, nil
}

// The preview of a gate matches the later changes of the nodes, and changes nothing.
func TestPreviewForetells(t *testing.T) {
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
	e.waitNextSecond() // so that the gate is younger than the nodes
	ng := newGate("agent", keyA, byLabel("ready"))
	ng.Spec.ExistingNodes = v1alpha1.ExistingClose
	file := e.file(ng)

	before := versions(nodes)
	e.tells(e.ask(e.cluster.Admin(), "preview", "-f", file), 1, "agent (new)", "would close       2 nodes", "would wait        1 node", "would be adopted  3 nodes",
		"at most 2 of 6 nodes may be closed", "the gate would open on 3 of 6 nodes")
	a := e.ask(e.cluster.Admin(), "preview", "-f", file, "-o", "json")
	e.tells(a, 1)
	var p preview.Preview
	e.must(json.Unmarshal([]byte(a.out), &p))
	if len(p.Unread) > 0 || len(p.Gates) != 1 || p.Nodes != 6 {
		t.Fatalf("the administrator sees %s", a.out)
	}
	if after := versions(nodes); after != before {
		t.Errorf("asking has changed nodes: %s, then %s", before, after)
	}

	e.declare(ng)
	closes := 0
	for _, group := range p.Gates[0].Groups {
		if group.What == preview.Closes {
			closes = len(group.Nodes)
		}
	}
	e.eventually("as many are closed as was foretold", func() error {
		closed := 0
		for _, k := range nodes {
			if hasTaint(k.node(), keyA) {
				closed++
			}
		}
		return errUnless(closed == closes, fmt.Sprintf("%d nodes are closed, and %d were to be", closed, closes))
	})
	for _, k := range nodes[3:] {
		k.becomes("agent", isOpen, keyA)
	}

	e.tells(e.ask(e.cluster.Admin(), "preview", "-f", file), 0, "agent (unchanged)", "would wait", "[also without the change]")
	e.tells(e.ask(e.cluster.Admin(), "preview", "agent", "--delete"), 1, "would open         2 nodes", "would be released  3 nodes")
	e.tells(e.ask(e.cluster.Admin(), "preview", "agnt", "--delete"), 2, `gate "agnt" not found; did you mean agent?`)
	e.tells(e.ask(e.cluster.Admin(), "preview", "agent"), 2, "gate names require --delete")
	other := newGate("other", "example.com/not-allowed", byLabel("ready"))
	e.tells(e.ask(e.cluster.Admin(), "preview", "-f", e.file(other)), 0, "in force     no: the administrator has not allowed the taint example.com/not-allowed:NoSchedule")
	other.Spec.OpenWhen = nil
	e.tells(e.ask(e.cluster.Admin(), "preview", "-f", e.file(other)), 2, "set exactly one of openWhen")
	few := e.may("fewer", reads("", "nodes"), reads(v1alpha1.GroupName, "nodegates"))
	e.tells(e.ask(few, "preview", "-f", file), 0, "Incomplete: reading the allowed taint keys")
	nothing := e.may("nothing", reads(v1alpha1.GroupName, "nodegates"))
	e.tells(e.ask(nothing, "preview", "-f", file), 2, `cannot list resource "nodes"`)
}

func versions(nodes []*kubelet) string {
	var all []string
	for _, k := range nodes {
		n := k.node()
		all = append(all, fmt.Sprint(n.Spec.Taints, n.Annotations))
	}
	return strings.Join(all, " ")
}

// lint reads what there is: Karpenter's NodePools among it, where the cluster has
// them.
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

	api := e.crdClient()
	definition := nodePoolDefinition()
	e.must(api.Create(t.Context(), definition))
	t.Cleanup(func() { e.must(api.Delete(context.Background(), definition)) }) // the test's own context has ended
	pool := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": map[string]any{"name": "spot"},
		"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"pool": "p"}}, "spec": map[string]any{}}},
	}}
	e.eventually("the pool is created", func() error { return api.Create(t.Context(), pool.DeepCopy()) })
	e.tells(e.ask(admin, "lint", "agent"), 1, "error: karpenter-startup-taint-missing: gate agent: startupTaints of NodePool spot do not contain "+keyA+":NoSchedule")

	e.edit(ds, func() { ds.Spec.Template.Spec.Tolerations = nil })
	e.tells(e.ask(admin, "lint", "-o", "json"), 1, `"id": "daemon-does-not-tolerate"`, `"object": "daemonset/daemons/agent"`)
	mended := ng.DeepCopy()
	mended.Spec.Taint.Key, mended.Spec.NodeSelector.MatchLabels = "example.com/not-allowed", map[string]string{"node-role.kubernetes.io/worker": ""}
	e.tells(e.ask(admin, "lint", "-f", e.file(mended)), 1, "late-label", "not-accepted", "selects-no-node")
	e.tells(e.ask(admin, "lint", "agnt"), 2, `did you mean agent?`)

	few := e.may("linter", reads("", "nodes"), reads(v1alpha1.GroupName, "nodegates"))
	a := e.ask(few, "lint")
	if a.status != 2 || !strings.Contains(a.out, "No findings for 1 gate") || !strings.Contains(a.out, "Not checked: nodepools") ||
		!strings.Contains(a.out, "Not checked: daemonsets") || !strings.Contains(a.err, "not everything could be read") {
		t.Errorf("with few rights it ends with %d and says\n%s%s", a.status, a.out, a.err)
	}
	e.must(client.IgnoreNotFound(e.admin.Delete(t.Context(), ng)))
	e.tells(e.ask(admin, "lint"), 0, "No findings for 0 gates")
}

// nodePoolDefinition is as much of Karpenter's kind as matters here.
func nodePoolDefinition() *apiextensionsv1.CustomResourceDefinition {
	preserve := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "nodepools.karpenter.sh"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "karpenter.sh", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "nodepools", Singular: "nodepool", Kind: "NodePool", ListKind: "NodePoolList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &preserve,
				}},
			}},
		},
	}
}
