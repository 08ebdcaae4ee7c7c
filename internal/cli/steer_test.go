// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// steered is a node of an hour with records, by gate, and with the taint of gate
// agent where one is closed.
func steered(records map[string]string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n1", UID: "uid", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)), Labels: map[string]string{}, Annotations: map[string]string{},
	}}
	for name, raw := range records {
		n.Annotations[v1alpha1.RecordAnnotationPrefix+name] = raw
		if r, err := gate.ParseRecord(raw); err == nil && r.State == v1alpha1.StateClosed && r.Override == "" && len(n.Spec.Taints) == 0 {
			n.Spec.Taints = []corev1.Taint{{Key: "foreign", Effect: corev1.TaintEffectNoSchedule}, {Key: "example.com/a", Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	for _, c := range change {
		c(n)
	}
	return n
}

func optedOut(n *corev1.Node) { n.Labels[v1alpha1.OptOutLabel] = v1alpha1.OptOutValue }

const manual = `
metadata: {name: agent}
spec:
  taint: {key: example.com/a, effect: NoSchedule}
  reopen: Manual
  closeWhen: [{name: broken, label: {key: broken}}]`

// What is foretold of each is in testdata, for people and for programs.
func TestForesee(t *testing.T) {
	closed, opened := map[string]string{"agent": birth}, map[string]string{"agent": openRecord}
	byHand := map[string]string{"agent": strings.Replace(birth, "}", `,"override":"Open","overrideSince":"2026-03-01T02:50:00Z"}`, 1)}
	override := func(n *corev1.Node) {
		n.Annotations[v1alpha1.OverrideAnnotationPrefix+"agent"] = gate.Override{State: v1alpha1.StateOpen, Until: now, Reason: "ticket 7", UID: "uid"}.String()
	}
	noExecute := strings.Replace(byLabel("agent", ""), "NoSchedule", "NoExecute", 1)
	selective := byLabel("agent", "nodeSelector: {matchLabels: {pool: other}}")
	outOfService := strings.Replace(manual, "example.com/a, effect: NoSchedule", "node.kubernetes.io/out-of-service, effect: NoExecute", 1)
	away := Controller{Running: answerNo, Message: "no controller runs: the last one ended in order, 5m ago"}
	for _, c := range []struct {
		name, state string
		gates       []string
		node        *corev1.Node
		leader      Controller
		// bare asks without a duration, and refused is why nothing can be done.
		bare    bool
		refused string
	}{
		{name: "open-closed", state: v1alpha1.StateOpen, gates: []string{byLabel("agent", "")}, node: steered(closed)},
		{name: "open-open", state: v1alpha1.StateOpen, gates: []string{byLabel("agent", "")}, node: steered(opened)},
		{name: "open-outside", state: v1alpha1.StateOpen, gates: []string{byLabel("agent", "")}, node: steered(nil)},
		{name: "open-paused", state: v1alpha1.StateOpen, gates: []string{byLabel("agent", "mode: Paused")}, node: steered(closed)},
		{name: "close-again", state: v1alpha1.StateClosed, gates: []string{byLabel("agent", "recloseTaint: {key: example.com/again, effect: NoExecute}")}, node: steered(opened)},
		{name: "close-closed", state: v1alpha1.StateClosed, gates: []string{byLabel("agent", "")}, node: steered(closed)},
		{name: "open-shared", state: v1alpha1.StateOpen, gates: []string{byLabel("agent", ""), byLabel("other", "")}, node: steered(map[string]string{"agent": birth, "other": birth})},
		{name: "open-without-controller", state: v1alpha1.StateOpen, gates: []string{byLabel("agent", "")}, node: steered(closed), leader: away},
		{name: "open-manual-for-a-time", state: v1alpha1.StateOpen, gates: []string{manual}, node: steered(closed)},
		{name: "open-files", state: v1alpha1.StateOpen, node: steered(map[string]string{"agent": strings.ReplaceAll(birth, "crd", "files")})},
		{name: "close-open", state: v1alpha1.StateClosed, gates: []string{byLabel("agent", "")}, node: steered(opened)},
		{name: "close-outside", state: v1alpha1.StateClosed, gates: []string{byLabel("agent", "")}, node: steered(nil)},
		{name: "close-noexecute", state: v1alpha1.StateClosed, gates: []string{noExecute}, node: steered(opened)},
		{name: "close-paused", state: v1alpha1.StateClosed, gates: []string{byLabel("agent", "mode: Paused")}, node: steered(opened)},
		{name: "close-dry-run", state: v1alpha1.StateClosed, gates: []string{byLabel("agent", "mode: DryRun")}, node: steered(nil)},
		{name: "close-not-selected", state: v1alpha1.StateClosed, gates: []string{selective}, node: steered(nil)},
		{name: "close-opted-out", state: v1alpha1.StateClosed, gates: []string{byLabel("agent", "")}, node: steered(nil, optedOut)},
		{name: "close-out-of-service", state: v1alpha1.StateClosed, gates: []string{outOfService}, node: steered(nil)},
		{name: "reset", gates: []string{byLabel("agent", "")}, node: steered(byHand, override)},
		{name: "reset-what-changed-nothing", gates: []string{byLabel("agent", "")}, node: steered(opened, override)},
		{name: "reset-nothing", gates: []string{byLabel("agent", "")}, node: steered(opened)},
		{name: "take-off", state: v1alpha1.StateOpen, bare: true, gates: []string{manual}, node: steered(closed)},
		{name: "take-off-open", state: v1alpha1.StateOpen, bare: true, gates: []string{manual}, node: steered(nil)},
		{name: "take-off-again", state: v1alpha1.StateOpen, bare: true, gates: []string{manual}, node: steered(closed, func(n *corev1.Node) { n.Spec.Taints = nil })},
		{name: "take-off-automatic", state: v1alpha1.StateOpen, bare: true, gates: []string{byLabel("agent", "")}, node: steered(closed),
			refused: "only a gate with 'reopen: Manual' is opened for good"},
		{name: "take-off-shared", state: v1alpha1.StateOpen, bare: true, gates: []string{manual, byLabel("other", "")}, node: steered(map[string]string{"agent": birth, "other": birth}),
			refused: "gate other is closed too, with the same taint"},
		{name: "take-off-paused", state: v1alpha1.StateOpen, bare: true, gates: []string{manual + "\n  mode: Paused"}, node: steered(closed),
			refused: "the gate would put its taint back: it is paused"},
		{name: "take-off-overridden", state: v1alpha1.StateOpen, bare: true, gates: []string{manual}, node: steered(byHand), refused: "'kubectl gate reset' comes first"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &steering{state: c.state, gate: "agent", reason: "ticket 4711"}
			if !c.bare {
				f.last = span(time.Hour)
			}
			s := &steerer{steering: f, sight: compileBlind(declare(t, c.gates...)), leader: c.leader}
			n, _, err := s.plan(c.node)
			if c.refused != "" || err != nil {
				if err == nil || c.refused == "" || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("it is refused with %v, want %q", err, c.refused)
				}
				return
			}
			// The time of the test is another each time.
			if raw := at(n.Until); !n.Until.IsZero() {
				n.Now = strings.ReplaceAll(n.Now, raw, at(now))
				n.Until = now
			}
			r := &SteerResult{Nodes: []SteeredNode{n}}
			raw, err := json.MarshalIndent(r, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			warned := ""
			for _, w := range n.Warnings {
				warned += "warning: " + w + "\n"
			}
			golden(t, "steer/"+c.name+".txt", r.text("")+warned)
			golden(t, "steer/"+c.name+".json", string(raw)+"\n")
		})
	}
}

// What cannot be meant is refused before anybody is asked: there is no cluster here.
func TestSteerRefusesBadInput(t *testing.T) {
	long := strings.Repeat("x", 257)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"open", "n1", "--for=1h", "--reason=x"}, "say which gate, by --gate"},
		{[]string{"open", "--gate=g", "--for=1h", "--reason=x"}, "say which nodes: by name, or by -l"},
		{[]string{"open", "n1", "-l", "a=b", "--gate=g", "--for=1h", "--reason=x"}, "say which nodes: by name, or by -l"},
		{[]string{"open", "-l", "a in", "--gate=g", "--for=1h", "--reason=x"}, "is no label selector"},
		{[]string{"open", "n1", "--gate=g", "--for=60", "--reason=x"}, "it has no unit: write 60s, 60m or 60h"},
		{[]string{"open", "n1", "--gate=g", "--for=1d", "--reason=x"}, "it is no duration: write one such as 45m or 2h"},
		{[]string{"open", "n1", "--gate=g", "--for=-1h", "--reason=x"}, "it is less than a second"},
		{[]string{"open", "n1", "--gate=g", "--for=169h", "--reason=x"}, "it is more than 7 days (168h)"},
		{[]string{"open", "n1", "--gate=g", "--for=1h"}, "say why, by --reason"},
		{[]string{"open", "n1", "--gate=g", "--reason=x"}, "say for how long, by --for"},
		{[]string{"close", "n1", "--gate=g"}, "say for how long, by --for"},
		{[]string{"close", "n1", "--gate=g", "--for=1h", "--reason=" + long}, "the reason has 257 characters; give one of 1 to 256"},
		{[]string{"close", "n1", "--gate=g", "--for=1h", "--reason=x", "--dry-run=maybe"}, "there is no --dry-run=maybe"},
		{[]string{"reset", "n1", "--gate=g", "-o", "wide"}, `there is no output format "wide": choose json, yaml or name`},
		{[]string{"reset", "n1", "--gate=g", "--for=1h"}, "unknown flag: --for"},
		{[]string{"status", "-o", "xml"}, `there is no output format "xml": choose json, yaml, wide or name`},
		{[]string{"wait"}, "say which nodes: by name, by -l, or --all"},
		{[]string{"wait", "n1", "--all"}, "say which nodes: by name, by -l, or --all"},
		{[]string{"wait", "n1", "--for=shut"}, "there is no --for=shut: choose open or closed"},
		{[]string{"wait", "n1", "--timeout=60"}, "missing unit"},
		{[]string{"opne", "n1"}, `unknown command "opne"`},
		{[]string{"convert", "tainter", "/nowhere"}, "reading the configuration"},
		{[]string{"convert", "tainted"}, `cannot convert from "tainted": choose one of istio, nidhogg, node-readiness-controller, nodetaintshandler, tainter`},
		{[]string{"status"}, "error:"},
		{[]string{"status", "--kubeconfig=/nowhere"}, "/nowhere"},
		{[]string{"status", "--server=https://127.0.0.1:1"}, "the API server does not answer"},
		{[]string{"wait", "--all", "--server=https://127.0.0.1:1"}, "the API server does not answer"},
		{[]string{"reset", "n1", "--gate=g", "--server=https://127.0.0.1:1"}, "the API server does not answer"},
	} {
		t.Run(strings.Join(c.args, " ")[:min(40, len(strings.Join(c.args, " ")))], func(t *testing.T) {
			status, out, err := run(t, c.args...)
			if status != exitError || out != "" || strings.Count(err, "\n") != 1 || !strings.Contains(err, c.says) {
				t.Errorf("it ended with %d, and says\n%s%s", status, out, err)
			}
		})
	}
}
