// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/printer"
)

// roster returns nodes that are one hour old, by name, with their records, by gate.
func roster(records map[string]map[string]string) []*gate.Node {
	var nodes []*gate.Node
	for name, r := range records {
		n := &gate.Node{Name: name, UID: "uid", Created: clitest.Now.Add(-time.Hour), Labels: map[string]string{"pool": "a"}, Records: r}
		if name == "out" {
			n.Labels[v1alpha1.OptOutLabel] = v1alpha1.OptOutValue
		}
		nodes = append(nodes, n)
	}
	return nodes
}

const statusOf = `
status:
  observedGeneration: 2
  nodes: {selected: 60, open: 56, closed: 4, overdue: 1, throttled: 2, overridden: 1}
  waiting:
  - {node: n17, since: "2026-03-01T02:48:00Z", signal: pod, reason: PodNotReady, message: pod kube-system/agent-x is not ready}
  - {node: n4, since: "2026-03-01T02:59:00Z", signal: pod, reason: PodMissing, message: kube-system/agent has no pod on this node}
  conditions:
  - {type: Accepted, status: "True", reason: Accepted, message: "", lastTransitionTime: null}
`

const (
	isReady   = "  - {type: Ready, status: \"True\", reason: Ready, message: no problems, lastTransitionTime: null}\n"
	isUnready = "  - {type: Ready, status: \"False\", reason: FeedsNotSynced, message: cannot observe pods, lastTransitionTime: null}\n"
	isLate    = "  - {type: Overdue, status: \"True\", reason: DeadlinePassed, message: n17 has passed the deadline, lastTransitionTime: null}\n"
)

// Records of gates from files, on a node that the deadline opened, and on one that is overridden besides.
const (
	openedByDeadline        = `{"state":"Open","reason":"DeadlinePassed","since":"2026-03-01T02:30:00Z","taint":"example.com/f:NoSchedule","source":"files"}`
	overriddenAfterDeadline = `{"state":"Open","reason":"DeadlinePassed","taint":"example.com/f:NoSchedule","source":"files","override":"Closed","overrideSince":"2026-03-01T02:50:00Z"}`
)

// generation sets the generation of a gate.
func generation(text string, n int) string {
	return strings.Replace(text, "metadata: {", fmt.Sprintf("metadata: {generation: %d, ", n), 1)
}

// testdata contains the expected output of each case, for a terminal, for a pipe, with
// -o wide and as JSON.
func TestStatus(t *testing.T) {
	running := Controller{Running: Yes, Holder: "nodegate-7d9f", Renewed: clitest.Now.Add(-3 * time.Second), Message: "the controller is running: nodegate-7d9f renewed its lease 3s ago"}
	away := Controller{Running: No, Message: "no controller is running: the last one released its lease 5m ago"}
	fleetRecords := map[string]map[string]string{
		"n1":  {"agent": clitest.Birth, "files": `{"state":"Closed","reason":"Birth","taint":"example.com/f:NoSchedule","source":"files"}`},
		"n2":  {"agent": clitest.Opened, "gone": clitest.Birth},
		"n3":  {"agent": `{"state":"Closed","reason":"Birth","taint":"example.com/a:NoSchedule","source":"crd","override":"Open","overrideSince":"2026-03-01T02:50:00Z"}`},
		"n4":  {"agent": `{"state":"Closed","since":"2026-03-01T01:00:00Z","reason":"Rebooted","boot":"b","taint":"example.com/a:NoSchedule","source":"crd","overdue":true}`},
		"n5":  {"agent": "{"},
		"out": nil,
	}
	for _, c := range []struct {
		name       string
		gates      []string
		nodes      map[string]map[string]string
		unread     bool
		controller Controller
		only       []string
		well       bool
	}{
		{name: "healthy", gates: []string{generation(clitest.ByLabel("agent", ""), 2) + statusOf + isReady, generation(clitest.ByLabel("dry", "mode: DryRun"), 2) + statusOf +
			"  - {type: Ready, status: \"True\", reason: DryRun, message: no node is changed, lastTransitionTime: null}\n"}, controller: running, well: true},
		{name: "problems", gates: []string{generation(clitest.ByLabel("agent", ""), 2) + statusOf + isUnready + isLate, generation(clitest.ByLabel("edited", ""), 3) + statusOf + isReady, generation(clitest.ByLabel("new", ""), 1)},
			nodes: map[string]map[string]string{"n1": {"edited": clitest.Birth}}, controller: running},
		{name: "overdue-records", controller: running, nodes: map[string]map[string]string{
			"n1": {"files": `{"state":"Closed","reason":"Birth","taint":"example.com/f:NoSchedule","source":"files","overdue":true}`}}},
		{name: "opened-by-deadline", controller: running, nodes: map[string]map[string]string{
			"n1": {"files": openedByDeadline, "overridden": overriddenAfterDeadline}, "n2": {"files": openedByDeadline}, "n3": {"files": openedByDeadline}, "n4": {"files": openedByDeadline},
			"n5": {"files": `{"state":"Open","reason":"SignalsHold","taint":"example.com/f:NoSchedule","source":"files"}`}}},
		{name: "records", gates: []string{generation(clitest.ByLabel("agent", ""), 2) + statusOf + isReady, clitest.Follows}, nodes: fleetRecords, controller: away},
		{name: "one", gates: []string{generation(clitest.ByLabel("agent", ""), 2) + statusOf + isReady}, nodes: fleetRecords, controller: running, only: []string{"agent"}, well: true},
		{name: "unreadable", gates: []string{generation(clitest.ByLabel("agent", ""), 2) + statusOf + isReady, generation(clitest.ByLabel("new", ""), 1)}, unread: true,
			controller: Controller{Running: Unknown, Message: "it is unknown whether a controller is running: leases is forbidden"}, well: true},
		{name: "none", controller: running, well: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &Facts{Gates: gateset.Reported(clitest.Declare(t, c.gates...)), Nodes: roster(c.nodes), NodesUnread: c.unread, Controller: c.controller, Now: clitest.Now}
			if c.unread {
				f.Unread = []string{"listing nodes: nodes is forbidden"}
			}
			s := Of(f)
			if len(c.only) > 0 {
				s.Keep(c.only)
			}
			if s.Well != c.well {
				t.Errorf("well is %v", s.Well)
			}
			raw, err := json.MarshalIndent(s, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			clitest.Golden(t, c.name+".txt", s.Text(printer.UnicodeMarks, false))
			clitest.Golden(t, c.name+".pipe.txt", s.Text(printer.ASCIIMarks, false))
			clitest.Golden(t, c.name+".wide.txt", s.Text(printer.UnicodeMarks, true))
			clitest.Golden(t, c.name+".name.txt", s.KubectlNames())
			clitest.Golden(t, c.name+".json", string(raw)+"\n")
		})
	}
}

