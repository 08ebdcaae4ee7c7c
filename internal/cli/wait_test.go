// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// waitNode returns a node with the given records. It is one hour old, unless isNew is
// applied.
func waitNode(name string, records map[string]string, change ...func(*gate.Node)) *gate.Node {
	n := &gate.Node{Name: name, UID: "uid", Created: now.Add(-time.Hour), Labels: map[string]string{}, Records: records}
	for _, c := range change {
		c(n)
	}
	return n
}

func isNew(n *gate.Node) { n.Created = time.Now() }

func byHand(state string) func(*gate.Node) {
	return func(n *gate.Node) {
		o := gate.Override{State: state, Until: time.Now().Add(time.Hour), Reason: "x", UID: "uid"}
		n.Overrides = map[string]string{"agent": o.String()}
	}
}

// The state of a node depends on its records and on what is about to happen.
func TestWaitNodeState(t *testing.T) {
	closed, opened := map[string]string{"agent": birth}, map[string]string{"agent": openRecord}
	overridden := map[string]string{"agent": `{"state":"Closed","reason":"Birth","taint":"example.com/a:NoSchedule","source":"crd","override":"Open","overrideSince":"2026-03-01T02:50:00Z"}`}
	for name, c := range map[string]struct {
		gates        []string
		only         string
		node         *gate.Node
		open, closed bool
	}{
		"closed":                        {[]string{byLabel("agent", "")}, "", waitNode("n1", closed), false, true},
		"open":                          {[]string{byLabel("agent", "")}, "", waitNode("n1", opened), true, false},
		"overridden, open":              {[]string{byLabel("agent", "")}, "", waitNode("n1", overridden, byHand(v1alpha1.StateOpen)), true, false},
		"override removed":              {[]string{byLabel("agent", "")}, "", waitNode("n1", overridden), false, false},
		"overridden, about to close":    {[]string{byLabel("agent", "")}, "", waitNode("n1", opened, byHand(v1alpha1.StateClosed)), false, false},
		"not a member":                  {[]string{byLabel("agent", "")}, "", waitNode("n1", nil), true, false},
		"new, about to close":           {[]string{byLabel("agent", "")}, "", waitNode("n1", nil, isNew), false, false},
		"new, opted out":                {[]string{byLabel("agent", "")}, "", waitNode("n1", nil, isNew, func(n *gate.Node) { n.Labels[v1alpha1.OptOutLabel] = v1alpha1.OptOutValue }), true, false},
		"new, gate in dry run":          {[]string{byLabel("agent", "mode: DryRun")}, "", waitNode("n1", nil, isNew), true, false},
		"new, gate paused":              {[]string{byLabel("agent", "mode: Paused")}, "", waitNode("n1", nil, isNew), true, false},
		"held by another gate":          {[]string{byLabel("agent", ""), byLabel("other", "")}, "", waitNode("n1", map[string]string{"agent": openRecord, "other": birth}), false, true},
		"held by a gate not waited for": {[]string{byLabel("agent", ""), byLabel("other", "")}, "agent", waitNode("n1", map[string]string{"agent": openRecord, "other": birth}), true, false},
		"held by a gate from a file":    {nil, "", waitNode("n1", map[string]string{"f": strings.ReplaceAll(birth, `"crd"`, `"files"`)}), false, true},
		"a condition that is not read":  {[]string{"metadata: {name: agent}\nspec:\n  nodeSelector: {}\n  taint: {key: example.com/a, effect: NoSchedule}\n  closeWhen: [{name: bad, condition: {type: Bad, status: 'True', whenMissing: Holds}}]"}, "", waitNode("n1", nil), true, false},
		"closed until opened manually":  {[]string{strings.Replace(follows, "closeWhen", "reopen: Manual\n  closeWhen", 1)}, "", waitNode("n1", map[string]string{"follows": strings.ReplaceAll(birth, "/a:", "/b:")}, func(n *gate.Node) { n.Labels["pool"] = "a" }), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			for want, is := range map[string]bool{waitOpen: c.open, waitClosed: c.closed} {
				w := newWaiting(want, c.only, nil, declare(t, c.gates...))
				if w.start(byName([]*gate.Node{c.node})); w.met() != is {
					t.Errorf("%s: %v, held by %v", want, w.met(), w.nodes["n1"].heldBy)
				}
			}
		})
	}
}

