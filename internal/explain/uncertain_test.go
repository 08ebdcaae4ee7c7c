// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/explain"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/printer"
)

// factsOf returns the facts about a node that is one hour old and carries the taint of gate agent.
func factsOf(t *testing.T, gates string, n *gate.Node) *explain.Facts {
	t.Helper()
	n.Name, n.UID, n.BootID, n.Created = "n1", "uid", "b", clitest.Now.Add(-time.Hour)
	n.Taints = []corev1.Taint{{Key: "example.com/a", Effect: corev1.TaintEffectNoSchedule}}
	n.Conditions = append(n.Conditions, gate.Condition{Type: string(corev1.NodeReady), Status: corev1.ConditionTrue, Transition: n.Created})
	return &explain.Facts{
		Gates: gateset.Reported(clitest.Declare(t, gates)), Now: clitest.Now,
		Node: gate.Facts{Node: *n, DaemonSets: &gate.DaemonSets{}},
	}
}

// explained decides and explains the decision. The gate is the first one.
func explained(f *explain.Facts) (e *explain.Explanation, g *explain.Gate, text string) {
	f.Decision = f.Gates.Decide(&f.Node, f.Now)
	e = explain.Of(f)
	return e, &e.Gates[0], e.Text(printer.ASCIIMarks)
}

// If the other nodes of a group were not read, nothing is claimed about them, and the next step is
// to read them.
func TestGroupThatWasNotRead(t *testing.T) {
	for name, together := range map[string]string{
		"a number":                 ofFour,
		"a share of a known size":  "openTogether: {labelKey: rack, sizeLabelKey: size, atLeast: 90%}",
		"a share of an other size": "openTogether: {labelKey: rack, sizeLabelKey: other, atLeast: 90%}",
	} {
		t.Run(name, func(t *testing.T) {
			f := factsOf(t, clitest.ByLabel("agent", together), &gate.Node{
				Records: map[string]string{"agent": clitest.Birth}, Labels: map[string]string{"fit": "", "rack": "r1", "size": "4"},
			})
			f.ReadErrors = []explain.ReadError{{Message: "reading the group of gate agent: forbidden", Hides: func(gate.Needs) bool { return false }}}
			_, g, text := explained(f)
			for _, claim := range []string{"have not joined", "no node of the group declares"} {
				if strings.Contains(text, claim) {
					t.Errorf("it is unknown whether nodes %s:\n%s", claim, text)
				}
			}
			if g.Obstacle == nil || !strings.Contains(g.Next, "get permission to read it") {
				t.Errorf("the obstacle is %v, and the next step %q", g.Obstacle, g.Next)
			}
		})
	}
}

// A gate that waits for budget closes when it gets it, not at the time until which its signals had
// to hold again.
func TestThrottledGateClosesAtNoTime(t *testing.T) {
	const gates = `
metadata: {name: agent}
spec:
  taint: {key: example.com/a, effect: NoSchedule}
  reclosePolicy: OnRegression
  openWhen: [{name: network, condition: {type: NetworkFit, status: "True"}}]`
	f := factsOf(t, gates, &gate.Node{
		Records:    map[string]string{"agent": clitest.Opened},
		Conditions: []gate.Condition{{Type: "NetworkFit", Status: corev1.ConditionFalse, Transition: clitest.Now.Add(-10 * time.Minute)}},
	})
	f.Node.Node.Taints = nil
	_, g, text := explained(f)
	if !g.Throttled || !g.ClosesBy.IsZero() || strings.Contains(text, "closes") {
		t.Errorf("throttled %t, closes by %s:\n%s", g.Throttled, g.ClosesBy, text)
	}
}

// The text has the reason of every state, also of an open gate that releases the node, and one that
// only a newer version knows.
func TestTextHasTheReason(t *testing.T) {
	for name, c := range map[string]struct{ spec, record, want string }{
		"an open gate in dry run": {"mode: DryRun", clitest.Opened, "open for 50m, about to release the node, because its mode was changed to DryRun (DryRun)"},
		"a taint that was there before": {
			"", strings.Replace(clitest.Birth, `"Birth"`, `"Adopted"`, 1), "closed for at least 60m, because the node already carried the taint (Adopted)",
		},
		"a reason that is unknown": {
			"", strings.Replace(clitest.Birth, `"Birth"`, `"Newer"`, 1), "closed for 60m (Newer)",
		},
	} {
		f := factsOf(t, clitest.ByLabel("agent", c.spec), &gate.Node{Records: map[string]string{"agent": c.record}})
		if strings.Contains(c.record, "Open") {
			f.Node.Node.Taints = nil
		}
		if _, _, text := explained(f); !strings.Contains(text, "agent: "+c.want+"\n") {
			t.Errorf("%s: want %q:\n%s", name, c.want, text)
		}
	}
}

