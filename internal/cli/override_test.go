// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/printer"
	"github.com/nodegate/nodegate/internal/status"
)

// steered returns a node that is one hour old, with records by gate, and with the taint
// of gate agent if a record is closed.
func steered(records map[string]string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n1", UID: "uid", CreationTimestamp: metav1.NewTime(clitest.Now.Add(-time.Hour)), Labels: map[string]string{}, Annotations: map[string]string{},
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

// testdata contains the expected result of each case, as text and as JSON.
func TestForesee(t *testing.T) {
	closed, opened := map[string]string{"agent": clitest.Birth}, map[string]string{"agent": clitest.Opened}
	byHand := map[string]string{"agent": strings.Replace(clitest.Birth, "}", `,"override":"Open","overrideSince":"2026-03-01T02:50:00Z"}`, 1)}
	override := func(n *corev1.Node) {
		n.Annotations[v1alpha1.OverrideAnnotationPrefix+"agent"] = gate.Override{State: v1alpha1.StateOpen, Until: clitest.Now, Reason: "ticket 7", UID: "uid"}.String()
	}
	keptClosed := strings.Replace(clitest.Opened, "}", `,"override":"Closed","overrideSince":"2026-03-01T02:50:00Z"}`, 1)
	maskedClosed := strings.Replace(keptClosed, "}", `,"taint":"example.com/a:NoSchedule"}`, 1)
	overrides := func(name, state string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Annotations[v1alpha1.OverrideAnnotationPrefix+name] = gate.Override{State: state, Until: time.Now().Add(time.Hour), Reason: "ticket 7", UID: "uid"}.String()
		}
	}
	noExecute := strings.Replace(clitest.ByLabel("agent", ""), "NoSchedule", "NoExecute", 1)
	selective := clitest.ByLabel("agent", "nodeSelector: {matchLabels: {pool: other}}")
	outOfService := strings.Replace(manual, "example.com/a, effect: NoSchedule", "node.kubernetes.io/out-of-service, effect: NoExecute", 1)
	away := status.Controller{Running: status.No, Message: "no controller is running: the last one released its lease 5m ago"}
	unknown := status.Controller{Running: status.Unknown, Message: "it is unknown whether a controller is running: there is no Lease"}
	for _, c := range []struct {
		name, state string
		gates       []string
		node        *corev1.Node
		leader      status.Controller
		// bare cases have no duration, and rejected is the expected error.
		bare     bool
		rejected string
	}{
		{name: "open-closed", state: v1alpha1.StateOpen, gates: []string{clitest.ByLabel("agent", "")}, node: steered(closed)},
		{name: "open-open", state: v1alpha1.StateOpen, gates: []string{clitest.ByLabel("agent", "")}, node: steered(opened)},
		{name: "open-paused-overridden", state: v1alpha1.StateOpen, gates: []string{clitest.ByLabel("agent", "mode: Paused")}, node: steered(byHand, overrides("agent", v1alpha1.StateOpen))},
		{name: "open-outside", state: v1alpha1.StateOpen, gates: []string{clitest.ByLabel("agent", "")}, node: steered(nil)},
		{name: "open-paused", state: v1alpha1.StateOpen, gates: []string{clitest.ByLabel("agent", "mode: Paused")}, node: steered(closed)},
		{name: "close-again", state: v1alpha1.StateClosed, gates: []string{clitest.ByLabel("agent", "recloseTaint: {key: example.com/again, effect: NoExecute}")}, node: steered(opened)},
		{name: "close-closed", state: v1alpha1.StateClosed, gates: []string{clitest.ByLabel("agent", "")}, node: steered(closed)},
		{name: "open-shared", state: v1alpha1.StateOpen, gates: []string{clitest.ByLabel("agent", ""), clitest.ByLabel("other", "")}, node: steered(map[string]string{"agent": clitest.Birth, "other": clitest.Birth})},
		{name: "open-shared-overridden", state: v1alpha1.StateOpen, gates: []string{clitest.ByLabel("agent", ""), clitest.ByLabel("other", "")},
			node: steered(map[string]string{"agent": clitest.Birth, "other": byHand["agent"]}, overrides("other", v1alpha1.StateOpen))},
		{name: "open-shared-kept-closed", state: v1alpha1.StateOpen, gates: []string{clitest.ByLabel("agent", ""), clitest.ByLabel("other", "")},
			node: steered(map[string]string{"agent": clitest.Birth, "other": keptClosed}, overrides("other", v1alpha1.StateClosed))},
		{name: "open-without-controller", state: v1alpha1.StateOpen, gates: []string{clitest.ByLabel("agent", "")}, node: steered(closed), leader: away},
		{name: "open-manual-for-a-time", state: v1alpha1.StateOpen, gates: []string{manual}, node: steered(closed)},
		{name: "open-files", state: v1alpha1.StateOpen, node: steered(map[string]string{"agent": strings.ReplaceAll(clitest.Birth, "crd", "files")})},
		{name: "close-open", state: v1alpha1.StateClosed, gates: []string{clitest.ByLabel("agent", "")}, node: steered(opened)},
		{name: "close-outside", state: v1alpha1.StateClosed, gates: []string{clitest.ByLabel("agent", "")}, node: steered(nil)},
		{name: "close-noexecute", state: v1alpha1.StateClosed, gates: []string{noExecute}, node: steered(opened)},
		{name: "close-paused", state: v1alpha1.StateClosed, gates: []string{clitest.ByLabel("agent", "mode: Paused")}, node: steered(opened)},
		{name: "close-paused-overridden", state: v1alpha1.StateClosed, gates: []string{clitest.ByLabel("agent", "mode: Paused")},
			node: steered(map[string]string{"agent": maskedClosed}, overrides("agent", v1alpha1.StateClosed))},
		{name: "close-dry-run", state: v1alpha1.StateClosed, gates: []string{clitest.ByLabel("agent", "mode: DryRun")}, node: steered(nil)},
		{name: "close-not-selected", state: v1alpha1.StateClosed, gates: []string{selective}, node: steered(nil)},
		{name: "close-opted-out", state: v1alpha1.StateClosed, gates: []string{clitest.ByLabel("agent", "")}, node: steered(nil, optedOut)},
		{name: "close-out-of-service", state: v1alpha1.StateClosed, gates: []string{outOfService}, node: steered(nil)},
		{name: "reset", gates: []string{clitest.ByLabel("agent", "")}, node: steered(byHand, override)},
		{name: "reset-paused", gates: []string{clitest.ByLabel("agent", "mode: Paused")}, node: steered(byHand, override)},
		{name: "reset-close-when", gates: []string{strings.Replace(manual, "reopen: Manual", "mode: Enforce", 1)}, node: steered(byHand, override)},
		{name: "reset-manual", gates: []string{manual}, node: steered(byHand, override)},
		{name: "reset-noexecute", gates: []string{noExecute}, node: steered(map[string]string{"agent": strings.Replace(byHand["agent"], "NoSchedule", "NoExecute", 1)}, override)},
		{name: "reset-closed", gates: []string{clitest.ByLabel("agent", "")}, node: steered(map[string]string{"agent": maskedClosed}, override)},
		{name: "reset-not-selected", gates: []string{selective}, node: steered(byHand, override)},
		{name: "reset-files", node: steered(map[string]string{"agent": strings.ReplaceAll(byHand["agent"], "crd", "files")}, override)},
		{name: "reset-without-effect", gates: []string{clitest.ByLabel("agent", "")}, node: steered(opened, override)},
		{name: "reset-nothing", gates: []string{clitest.ByLabel("agent", "")}, node: steered(opened)},
		{name: "remove-taint", state: v1alpha1.StateOpen, bare: true, gates: []string{manual}, node: steered(closed)},
		{name: "remove-taint-without-lease", state: v1alpha1.StateOpen, bare: true, gates: []string{manual}, node: steered(closed), leader: unknown},
		{name: "remove-taint-open", state: v1alpha1.StateOpen, bare: true, gates: []string{manual}, node: steered(nil)},
		{name: "remove-taint-again", state: v1alpha1.StateOpen, bare: true, gates: []string{manual}, node: steered(closed, func(n *corev1.Node) { n.Spec.Taints = nil })},
		{name: "remove-taint-changed", state: v1alpha1.StateOpen, bare: true, gates: []string{manual}, node: steered(closed, func(n *corev1.Node) { n.Spec.Taints[1].Value = "foreign" })},
		{name: "remove-taint-automatic", state: v1alpha1.StateOpen, bare: true, gates: []string{clitest.ByLabel("agent", "")}, node: steered(closed),
			rejected: "only a gate with 'reopen: Manual' can be opened permanently"},
		{name: "remove-taint-shared", state: v1alpha1.StateOpen, bare: true, gates: []string{manual, clitest.ByLabel("other", "")}, node: steered(map[string]string{"agent": clitest.Birth, "other": clitest.Birth}),
			rejected: "gate other is also closed, with the same taint"},
		{name: "remove-taint-of-two", state: v1alpha1.StateOpen, bare: true, gates: []string{manual, strings.Replace(manual, "name: agent", "name: other", 1)},
			node: steered(map[string]string{"agent": clitest.Birth, "other": clitest.Birth})},
		{name: "remove-taint-shared-value", state: v1alpha1.StateOpen, bare: true, gates: []string{manual, clitest.ByLabel("other", "")},
			node:     steered(map[string]string{"agent": clitest.Birth, "other": strings.Replace(clitest.Birth, "example.com/a:", "example.com/a=former:", 1)}),
			rejected: "gate other is also closed, with the same taint"},
		{name: "remove-taint-paused", state: v1alpha1.StateOpen, bare: true, gates: []string{manual + "\n  mode: Paused"}, node: steered(closed),
			rejected: "the gate would add its taint again: it is paused"},
		{name: "remove-taint-overridden", state: v1alpha1.StateOpen, bare: true, gates: []string{manual}, node: steered(byHand), rejected: "run 'kubectl gate reset' first"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &overrideFlags{state: c.state, gate: "agent", reason: "ticket 4711"}
			if !c.bare {
				f.duration = overrideDuration(time.Hour)
			}
			s := &overrider{overrideFlags: f, gates: gateset.Reported(clitest.Declare(t, c.gates...)).WithoutSignals(), leader: c.leader}
			n, _, err := s.plan(c.node, time.Now())
			if c.rejected != "" || err != nil {
				if err == nil || c.rejected == "" || !strings.Contains(err.Error(), c.rejected) {
					t.Errorf("error %v, want %q", err, c.rejected)
				}
				return
			}
			// The end of the override depends on the time of the test.
			if raw := printer.Time(n.Until); !n.Until.IsZero() {
				n.Now = strings.ReplaceAll(n.Now, raw, printer.Time(clitest.Now))
				n.Until = clitest.Now
			}
			r := &OverrideResult{Nodes: []OverriddenNode{n}}
			raw, err := json.MarshalIndent(r, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			warned := ""
			for _, w := range n.Warnings {
				warned += "warning: " + w + "\n"
			}
			clitest.Golden(t, "steer/"+c.name+".txt", r.text("")+warned)
			clitest.Golden(t, "steer/"+c.name+".json", string(raw)+"\n")
		})
	}
}

