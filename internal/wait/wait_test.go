// SPDX-License-Identifier: Apache-2.0

package wait

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

var now = clitest.Now

func byName(nodes ...*gate.Node) map[string]*gate.Node {
	all := make(map[string]*gate.Node, len(nodes))
	for _, n := range nodes {
		all[n.Name] = n
	}
	return all
}

// waitNode returns a node with the given records. It is one hour old, unless isNew is
// applied.
func waitNode(name string, records map[string]string, change ...func(*gate.Node)) *gate.Node {
	n := &gate.Node{Name: name, UID: "uid", Created: now.Add(-time.Hour), Labels: map[string]string{}, Records: records}
	for _, c := range change {
		c(n)
	}
	return n
}

func isNew(n *gate.Node) { n.Created = now }

func isTainted(n *gate.Node) {
	n.Taints = []corev1.Taint{{Key: "example.com/a", Effect: corev1.TaintEffectNoSchedule}}
}

func byHand(state string) func(*gate.Node) {
	return func(n *gate.Node) {
		o := gate.Override{State: state, Until: now.Add(time.Hour), Reason: "x", UID: "uid"}
		n.Overrides = map[string]string{"agent": o.String()}
	}
}

// The state of a node depends on its records and on what is about to happen.
func TestWaitNodeState(t *testing.T) {
	closed, opened := map[string]string{"agent": clitest.Birth}, map[string]string{"agent": clitest.Opened}
	overridden := map[string]string{"agent": `{"state":"Closed","reason":"Birth","taint":"example.com/a:NoSchedule","source":"crd","override":"Open","overrideSince":"2026-03-01T02:50:00Z"}`}
	soft, closedSoftly := strings.Replace(clitest.ByLabel("agent", ""), "NoSchedule", "PreferNoSchedule", 1), map[string]string{"agent": strings.Replace(clitest.Birth, "NoSchedule", "PreferNoSchedule", 1)}
	for name, c := range map[string]struct {
		gates        []string
		only         string
		node         *gate.Node
		open, closed bool
	}{
		"closed":                        {[]string{clitest.ByLabel("agent", "")}, "", waitNode("n1", closed), false, true},
		"open":                          {[]string{clitest.ByLabel("agent", "")}, "", waitNode("n1", opened), true, false},
		"overridden, open":              {[]string{clitest.ByLabel("agent", "")}, "", waitNode("n1", overridden, byHand(v1alpha1.StateOpen)), true, false},
		"override removed":              {[]string{clitest.ByLabel("agent", "")}, "", waitNode("n1", overridden), false, false},
		"overridden, about to close":    {[]string{clitest.ByLabel("agent", "")}, "", waitNode("n1", opened, byHand(v1alpha1.StateClosed)), false, false},
		"not a member":                  {[]string{clitest.ByLabel("agent", "")}, "", waitNode("n1", nil), true, false},
		"new, about to close":           {[]string{clitest.ByLabel("agent", "")}, "", waitNode("n1", nil, isNew), false, false},
		"tainted, about to be adopted":  {[]string{clitest.ByLabel("agent", "")}, "", waitNode("n1", nil, isTainted), false, false},
		"open, and still tainted":       {[]string{clitest.ByLabel("agent", "")}, "", waitNode("n1", opened, isTainted), false, true},
		"tainted by another program":    {nil, "", waitNode("n1", nil, isTainted), true, false},
		"new, opted out":                {[]string{clitest.ByLabel("agent", "")}, "", waitNode("n1", nil, isNew, func(n *gate.Node) { n.Labels[v1alpha1.OptOutLabel] = v1alpha1.OptOutValue }), true, false},
		"new, gate in dry run":          {[]string{clitest.ByLabel("agent", "mode: DryRun")}, "", waitNode("n1", nil, isNew), true, false},
		"new, gate paused":              {[]string{clitest.ByLabel("agent", "mode: Paused")}, "", waitNode("n1", nil, isNew), true, false},
		"held by another gate":          {[]string{clitest.ByLabel("agent", ""), clitest.ByLabel("other", "")}, "", waitNode("n1", map[string]string{"agent": clitest.Opened, "other": clitest.Birth}), false, true},
		"held by a gate not waited for": {[]string{clitest.ByLabel("agent", ""), clitest.ByLabel("other", "")}, "agent", waitNode("n1", map[string]string{"agent": clitest.Opened, "other": clitest.Birth}), true, false},
		"PreferNoSchedule":              {[]string{soft}, "", waitNode("n1", closedSoftly), true, false},
		"PreferNoSchedule, new":         {[]string{soft}, "", waitNode("n1", nil, isNew), true, false},
		"PreferNoSchedule, waited for":  {[]string{soft}, "agent", waitNode("n1", closedSoftly), false, true},
		"PreferNoSchedule, and another": {[]string{soft, clitest.ByLabel("other", "")}, "", waitNode("n1", map[string]string{"agent": closedSoftly["agent"], "other": clitest.Birth}), false, true},
		"effect edited":                 {[]string{soft}, "", waitNode("n1", closed), false, true},
		"effect edited back":            {[]string{clitest.ByLabel("agent", "")}, "", waitNode("n1", closedSoftly), false, true},
		"effect edited, open":           {[]string{soft}, "", waitNode("n1", opened), true, false},
		"held by a gate from a file":    {nil, "", waitNode("n1", map[string]string{"f": strings.ReplaceAll(clitest.Birth, `"crd"`, `"files"`)}), false, true},
		"a condition that is not read":  {[]string{"metadata: {name: agent}\nspec:\n  nodeSelector: {}\n  taint: {key: example.com/a, effect: NoSchedule}\n  closeWhen: [{name: bad, condition: {type: Bad, status: 'True', whenMissing: Holds}}]"}, "", waitNode("n1", nil), true, false},
		"closed until opened manually":  {[]string{strings.Replace(clitest.Follows, "closeWhen", "reopen: Manual\n  closeWhen", 1)}, "", waitNode("n1", map[string]string{"follows": strings.ReplaceAll(clitest.Birth, "/a:", "/b:")}, func(n *gate.Node) { n.Labels["pool"] = "a" }), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			for want, is := range map[string]bool{Open: c.open, Closed: c.closed} {
				w := New(want, c.only, nil, gateset.Reported(clitest.Declare(t, c.gates...)))
				if w.Start(byName(c.node), now); w.Met() != is {
					t.Errorf("%s: %v, held by %v", want, w.Met(), w.nodes["n1"].heldBy)
				}
			}
		})
	}
}

