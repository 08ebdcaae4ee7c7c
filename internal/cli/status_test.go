// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// declare parses NodeGates.
func declare(t *testing.T, texts ...string) []v1alpha1.NodeGate {
	t.Helper()
	var declared []v1alpha1.NodeGate
	for _, text := range texts {
		var ng v1alpha1.NodeGate
		if err := yaml.UnmarshalStrict([]byte(text), &ng); err != nil {
			t.Fatal(err)
		}
		ng.CreationTimestamp.Time = now.Add(-30 * time.Minute)
		declared = append(declared, ng)
	}
	return declared
}

// roster returns nodes that are one hour old, by name, with their records, by gate.
func roster(records map[string]map[string]string) []*gate.Node {
	var nodes []*gate.Node
	for name, r := range records {
		n := &gate.Node{Name: name, UID: "uid", Created: now.Add(-time.Hour), Labels: map[string]string{"pool": "a"}, Records: r}
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

// generation sets the generation of a gate.
func generation(text string, n int) string {
	return strings.Replace(text, "metadata: {", fmt.Sprintf("metadata: {generation: %d, ", n), 1)
}

const openRecord = `{"state":"Open","reason":"SignalsHold","since":"2026-03-01T02:10:00Z","boot":"b","source":"crd"}`

// testdata contains the expected output of each case, for a terminal, for a pipe, with
// -o wide and as JSON.
func TestStatus(t *testing.T) {
	running := Controller{Running: answerYes, Holder: "nodegate-7d9f", Renewed: now.Add(-3 * time.Second), Message: "the controller is running: nodegate-7d9f renewed its lease 3s ago"}
	away := Controller{Running: answerNo, Message: "no controller is running: the last one released its lease 5m ago"}
	fleetRecords := map[string]map[string]string{
		"n1":  {"agent": birth, "files": `{"state":"Closed","reason":"Birth","taint":"example.com/f:NoSchedule","source":"files"}`},
		"n2":  {"agent": openRecord, "gone": birth},
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
		{name: "healthy", gates: []string{generation(byLabel("agent", ""), 2) + statusOf + isReady, generation(byLabel("dry", "mode: DryRun"), 2) + statusOf +
			"  - {type: Ready, status: \"True\", reason: DryRun, message: no node is changed, lastTransitionTime: null}\n"}, controller: running, well: true},
		{name: "problems", gates: []string{generation(byLabel("agent", ""), 2) + statusOf + isUnready + isLate, generation(byLabel("edited", ""), 3) + statusOf + isReady, generation(byLabel("new", ""), 1)},
			nodes: map[string]map[string]string{"n1": {"edited": birth}}, controller: running},
		{name: "records", gates: []string{generation(byLabel("agent", ""), 2) + statusOf + isReady, follows}, nodes: fleetRecords, controller: away},
		{name: "one", gates: []string{generation(byLabel("agent", ""), 2) + statusOf + isReady}, nodes: fleetRecords, controller: running, only: []string{"agent"}, well: true},
		{name: "unreadable", gates: []string{generation(byLabel("agent", ""), 2) + statusOf + isReady, generation(byLabel("new", ""), 1)}, unread: true,
			controller: Controller{Running: answerUnknown, Message: "it is unknown whether a controller is running: leases is forbidden"}, well: true},
		{name: "none", controller: running, well: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &FleetStatus{Time: now, Controller: c.controller, Gates: []GateStatus{}}
			if c.unread {
				f.Unread = []string{"listing nodes: nodes is forbidden"}
			}
			f.fill(declare(t, c.gates...), roster(c.nodes), !c.unread)
			if err := f.choose(c.only); err != nil {
				t.Fatal(err)
			}
			if f.judge(); f.Well != c.well {
				t.Errorf("well is %v", f.Well)
			}
			raw, err := json.MarshalIndent(f, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "status/"+c.name+".txt", f.text(signs, ""))
			golden(t, "status/"+c.name+".pipe.txt", f.text(plainMarks, ""))
			golden(t, "status/"+c.name+".wide.txt", f.text(signs, formatWide))
			golden(t, "status/"+c.name+".name.txt", f.text(plainMarks, formatName))
			golden(t, "status/"+c.name+".json", string(raw)+"\n")
		})
	}
}

const follows = `
metadata: {name: follows}
spec:
  nodeSelector: {matchLabels: {pool: a}}
  taint: {key: example.com/b, effect: NoSchedule}
  closeWhen: [{name: broken, label: {key: broken}}]`

// A gate that is invalid is reported even if the controller has not reported it: the
// controller cannot write the status of such a gate, or may not be running.
func TestStatusOfABrokenGate(t *testing.T) {
	declared := declare(t, byLabel("agent", ""), "metadata: {name: broken}\nspec:\n  nodeSelector: {}\n  taint: {key: example.com/b, effect: NoSchedule}")
	declared[0].ReadError, declared[0].Spec.Mode = "json: cannot unmarshal", ""
	f := &FleetStatus{Controller: Controller{Running: answerYes}}
	f.fill(declared, nil, true)
	for i, want := range []string{"cannot read: json: cannot unmarshal", "neither has a signal"} {
		g := &f.Gates[i]
		if g.isWell() || g.Reason != v1alpha1.ReasonNotAccepted || !strings.Contains(g.Message, want) || g.ready(signs) != "✗ NotAccepted" {
			t.Errorf("gate %s is %s (%s): %s", g.Gate, g.Ready, g.Reason, g.Message)
		}
	}
	if f.Gates[0].Mode != "" || f.Gates[1].Mode != v1alpha1.ModeEnforce {
		t.Errorf("their modes are %q and %q", f.Gates[0].Mode, f.Gates[1].Mode)
	}
}

// A mistyped gate name is an error.
func TestStatusOfNoSuchGate(t *testing.T) {
	f := &FleetStatus{}
	f.fill(declare(t, byLabel("agent", ""), byLabel("agents", "")), nil, true)
	if err := f.choose([]string{"agnet"}); err == nil || err.Error() != `gate "agnet" not found; did you mean agent?` {
		t.Errorf("error %v", err)
	}
}

// The Lease determines whether a controller is running.
func TestLeader(t *testing.T) {
	lease := func(holder *string, age time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: holder, LeaseDurationSeconds: ptr.To(int32(15)), RenewTime: ptr.To(metav1.NewMicroTime(now.Add(-age))),
		}}
	}
	for name, c := range map[string]struct {
		lease   *coordinationv1.Lease
		running string
		want    string
	}{
		"running":                {lease(ptr.To("a"), 2*time.Second), answerYes, "a renewed its lease 2s ago"},
		"late, or clocks differ": {lease(ptr.To("a"), 29*time.Second), answerYes, "29s ago"},
		"its clock is ahead":     {lease(ptr.To("a"), -time.Minute), answerYes, "0s ago"},
		"gone":                   {lease(ptr.To("a"), 31*time.Second), answerNo, "no controller is running: a last renewed"},
		"released":               {lease(ptr.To(""), time.Second), answerNo, "released its lease 1s ago"},
		"without holder":         {lease(nil, time.Hour), answerNo, "released its lease"},
		"never renewed":          {&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a")}}, answerNo, "no controller is running"},
	} {
		if got := judge(c.lease, now); got.Running != c.running || !strings.Contains(got.Message, c.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