// Invalid arguments are rejected before any request is sent: there is no cluster.
func TestSteerRefusesBadInput(t *testing.T) {
	long := strings.Repeat("x", 257)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"open", "n1", "--for=1h", "--reason=x"}, "--gate is required"},
		{[]string{"open", "--gate=g", "--for=1h", "--reason=x"}, "specify nodes either by name or with -l"},
		{[]string{"open", "n1", "-l", "a=b", "--gate=g", "--for=1h", "--reason=x"}, "specify nodes either by name or with -l"},
		{[]string{"open", "-l", "a in", "--gate=g", "--for=1h", "--reason=x"}, "is not a valid label selector"},
		{[]string{"open", "n1", "--gate=g", "--for=60", "--reason=x"}, "missing unit: use 60s, 60m or 60h"},
		{[]string{"open", "n1", "--gate=g", "--for=1d", "--reason=x"}, "not a duration: use a value such as 45m or 2h"},
		{[]string{"open", "n1", "--gate=g", "--for=-1h", "--reason=x"}, "must be at least 1s"},
		{[]string{"open", "n1", "--gate=g", "--for=169h", "--reason=x"}, "must be at most 7 days (168h)"},
		{[]string{"open", "n1", "--gate=g", "--for=1h"}, "--reason is required"},
		{[]string{"open", "n1", "--gate=g", "--reason=x"}, "--for is required"},
		{[]string{"close", "n1", "--gate=g"}, "--for is required"},
		{[]string{"close", "n1", "--gate=g", "--for=1h", "--reason=" + long}, "the reason has 257 characters"},
		{[]string{"close", "n1", "--gate=g", "--for=1h", "--reason=x", "--dry-run=maybe"}, "invalid --dry-run=maybe"},
		{[]string{"reset", "n1", "--gate=g", "-o", "wide"}, `unknown output format "wide": use json, yaml or name`},
		{[]string{"reset", "n1", "--gate=g", "--for=1h"}, "unknown flag: --for"},
		{[]string{"status", "-o", "xml"}, `unknown output format "xml": use json, yaml, wide or name`},
		{[]string{"wait"}, "specify nodes either by name, with -l or with --all"},
		{[]string{"wait", "n1", "--all"}, "specify nodes either by name, with -l or with --all"},
		{[]string{"wait", "n1", "--for=shut"}, "invalid --for=shut: use open or closed"},
		{[]string{"wait", "n1", "--timeout=60"}, "missing unit"},
		{[]string{"opne", "n1"}, `unknown command "opne"`},
		{[]string{"convert", "tainter", "/nowhere"}, "reading the configuration"},
		{[]string{"convert", "tainted"}, `unknown tool "tainted": use one of istio, nidhogg, node-readiness-controller, nodetaintshandler, tainter`},
		{[]string{"status"}, "error:"},
		{[]string{"status", "--kubeconfig=/nowhere"}, "/nowhere"},
		{[]string{"status", "--server=https://127.0.0.1:1"}, "cannot reach the API server"},
		{[]string{"wait", "--all", "--server=https://127.0.0.1:1"}, "cannot reach the API server"},
		{[]string{"reset", "n1", "--gate=g", "--server=https://127.0.0.1:1"}, "cannot reach the API server"},
	} {
		t.Run(strings.Join(c.args, " ")[:min(40, len(strings.Join(c.args, " ")))], func(t *testing.T) {
			status, out, err := run(t, c.args...)
			if status != exitError || out != "" || strings.Count(err, "\n") != 1 || !strings.Contains(err, c.want) {
				t.Errorf("exit status %d:\n%s%s", status, out, err)
			}
		})
	}
}

