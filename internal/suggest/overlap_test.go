// SPDX-License-Identifier: Apache-2.0

package suggest_test

import (
	"strings"
	"testing"

	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/suggest"
)

// A label is suggested only for a gate that selects nodes on which the DaemonSet runs, and
// preferably for one that selects all of them.
func TestLabelOfAGateForItsNodes(t *testing.T) {
	const cni, windows = "kube-system/x", "nodeSelector: {kubernetes.io/os: windows}\n"
	on := func(name, nodeSelector string) string {
		return strings.ReplaceAll(strings.ReplaceAll(labelled, "name: required}\nspec", "name: "+name+"}\nspec"), "{matchLabels: {kubernetes.io/os: linux}}", nodeSelector)
	}
	gpu, noGPU := on("a-gpu", "{matchLabels: {pool: gpu}}"), on("b-cpu", "{matchExpressions: [{key: pool, operator: NotIn, values: [gpu]}]}")
	for name, c := range map[string]struct {
		pod   string
		gates []string
		nodes bool
		want  string
	}{
		"all nodes":                          {"", []string{labelled}, true, "Label required"},
		"other nodes":                        {windows, []string{labelled}, true, "NodeGate x"},
		"other nodes, by affinity":           {affinity("{key: kubernetes.io/os, operator: In, values: [windows]}"), []string{labelled}, true, "NodeGate x"},
		"other nodes, none known":            {windows, []string{labelled}, false, "NodeGate x"},
		"other nodes, by affinity, no nodes": {affinity("{key: kubernetes.io/os, operator: In, values: [windows]}"), []string{labelled}, false, "NodeGate x"},
		"all nodes, none known":              {"", []string{labelled}, false, "Label required"},
		"the gate of all, not of a part":     {"", []string{gpu, labelled}, true, "Label required"},
		"the gate of its part":               {"nodeSelector: {pool: gpu}\n", []string{noGPU, gpu}, true, "Label a-gpu"},
		"only gates of a part":               {"", []string{gpu, noGPU}, true, "Label b-cpu gate b-cpu does not select 1 existing node on which the DaemonSet can run"},
		"a gate that selects no node":        {"", []string{on("a-gpu", "{matchLabels: {pool: none}}")}, true, "NodeGate x"},
	} {
		w := world(t, daemonSet(t, cni, mounts("/opt/cni/bin", false)+c.pod))
		w.Presets, w.Gates = nil, clitest.Decode(t, c.gates...)
		w.Nodes[2].Labels["pool"] = "gpu"
		if !c.nodes {
			w.Nodes = nil
		}
		r := suggest.Of(w)
		s := r.Suggestions
		if len(s) != 1 {
			t.Fatalf("%s: the suggestions are %+v", name, s)
		}
		got := string(s[0].Use) + " " + s[0].Gate
		if s[0].Use == suggest.UseLabel {
			got = strings.Join(append([]string{got}, s[0].Notes...), " ")
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		for _, note := range s[0].Notes {
			if gates := r.Gates(false); !strings.Contains(gates, "# Note: "+note+".\n") {
				t.Errorf("%s: the note %q is missing in\n%s", name, note, gates)
			}
		}
	}
}

// A gate covers a DaemonSet only if it selects nodes on which the DaemonSet runs.
func TestCoveredOnItsNodes(t *testing.T) {
	for name, c := range map[string]struct{ pod, nodeSelector, want string }{
		"all nodes":                   {"", "{}", "Covered: DaemonSet kube-system/x by gate required.\n"},
		"some nodes":                  {"", "{matchLabels: {pool: gpu}}", "Covered: DaemonSet kube-system/x by gate required, which does not select 2 existing nodes on which the DaemonSet can run.\n"},
		"all but the control plane":   {toleratesAll, "{matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}]}", "Covered: DaemonSet kube-system/x by gate required.\n"},
		"other nodes":                 {"nodeSelector: {pool: gpu}\n", "{matchExpressions: [{key: pool, operator: DoesNotExist}]}", ""},
		"no node yet":                 {"", "{matchLabels: {pool: none}}", "Covered: DaemonSet kube-system/x by gate required, which does not select 3 existing nodes on which the DaemonSet can run.\n"},
		"it runs on no node":          {"nodeSelector: {pool: none}\n", "{matchLabels: {pool: none}}", "Covered: DaemonSet kube-system/x by gate required.\n"},
		"neither, and on other nodes": {"nodeSelector: {pool: none}\n", "{matchLabels: {pool: gpu}}", ""},
	} {
		w := world(t, daemonSet(t, "kube-system/x", mounts("/opt/cni/bin", false)+c.pod, "example.com/required"))
		w.Presets, w.Gates = nil, clitest.Decode(t, strings.ReplaceAll(labelled, "{matchLabels: {kubernetes.io/os: linux}}", c.nodeSelector))
		w.Nodes[2].Labels["pool"] = "gpu"
		if strings.Contains(c.nodeSelector, "control-plane") {
			w.Nodes[0].Labels["node-role.kubernetes.io/control-plane"] = ""
		}
		if text := suggest.Of(w).Text(); !strings.Contains(text, c.want) || (c.want == "") == strings.Contains(text, "Covered") {
			t.Errorf("%s: the text is\n%s\nwant %q", name, text, c.want)
		}
	}
}