// The label that excludes the node is the one that the node has.
func TestOptOutLabelIsNamed(t *testing.T) {
	f := factsOf(t, clitest.ByLabel("agent", "")+"\nstatus: {plainOptOut: true}", &gate.Node{
		Records: map[string]string{"agent": clitest.Birth}, Labels: map[string]string{v1alpha1.PlainOptOutLabel: v1alpha1.OptOutValue},
	})
	if _, _, text := explained(f); !strings.Contains(text, v1alpha1.PlainOptOutLabel) || strings.Contains(text, v1alpha1.OptOutLabel) {
		t.Errorf("the node has only the label %s:\n%s", v1alpha1.PlainOptOutLabel, text)
	}
}

// Nobody knows since when a gate is in its state if its record cannot be read.
func TestUnreadableRecordHasNoTime(t *testing.T) {
	for _, mode := range []string{"", "mode: Paused"} {
		f := factsOf(t, clitest.ByLabel("agent", mode), &gate.Node{Records: map[string]string{"agent": "{"}})
		if _, g, text := explained(f); g.State != v1alpha1.StateClosed || !g.Since.IsZero() || strings.Contains(text, "closed for") {
			t.Errorf("%q: closed since %s:\n%s", mode, g.Since, text)
		}
	}
}

// An override that the controller is about to remove, without having applied it, is named with the
// cause.
func TestWithdrawnOverride(t *testing.T) {
	o := gate.Override{State: v1alpha1.StateOpen, Until: clitest.Now.Add(30 * 24 * time.Hour), Reason: "ticket 7", UID: "uid"}
	f := factsOf(t, clitest.ByLabel("agent", ""), &gate.Node{
		Records: map[string]string{"agent": clitest.Birth}, Overrides: map[string]string{"agent": o.String()},
	})
	if e, _, text := explained(f); !strings.Contains(text, "more than 7 days ahead") || e.IgnoredOverrides["agent"] == "" {
		t.Errorf("the output does not say why the override has no effect:\n%s", text)
	}
}

// What keeps the controller from acting on a gate is part of the explanation, even if the signals
// could be read here. A condition about a former spec says nothing.
func TestGateThatIsNotReady(t *testing.T) {
	const status = "\nstatus: {conditions: [{type: Ready, status: 'False', reason: FeedsNotSynced, message: 'cannot observe checks: forbidden', observedGeneration: %d}]}"
	for _, c := range []struct {
		name, spec string
		generation int
		labels     map[string]string
		want       bool
	}{
		{"about to open", "", 0, map[string]string{"fit": ""}, true},
		{"closed", "", 0, nil, true},
		{"in dry run", "mode: DryRun", 0, nil, false},
		{"edited since", "", 7, map[string]string{"fit": ""}, false},
	} {
		f := factsOf(t, clitest.ByLabel("agent", c.spec)+fmt.Sprintf(status, c.generation), &gate.Node{Labels: c.labels, Records: map[string]string{"agent": clitest.Birth}})
		if c.spec != "" {
			f.Node.Node.Records, f.Node.Node.Taints = nil, nil
		}
		_, g, text := explained(f)
		shown := strings.Contains(text, "cannot observe checks: forbidden (FeedsNotSynced)")
		if hinted := strings.Contains(g.Next, "condition Ready"); shown != c.want || hinted != (c.want && g.Becomes != "") {
			t.Errorf("%s: the condition is shown: %t, want %t, and the next step is %q:\n%s", c.name, shown, c.want, g.Next, text)
		}
	}
}

