// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"
)

const cniRecord = `{"state":"Closed","reason":"Birth","boot":"b","taint":"` + cniTaint + `","source":"crd"}`

func taintsOf(texts ...string) []corev1.Taint {
	var all []corev1.Taint
	for _, text := range texts {
		t, ok := parseTaint(text)
		if !ok {
			panic(text)
		}
		all = append(all, t.Core())
	}
	return all
}

func TestBirthByWebhook(t *testing.T) {
	gpu := aGate("gpu", selecting("pool=gpu"), tainting("gpu.example/x:NoExecute"))
	fit := labels.Set{"flag/cni": "holds"} // the signal of the gate "cni" would hold
	for name, test := range map[string]struct {
		node    Node
		taints  []string
		records map[string]string
	}{
		"closed although its signal would hold": {Node{Labels: fit}, []string{cniTaint}, map[string]string{"cni": cniRecord}},
		"two gates, without times": {Node{Labels: labels.Set{"pool": "gpu"}}, []string{cniTaint, "gpu.example/x:NoExecute"}, map[string]string{
			"cni": cniRecord, "gpu": `{"state":"Closed","reason":"Birth","boot":"b","taint":"gpu.example/x:NoExecute","source":"crd"}`}},
		"already present":                     {Node{Taints: taintsOf(cniTaint), Records: map[string]string{"cni": cniRecord}}, []string{cniTaint}, nil},
		"another value":                       {Node{Taints: taintsOf("cni.example/not-ready=x:NoSchedule", "a.example/b:NoExecute")}, []string{"cni.example/not-ready=x:NoSchedule", "a.example/b:NoExecute"}, map[string]string{"cni": cniRecord}},
		"another effect is kept":              {Node{Taints: taintsOf("cni.example/not-ready:NoExecute")}, []string{"cni.example/not-ready:NoExecute", cniTaint}, map[string]string{"cni": cniRecord}},
		"twice, which the API server rejects": {Node{Taints: taintsOf(cniTaint, cniTaint)}, []string{cniTaint, cniTaint}, map[string]string{"cni": cniRecord}},
		"submitted records are not trusted": {
			Node{Records: map[string]string{"cni": `{"state":"Open"}`, "gpu": `{"state":"Closed","taint":"a.example/b:NoExecute"}`, "other": "x"}, Taints: taintsOf("a.example/b:NoExecute")},
			[]string{"a.example/b:NoExecute", cniTaint}, map[string]string{"cni": cniRecord, "gpu": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			test.node.BootID = "b"
			d := Birth([]Gate{aGate("cni", createdAgo(-time.Hour)), gpu}, test.node)
			if diff := cmp.Diff(taintsOf(test.taints...), d.Taints); diff != "" {
				t.Errorf("taints (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.records, d.Records, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			if want := test.records != nil; d.Changes != want {
				t.Errorf("changes: %t", d.Changes)
			}
		})
	}
}

// For any gates and nodes, Birth is idempotent, keeps the order of foreign taints, and
// returns what the controller wants when it observes the Node later.
func TestBirthIsWhatTheControllerWants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gates := slices.DeleteFunc(randomGates(t), func(g Gate) bool { return g.CloseWhen })
		n := Node{Name: "n", BootID: "b", Labels: rapid.SampledFrom([]labels.Set{nil, {"pool": "gpu"}}).Draw(t, "labels"), Taints: slices.Clone(taintsOf(
			rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"foreign.example/x:NoSchedule", "shared.example/x:NoExecute"}), 0, 3, rapid.ID[string]).Draw(t, "taints")...))}
		for _, name := range gateNames {
			if rapid.Bool().Draw(t, "record of "+name) {
				n.Records = with(n.Records, name, rapid.SampledFrom([]string{"", `{"state":"Open"}`, cniRecord}).Draw(t, "record"))
			}
		}
		d := Birth(gates, n)
		born := n
		born.Taints, born.Records = d.Taints, maps.Clone(n.Records)
		for name, raw := range d.Records {
			if raw == "" {
				delete(born.Records, name)
			} else {
				born.Records = with(born.Records, name, raw)
			}
		}
		if again := Birth(gates, born); again.Changes {
			t.Fatalf("a second call writes again: %+v", again)
		}
		for i, taint := range n.Taints {
			if got := born.Taints[i]; got.Key != taint.Key || got.Effect != taint.Effect || taint.Key == "foreign.example/x" && got != taint {
				t.Fatalf("taint %d was %v and is %v", i, taint, got)
			}
		}
		born.Created = epoch
		for _, g := range gates {
			if g.Selector.Matches(born.Labels) && born.taint(g.Taint.Key, g.Taint.Effect) < 0 {
				t.Fatalf("gate %s is not closed: %v", g.Name, born.Taints)
			}
		}
		// All signals are unknown. Records of gates that do not exist are kept.
		known := maps.Clone(born.Records)
		maps.DeleteFunc(known, func(name, _ string) bool {
			return !slices.ContainsFunc(gates, func(g Gate) bool { return g.Name == name })
		})
		born.Records = known
		// The policy does not know a gate's recloseTaint. If the Node was submitted
		// with it, the controller removes it.
		astray := slices.ContainsFunc(gates, func(g Gate) bool { return n.taint(g.RecloseTaint.Key, g.RecloseTaint.Effect) >= 0 })
		if later := Decide(gates, &Facts{Node: born}, epoch.Add(time.Second)); later.Changes && !astray {
			t.Fatalf("the controller writes %v %v to a node with %v %v", later.Taints, later.Records, born.Taints, born.Records)
		}
	})
}

func with(m map[string]string, key, value string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]string{}
	}
	out[key] = value
	return out
}
