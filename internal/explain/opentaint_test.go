// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// denied is the status of a gate whose writes are denied.
const denied = "\nstatus: {conditions: [{type: Ready, status: 'False', reason: WriteDenied, message: the annotations of n1 are too long, observedGeneration: 0}]}"

// A node whose annotations are full is closed without a record. While the taint cannot be removed for the
// same reason, it holds the node, although by its record, or without one, the gate is open.
func TestTaintOfAnOpenGateHolds(t *testing.T) {
	const follows = "metadata: {name: agent}\nspec:\n  taint: {key: example.com/a, effect: NoSchedule}\n  closeWhen: [{name: bad, label: {key: bad}}]"
	for name, c := range map[string]struct {
		gates   string
		records map[string]string
	}{
		"openWhen":                  {clitest.ByLabel("agent", "") + denied, map[string]string{"agent": clitest.Opened}},
		"closeWhen, no record":      {follows + denied, nil},
		"closeWhen, its own record": {follows + denied, map[string]string{"agent": clitest.Opened}},
	} {
		t.Run(name, func(t *testing.T) {
			f := factsOf(t, c.gates, &gate.Node{Records: c.records, Labels: map[string]string{"fit": ""}})
			e, g, text := explained(f)
			if !e.Held || g.State != v1alpha1.StateClosed || g.Becomes != v1alpha1.StateOpen {
				t.Errorf("held %t, the gate is %s and becomes %q", e.Held, g.State, g.Becomes)
			}
			for _, want := range []string{"held by 1 of 1 gates", "agent: closed, about to open", "the annotations of n1 are too long (WriteDenied)", "fix that cause"} {
				if !strings.Contains(text, want) {
					t.Errorf("the text lacks %q:\n%s", want, text)
				}
			}
		})
	}
}

// An open gate does not hold a node for the taint of another gate, even if the node is about to be written.
func TestTaintOfAnotherGate(t *testing.T) {
	f := factsOf(t, clitest.ByLabel("agent", ""), &gate.Node{
		Records: map[string]string{"agent": clitest.Opened, "other": clitest.Birth, "opens": strings.ReplaceAll(clitest.Birth, "example.com/a", "example.com/b")},
		Labels:  map[string]string{"fit": ""},
	})
	f.Node.Node.Taints = append(f.Node.Node.Taints, corev1.Taint{Key: "example.com/b", Effect: corev1.TaintEffectNoSchedule})
	f.Gates = gateset.Reported(clitest.Declare(t, clitest.ByLabel("agent", ""),
		strings.ReplaceAll(clitest.ByLabel("other", ""), "fit", "never"), strings.ReplaceAll(clitest.ByLabel("opens", ""), "example.com/a", "example.com/b")))
	_, _, text := explained(f)
	if !f.Decision.Changes || !strings.Contains(text, "agent: open for") {
		t.Errorf("changes %t:\n%s", f.Decision.Changes, text)
	}
}