// A status that is outdated says nothing about the nodes, neither with its counts nor with
// the nodes that are not members.
func TestOutdatedStatusHasNoNodes(t *testing.T) {
	text := generation(clitest.ByLabel("agent", ""), 3) + statusOf + isReady +
		"  nonMembers: [{reason: CreatedBeforeGate, message: created before the gate, count: 1, nodes: [n9]}]\n"
	for _, unread := range []bool{false, true} {
		s := Of(&Facts{Gates: gateset.Reported(clitest.Declare(t, text)), NodesUnread: unread, Controller: Controller{Running: Yes}, Now: clitest.Now})
		if g := &s.Gates[0]; g.Stale == "" || len(g.NonMembers)+len(g.Waiting) > 0 {
			t.Errorf("nodes unread %t, stale %q: not members %+v, waiting %+v", unread, g.Stale, g.NonMembers, g.Waiting)
		}
	}
}

// A dry run writes no records, so without a current status, nothing is known of it. Records remain on
// nodes that the gate could not open.
func TestOutdatedStatusOfADryRun(t *testing.T) {
	for held, want := range map[bool]string{false: "dry  DryRun  ? Stale  ?  ?  ?  ?  ?  ?  -", true: "dry  DryRun  ? Stale  2  0  1  0  ?  0  n1 (60m)"} {
		records := map[string]map[string]string{"n1": nil, "n2": nil}
		if held {
			records["n1"] = map[string]string{"dry": clitest.Birth}
		}
		s := Of(&Facts{Gates: gateset.Reported(clitest.Declare(t, generation(clitest.ByLabel("dry", "mode: DryRun"), 2)+statusOf)), Nodes: roster(records), Controller: Controller{Running: No, Message: "none"}, Now: clitest.Now})
		if text := regexp.MustCompile("  +").ReplaceAllString(s.Text(printer.ASCIIMarks, false), "  "); !strings.Contains(text, want) {
			t.Errorf("with records %t:\n%s", held, text)
		}
	}
}

// A gate that is invalid is reported even if the controller has not reported it: the
// controller cannot write the status of such a gate, or may not be running.
func TestStatusOfABrokenGate(t *testing.T) {
	declared := clitest.Declare(t, clitest.ByLabel("agent", ""), "metadata: {name: broken}\nspec:\n  nodeSelector: {}\n  taint: {key: example.com/b, effect: NoSchedule}")
	declared[0].ReadError, declared[0].Spec.Mode = "json: cannot unmarshal", ""
	s := Of(&Facts{Gates: gateset.Reported(declared), Controller: Controller{Running: Yes}, Now: clitest.Now})
	for i, want := range []string{"cannot read: json: cannot unmarshal", "neither has a signal"} {
		g := &s.Gates[i]
		if g.isWell() || g.Reason != v1alpha1.ReasonNotAccepted || !strings.Contains(g.Message, want) || g.ready(printer.UnicodeMarks) != "✗ NotAccepted" {
			t.Errorf("gate %s is %s (%s): %s", g.Gate, g.Ready, g.Reason, g.Message)
		}
	}
	if s.Gates[0].Mode != "" || s.Gates[1].Mode != v1alpha1.ModeEnforce {
		t.Errorf("their modes are %q and %q", s.Gates[0].Mode, s.Gates[1].Mode)
	}
}
