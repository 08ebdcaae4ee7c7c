// SPDX-License-Identifier: Apache-2.0

package suggest_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/suggest"
)

// affinity returns a pod spec with a node affinity of one term.
func affinity(expressions ...string) string {
	return "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [" + strings.Join(expressions, ", ") + "]}]}}}\n"
}

// repeated returns n texts, each with its number.
func repeated(n int, format string) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf(format, i))
	}
	return all
}

// A gate's nodeSelector has limits that a DaemonSet's placement does not have. A requirement
// beyond them is omitted, and the gate does not rely on its nodeSelector.
func TestPlacementBeyondTheLimitsOfAGate(t *testing.T) {
	in := func(n int) string {
		return "{key: type, operator: In, values: [" + strings.Join(repeated(n, "t%d"), ", ") + "]}"
	}
	const exists = "{key: k%d, operator: Exists}"
	intolerant := "tolerations: [{key: startup-taint.cluster-autoscaler.kubernetes.io/, operator: Exists}]\n"
	for name, c := range map[string]struct {
		pod   string
		exact bool
		// expressions and labels are the expected numbers of requirements.
		expressions, labels int
	}{
		"64 values":                             {toleratesAll + affinity(in(64)), true, 1, 0},
		"65 values":                             {toleratesAll + affinity(in(65), "{key: pool, operator: Exists}"), false, 1, 0},
		"8 expressions":                         {toleratesAll + affinity(repeated(8, exists)...), true, 8, 0},
		"9 expressions":                         {toleratesAll + affinity(repeated(9, exists)...), false, 8, 0},
		"8 without the control plane":           {intolerant + affinity(repeated(8, exists)...), false, 8, 0},
		"not a label value":                     {toleratesAll + affinity("{key: pool, operator: In, values: [a/b]}"), false, 0, 0},
		"not a label key":                       {toleratesAll + affinity("{key: 'a b', operator: Exists}"), false, 0, 0},
		"16 labels":                             {toleratesAll + "nodeSelector: {" + strings.Join(repeated(16, "k%d: v"), ", ") + "}\n", true, 0, 16},
		"17 labels":                             {toleratesAll + "nodeSelector: {" + strings.Join(repeated(17, "k%d: v"), ", ") + "}\n", false, 0, 16},
		"not all taints are tolerated":          {"tolerations: [{operator: Exists, effect: NoSchedule}]\n", false, 0, 0},
		"not a label value in the nodeSelector": {toleratesAll + "nodeSelector: {pool: a/b}\n", false, 0, 0},
	} {
		for _, own := range []int{0, 1, 16, 17} {
			set := daemonSet(t, "gpu/x", mounts("/var/lib/kubelet/device-plugins", false)+c.pod, repeated(own, "own%d")...)
			if own > 0 {
				set.Spec.Selector = &metav1.LabelSelector{MatchLabels: set.Labels}
			}
			w := world(t, set)
			r := suggest.Of(w)
			if len(r.Suggestions) != 1 {
				t.Fatalf("%s: the suggestions are %+v", name, r.Suggestions)
			}
			spec := clitest.Decode(t, r.Suggestions[0].Manifest)[0].Spec
			if e, l := len(spec.NodeSelector.MatchExpressions), len(spec.NodeSelector.MatchLabels); e != c.expressions || l != c.labels {
				t.Errorf("%s: %d expressions and %d labels, want %d and %d", name, e, l, c.expressions, c.labels)
			}
			byLabels, dry := spec.OpenWhen[0].DaemonSets != nil, spec.Mode == "DryRun"
			if labelled := own == 1 || own == 16; byLabels != (!c.exact && labelled) || dry != (!c.exact && !labelled) {
				t.Errorf("%s, %d labels of its own: waits by labels: %t, DryRun: %t", name, own, byLabels, dry)
			}
		}
	}
}

// A signal for a CSI driver never holds on a node on which the DaemonSet does not run. A gate that may
// select such nodes is not put in force, even if it can wait for the DaemonSet by its labels.
func TestDriverOfAnUncertainPlacement(t *testing.T) {
	for tolerations, mode := range map[string]v1alpha1.Mode{toleratesAll: v1alpha1.ModeEnforce, "": v1alpha1.ModeDryRun} {
		set := daemonSet(t, "storage/disk-b-node", registers("disk-b.example.com")+tolerations, "app")
		set.Spec.Selector = &metav1.LabelSelector{MatchLabels: set.Labels}
		r := suggest.Of(world(t, set))
		if len(r.Suggestions) != 1 || r.Suggestions[0].Use != suggest.UseNodeGate {
			t.Fatalf("the suggestions are %+v", r.Suggestions)
		}
		spec := clitest.Decode(t, r.Suggestions[0].Manifest)[0].Spec
		if len(spec.OpenWhen) != 2 || spec.OpenWhen[1].CSIDriver == nil || spec.OpenWhen[0].DaemonSet == nil || spec.Mode != mode {
			t.Errorf("with %q, the gate is in mode %q and waits for %+v", tolerations, spec.Mode, spec.OpenWhen)
		}
	}
}

// A preset that was adjusted to a DaemonSet of another name waits for that one.
func TestPresetWithMoreNodesThanARenamedDaemonSet(t *testing.T) {
	w := world(t, daemonSet(t, "storage/disk-node", registers("disk-a.example.com")+toleratesAll+"nodeSelector: {pool: a}\n"))
	w.Nodes[0].Labels["pool"] = "a"
	s := suggest.Of(w).Suggestions
	if len(s) != 1 || s[0].Preset != "disk-a" {
		t.Fatalf("the suggestions are %+v", s)
	}
	if notes := strings.Join(s[0].Notes, "\n"); !strings.Contains(notes, "selects 2 existing nodes on which DaemonSet storage/disk-node does not run") {
		t.Errorf("the notes are %q", notes)
	}
}

// If a preset waits for pods by their labels, and several DaemonSets have them, those of another
// DaemonSet may run on a node.
func TestPresetForPodsOfSeveralDaemonSets(t *testing.T) {
	preset := asGate("acme", "example.com/acme", "- {name: init, pods: {namespace: kube-system, selector: {matchLabels: {acme: 'true'}}}}")
	on := func(pool string) appsv1.DaemonSet {
		return daemonSet(t, "kube-system/acme-"+pool, mounts("/opt/cni/bin", false)+toleratesAll+"nodeSelector: {pool: "+pool+"}\n", "acme")
	}
	for _, sets := range [][]appsv1.DaemonSet{{on("a")}, {on("a"), on("b")}} {
		w := world(t, sets...)
		w.Presets = asPresets(t, preset)
		for i, pool := range []string{"a", "b", "b"} {
			w.Nodes[i].Labels["pool"] = pool
		}
		s := suggest.Of(w).Suggestions
		if len(s) != 1 || s[0].Preset != "acme" {
			t.Fatalf("the suggestions are %+v", s)
		}
		if notes := strings.Join(s[0].Notes, "\n"); strings.Contains(notes, "does not run") != (len(sets) == 1) {
			t.Errorf("with %d DaemonSets, the notes are %q", len(sets), notes)
		}
	}
}