// fileGate is the cluster of smallCluster with a node n2 on which gate f from a file is open.
func fileGate(served bool) map[string]string {
	objects := smallCluster()
	node := strings.NewReplacer("n1", "n2", "gate.nodegate.dev/agent", "gate.nodegate.dev/f", `"crd"`, `"files"`).Replace(heldNode)
	objects[nodesPath], objects[nodesPath+"/n2"] = list("v1", "NodeList", heldNode, node), node
	if !served {
		delete(objects, gatesPath)
	}
	return objects
}

// A gate from a file can be overridden on a node that is not a member of it. That it exists
// follows from the records on other nodes.
func TestOverrideOfAFileGate(t *testing.T) {
	for _, served := range []bool{true, false} {
		a := newAPIServer(t, fileGate(served))
		code, out, err := a.run(t, "close", "n1", "--gate=f", "--for=1h", "--reason=x")
		if code != exitYes || !strings.Contains(err, "is declared in a file of the controller") || len(a.written()) != 1 {
			t.Errorf("exit status %d:\n%s%s", code, out, err)
		}
		if code, out, err = a.run(t, "close", "n1", "--gate=ff", "--for=1h", "--reason=x"); code != exitError || !strings.Contains(err, `gate "ff" not found; did you mean f?`) {
			t.Errorf("an unknown gate: exit status %d:\n%s%s", code, out, err)
		}
		a.forbid(nodesPath)
		if code, out, err = a.run(t, "close", "n1", "--gate=f", "--for=1h", "--reason=x"); code != exitError || !strings.Contains(err, "from a file is unknown without permission to list nodes") {
			t.Errorf("without permission to list nodes: exit status %d:\n%s%s", code, out, err)
		}
		a.refuse = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == nodesPath {
				refusal(w, http.StatusInternalServerError, "InternalError", "this failed")
			}
			return r.URL.Path == nodesPath
		}
		if code, out, err = a.run(t, "close", "n1", "--gate=f", "--for=1h", "--reason=x"); code != exitError || !strings.Contains(err, "this failed") {
			t.Errorf("the list of nodes fails: exit status %d:\n%s%s", code, out, err)
		}
	}
}