// Nodes are created, changed, deleted and created again.
func TestWaitFollowsNodes(t *testing.T) {
	closed, opened := map[string]string{"agent": birth}, map[string]string{"agent": openRecord}
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
			w := newWaiting(waitOpen, "", c.names, declare(t, byLabel("agent", "")))
			w.start(nil)
			for i, s := range c.steps {
				n := waitNode(s.node, s.records)
				if s.gone {
					n = nil
				}
				w.update(s.node, n)
				if w.met() != s.met || w.progress() != s.progress {
					t.Errorf("after step %d: met %v, progress %q", i, w.met(), w.progress())
				}
			}
		})
	}
}

// testdata contains the expected output.
func TestWaitResult(t *testing.T) {
	nodes := []*gate.Node{waitNode("n1", map[string]string{"agent": openRecord}), waitNode("n2", map[string]string{"agent": birth})}
	for _, c := range []struct{ name, want, gate string }{{"open", waitOpen, ""}, {"closed", waitClosed, ""}, {"gate", waitOpen, "agent"}} {
		w := newWaiting(c.want, c.gate, []string{"n1", "n2", "n3"}, declare(t, byLabel("agent", "")))
		w.start(byName(nodes))
		r := w.result()
		raw, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "wait/"+c.name+".txt", r.text(""))
		golden(t, "wait/"+c.name+".name.txt", r.text(formatName))
		golden(t, "wait/"+c.name+".json", string(raw)+"\n")
	}
}

// Waiting for a gate that closes on no node causes a warning.
func TestWaitWarns(t *testing.T) {
	declared := declare(t, byLabel("agent", ""), byLabel("dry", "mode: DryRun"), "metadata: {name: broken}\nspec:\n  nodeSelector: {}\n  taint: {key: example.com/b, effect: NoSchedule}")
	for name, want := range map[string]string{
		"": "", "agent": "", "dry": "is in dry run and holds no nodes",
		"broken": "is not in force: compiling openWhen and closeWhen: neither has a signal",
	} {
		if got := newWaiting(waitClosed, name, []string{"n1"}, declared).warning(); got != want {
			t.Errorf("gate %q %s, want %q", name, got, want)
		}
	}
}

// Progress is one line of a terminal, which is cleared at the end. Elsewhere there is no
// progress line.
func TestProgressLine(t *testing.T) {
	var out bytes.Buffer
	if line := newProgressLine(&out); line.out != nil {
		t.Error("a buffer is treated as a terminal")
	}
	for _, line := range []*progressLine{{}, {out: &out}} {
		line.show("1 of 2")
		line.show("1 of 2")
		line.show("2 of 2")
		line.clear()
		line.clear()
	}
	if want := "\r\x1b[K1 of 2\r\x1b[K2 of 2\r\x1b[K"; out.String() != want {
		t.Errorf("output %q, want %q", out.String(), want)
	}
}

// Without signals, no signal holds, not even one that reads a label.
func TestCompileWithoutSignals(t *testing.T) {
	broken := waitNode("n1", nil, func(n *gate.Node) { n.Labels = map[string]string{"pool": "a", "broken": ""} })
	for name, c := range map[string]struct {
		compile func([]v1alpha1.NodeGate) *snapshot
		wants   gate.Want
	}{"with signals": {compile, gate.WantBudget}, "without signals": {compileWithoutSignals, ""}} {
		s := c.compile(declare(t, follows))
		s.now = now
		d := s.decideFromRecords(broken)
		if v := d.Verdict("follows"); v == nil || v.Wants != c.wants {
			t.Errorf("%s: the verdict is %+v", name, v)
		}
	}
}