// Nodes are created, changed, deleted and created again.
func TestWaitFollowsNodes(t *testing.T) {
	closed, opened := map[string]string{"agent": clitest.Birth}, map[string]string{"agent": clitest.Opened}
	type step struct {
		node     string
		records  map[string]string
		gone     bool
		met      bool
		progress string
	}
	for name, c := range map[string]struct {
		names []string
		steps []step
	}{
		"named": {[]string{"n1", "n2"}, []step{
			{node: "other", records: closed, progress: "0 of 2 nodes are open; waiting for n1 (does not exist) and n2 (does not exist)"},
			{node: "n1", records: opened, progress: "1 of 2 nodes are open; waiting for n2 (does not exist)"},
			{node: "n2", records: closed, progress: "1 of 2 nodes are open; waiting for n2 (agent)"},
			{node: "n2", records: opened, met: true, progress: "2 of 2 nodes are open"},
			{node: "n1", gone: true, progress: "1 of 2 nodes are open; waiting for n1 (does not exist)"},
			{node: "n1", records: closed, progress: "1 of 2 nodes are open; waiting for n1 (agent)"},
			{node: "n1", records: opened, met: true, progress: "2 of 2 nodes are open"},
		}},
		"all": {nil, []step{
			{node: "n1", gone: true, progress: "no such node exists yet"},
			{node: "n1", records: closed, progress: "0 of 1 nodes are open; waiting for n1 (agent)"},
			{node: "n2", records: opened, progress: "1 of 2 nodes are open; waiting for n1 (agent)"},
			{node: "n1", gone: true, met: true, progress: "1 of 1 nodes are open"},
			{node: "n3", records: closed, progress: "1 of 2 nodes are open; waiting for n3 (agent)"},
			{node: "n4", records: closed, progress: "1 of 3 nodes are open; waiting for n3 (agent) and n4 (agent)"},
			{node: "n5", records: closed, progress: "1 of 4 nodes are open; waiting for n3 (agent), n4 (agent) and n5 (agent)"},
			{node: "n6", records: closed, progress: "1 of 5 nodes are open; waiting for n3 (agent), n4 (agent), n5 (agent) and 1 more"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := New(Open, "", c.names, gateset.Reported(clitest.Declare(t, clitest.ByLabel("agent", ""))))
			w.Start(nil, now)
			for i, s := range c.steps {
				n := waitNode(s.node, s.records)
				if s.gone {
					n = nil
				}
				w.Update(s.node, n, now)
				if w.Met() != s.met || w.Progress() != s.progress {
					t.Errorf("after step %d: met %v, progress %q", i, w.Met(), w.Progress())
				}
			}
		})
	}
}

// testdata contains the expected output.
func TestWaitResult(t *testing.T) {
	nodes := []*gate.Node{waitNode("n1", map[string]string{"agent": clitest.Opened}), waitNode("n2", map[string]string{"agent": clitest.Birth})}
	for _, c := range []struct{ name, want, gate string }{{"open", Open, ""}, {"closed", Closed, ""}, {"gate", Open, "agent"}} {
		w := New(c.want, c.gate, []string{"n1", "n2", "n3"}, gateset.Reported(clitest.Declare(t, clitest.ByLabel("agent", ""))))
		w.Start(byName(nodes...), now)
		r := w.Result()
		raw, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		clitest.Golden(t, c.name+".txt", r.Text())
		clitest.Golden(t, c.name+".name.txt", r.Names())
		clitest.Golden(t, c.name+".json", string(raw)+"\n")
	}
}

// Waiting for a gate that closes on no node causes a warning.
func TestWaitWarns(t *testing.T) {
	declared := clitest.Declare(t, clitest.ByLabel("agent", ""), clitest.ByLabel("dry", "mode: DryRun"), "metadata: {name: broken}\nspec:\n  nodeSelector: {}\n  taint: {key: example.com/b, effect: NoSchedule}")
	for name, want := range map[string]string{
		"": "", "agent": "", "dry": "is in dry run and holds no nodes",
		"broken": "is not in force: compiling openWhen and closeWhen: neither has a signal",
	} {
		if got := New(Closed, name, []string{"n1"}, gateset.Reported(declared)).Warning(); got != want {
			t.Errorf("gate %q %s, want %q", name, got, want)
		}
	}
}
