// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/lint"
)

// The exit status depends on the findings and on what could not be read.
func TestLintExitStatus(t *testing.T) {
	note, warning := lint.Finding{Severity: lint.Note}, lint.Finding{Severity: lint.Warning}
	gap := []lint.Gap{{What: "nodes"}}
	for name, c := range map[string]struct {
		report lint.Report
		want   error
	}{
		"clean":             {lint.Report{}, nil},
		"notes":             {lint.Report{Findings: []lint.Finding{note}}, nil},
		"warnings":          {lint.Report{Findings: []lint.Finding{note, warning}}, errNo},
		"gaps":              {lint.Report{Gaps: gap}, errNotAllRead},
		"findings and gaps": {lint.Report{Findings: []lint.Finding{warning}, Gaps: gap}, errNo},
	} {
		if err := printReport(t.Context(), io.Discard, &output{}, &c.report); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
	}
}

// Cilium's configuration is read from the namespace of its operator.
func TestLintReadsCiliumConfig(t *testing.T) {
	const path = "/api/v1/namespaces/cilium/configmaps/cilium-config"
	objects := smallCluster()
	objects[gatesPath] = strings.ReplaceAll(objects[gatesPath], "example.com/a", "node.cilium.io/agent-not-ready")
	objects["/apis/apps/v1/deployments"] = list("apps/v1", "DeploymentList", "metadata: {namespace: cilium, name: cilium-operator}")
	objects[path] = "{apiVersion: v1, kind: ConfigMap, data: {remove-cilium-node-taints: 'false', set-cilium-node-taints: 'false'}}"
	a := newAPIServer(t, objects)
	a.forbid("")
	finds := func(what string, want bool) {
		t.Helper()
		if _, out, _ := a.run(t, "lint"); strings.Contains(out, what) != want {
			t.Errorf("output contains %q: %t\n%s", what, !want, out)
		}
	}
	finds("other-writer", false)
	a.forbid(path)
	finds("Not checked: configmaps cilium-config: ", true)
	finds("warning: other-writer", false)
	a.forbid("")
	objects[path] = strings.ReplaceAll(objects[path], "'false'", "'true'")
	finds("warning: other-writer", true)
}

// A gate that holds pods is reported if the node agent is known not to be installed.
func TestLintOfHoldWithoutAgent(t *testing.T) {
	const path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/nodegate-agent"
	const finding = "warning: hold-without-agent: gate agent: the gate sets bypassedPods to Hold, but the node agent is not installed"
	objects := smallCluster()
	objects[gatesPath] = list("nodegate.dev/v1alpha1", "NodeGateList", agentGate+"  bypassedPods: Hold\n")
	a := newAPIServer(t, objects)
	a.forbid("")
	if _, out, _ := a.run(t, "lint"); !strings.Contains(out, finding) {
		t.Errorf("without the agent:\n%s", out)
	}
	a.forbid(path)
	if _, out, _ := a.run(t, "lint"); strings.Contains(out, finding) || !strings.Contains(out, "Not checked: clusterroles: ") {
		t.Errorf("without the permission:\n%s", out)
	}
	a.forbid("")
	objects[path] = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: nodegate-agent}}"
	if _, out, _ := a.run(t, "lint"); strings.Contains(out, finding) {
		t.Errorf("with the agent:\n%s", out)
	}
}

// Gates from files replace declared gates of the same name, and only they are checked. Those
// that do not exist yet are younger than all declared gates.
func TestLintOfFiles(t *testing.T) {
	w := &lint.World{Gates: clitest.Decode(t, clitest.Manifest("one", ""), clitest.Manifest("two", ""))}
	status := v1alpha1.NodeGateStatus{ObservedGeneration: 7}
	w.Gates[1].Status = status
	applied := clitest.Decode(t, clitest.Manifest("two", "mode: Paused"), strings.Replace(clitest.Manifest("three", ""), "effect:", "value: other, effect:", 1))
	for i := range applied {
		applied[i].CreationTimestamp = metav1.Time{} // as in a file
	}
	replaceGates(w, applied)
	var names []string
	for _, g := range w.Gates {
		names = append(names, fmt.Sprintf("%s:%s:%d", g.Name, g.Spec.Mode, g.Status.ObservedGeneration))
	}
	if got, want := fmt.Sprint(names, w.Checked), "[one:Enforce:0 two:Paused:7 three:Enforce:0] map[three:true two:true]"; got != want {
		t.Errorf("gates are %s, want %s", got, want)
	}
	for _, f := range lint.Of(w).Findings {
		if refused := f.ID == "not-accepted" && f.Gate == "three"; refused != (f.Severity == lint.Error) {
			t.Errorf("finding %+v", f)
		}
	}
}

// A gate's condition Contended is about the gate in the cluster. It does not count for a gate in
// files that has another taint, nor that gates contradict each other if one of them differs.
func TestLintOfFilesThatEndContention(t *testing.T) {
	for name, c := range map[string]struct {
		reason, applied string
		want            bool
	}{
		"another taint":        {v1alpha1.ReasonContended, strings.Replace(clitest.Manifest("one", ""), "example.com/a", "example.com/b", 1), false},
		"the same taint":       {v1alpha1.ReasonContended, clitest.Manifest("one", "mode: Paused"), true},
		"other signals":        {v1alpha1.ReasonGatesContradict, strings.Replace(clitest.Manifest("one", ""), "key: fit", "key: other", 1), false},
		"other signals of two": {v1alpha1.ReasonGatesContradict, strings.Replace(clitest.Manifest("two", ""), "key: fit", "key: other", 1) + "---\n" + clitest.Manifest("one", ""), false},
		"no difference":        {v1alpha1.ReasonGatesContradict, clitest.Manifest("one", ""), true},
	} {
		w := &lint.World{Gates: clitest.Decode(t, clitest.Manifest("one", ""), clitest.Manifest("two", ""))}
		for i := range w.Gates {
			w.Gates[i].Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionContended, Status: metav1.ConditionTrue, Reason: c.reason}}
		}
		replaceGates(w, clitest.Decode(t, strings.Split(c.applied, "---\n")...))
		got := false
		for _, f := range lint.Of(w).Findings {
			got = got || f.Gate == "one" && (f.ID == "contended" || f.ID == "gates-contradict")
		}
		if got != c.want {
			t.Errorf("%s: found %v, want %v", name, got, c.want)
		}
	}
}

// New gates of one file are of the same age, so the one whose name sorts first is accepted.
func TestLintOfNewGatesThatConflict(t *testing.T) {
	w := &lint.World{}
	replaceGates(w, clitest.Decode(t, strings.Replace(clitest.Manifest("two", ""), "effect:", "value: other, effect:", 1), clitest.Manifest("one", "")))
	for _, g := range w.Gates {
		if created := g.CreationTimestamp; !created.Equal(&w.Gates[0].CreationTimestamp) || created.Nanosecond() != 0 {
			t.Errorf("gate %s is created at %v, want the same full second as gate %s", g.Name, created.Time, w.Gates[0].Name)
		}
	}
	for _, f := range lint.Of(w).Findings {
		if refused := f.ID == "not-accepted" && f.Gate == "two"; refused != (f.Severity == lint.Error) {
			t.Errorf("finding %+v", f)
		}
	}
}