// While an override is in effect, neither the budget nor a lost signal determines what happens next.
func TestOverrideComesFirst(t *testing.T) {
	const regresses = `
metadata: {name: agent}
spec:
  taint: {key: example.com/a, effect: NoSchedule}
  %s
  openWhen: [{name: network, condition: {type: NetworkFit, status: "True"}}]`
	for name, c := range map[string]struct {
		spec, state, record string
		lost                time.Duration
	}{
		"closed, and the signal is lost":    {"reclosePolicy: OnRegression", v1alpha1.StateClosed, clitest.Opened, 10 * time.Minute},
		"closed, and the signal gets lost":  {"reclosePolicy: OnRegression", v1alpha1.StateClosed, clitest.Opened, time.Second},
		"closed, and the node is no member": {"existingNodes: Ignore", v1alpha1.StateClosed, "", time.Second},
		"open, and the signal is lost":      {"reclosePolicy: OnRegression", v1alpha1.StateOpen, clitest.Opened, 10 * time.Minute},
		"open, and the signal gets lost":    {"reclosePolicy: OnRegression", v1alpha1.StateOpen, clitest.Opened, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			o := gate.Override{State: c.state, Until: clitest.Now.Add(time.Hour), Reason: "ticket 7", UID: "uid"}
			n := &gate.Node{
				Overrides:  map[string]string{"agent": o.String()},
				Conditions: []gate.Condition{{Type: "NetworkFit", Status: corev1.ConditionFalse, Transition: clitest.Now.Add(-c.lost)}},
			}
			if c.record != "" {
				n.Records = map[string]string{"agent": c.record}
			}
			if c.state == v1alpha1.StateClosed {
				n.Records = map[string]string{"agent": `{"state":"Open","since":"2026-03-01T02:10:00Z","reason":"SignalsHold","boot":"b","taint":"example.com/a:NoSchedule","reclosed":true,"source":"crd","override":"Closed","overrideSince":"2026-03-01T02:50:00Z"}`}
				if c.record == "" {
					n.Records["agent"] = strings.Replace(n.Records["agent"], "SignalsHold", "Overridden", 1)
				}
			}
			f := factsOf(t, fmt.Sprintf(regresses, c.spec), n)
			if c.state == v1alpha1.StateOpen {
				f.Node.Node.Taints = nil
			}
			_, g, text := explained(f)
			if g.State != c.state || g.Becomes != "" {
				t.Fatalf("the gate is %s, and becomes %q:\n%s", g.State, g.Becomes, text)
			}
			if !g.ClosesBy.IsZero() || strings.HasPrefix(g.Next, "wait: the override ends") != (c.state == v1alpha1.StateClosed) || strings.Contains(g.Next, "stays open") {
				t.Errorf("closes by %s, and the next step is %q:\n%s", g.ClosesBy, g.Next, text)
			}
		})
	}
}

// The record of a deleted gate that cannot be read has no state, and no change of it.
func TestUnreadableRecordOfADeletedGate(t *testing.T) {
	f := factsOf(t, clitest.ByLabel("other", "nodeSelector: {matchLabels: {no: such}}"), &gate.Node{Records: map[string]string{"agent": "{"}})
	f.Node.Node.Taints = nil
	f.Node.CompleteSources = f.Gates.Sources
	if _, g, text := explained(f); g.State != explain.StateNone || g.Becomes != "" || !strings.Contains(text, "agent: not a member\n") {
		t.Errorf("%s, becomes %q:\n%s", g.State, g.Becomes, text)
	}
}

// Nothing blocks a gate that an override opens.
func TestGateThatIsOverriddenOpenIsNotBlocked(t *testing.T) {
	o := gate.Override{State: v1alpha1.StateOpen, Until: clitest.Now.Add(time.Hour), Reason: "ticket 7", UID: "uid"}
	for _, record := range []string{
		clitest.Birth, strings.TrimSuffix(clitest.Birth, "}") + `,"override":"Open","overrideSince":"2026-03-01T02:50:00Z"}`,
	} {
		f := factsOf(t, clitest.ByLabel("agent", "timing: {minClosedSeconds: 7200}"), &gate.Node{
			Records: map[string]string{"agent": record}, Overrides: map[string]string{"agent": o.String()}, Labels: map[string]string{"fit": ""},
		})
		if _, g, text := explained(f); g.Obstacle != nil || strings.Contains(text, "stays closed") {
			t.Errorf("obstacle %v:\n%s", g.Obstacle, text)
		}
	}
}
