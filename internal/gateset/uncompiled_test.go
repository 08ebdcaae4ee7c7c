// SPDX-License-Identifier: Apache-2.0

package gateset_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// The deadline of a gate opens nodes although its signals cannot be compiled, but not if it is unknown
// which nodes the gate selects. Accepted promises no more than that.
func TestDeadlineOfUncompiledGate(t *testing.T) {
	for what, c := range map[string]struct {
		selector, signal string
		opens            bool
	}{
		"the signals":  {"pool: a", `expression: "1 +"`, true},
		"the selector": {`"bad key!": a`, "label: {key: a}", false},
	} {
		ng := &clitest.Declare(t, "metadata: {name: g}\nspec: {nodeSelector: {matchLabels: {"+c.selector+"}}, taint: {key: example.com/a, effect: NoSchedule},\n"+
			"  openWhen: [{name: s, "+c.signal+"}], deadline: {readySeconds: 60, action: Open}}")[0]
		set := gateset.New(&gateset.Set{}, gateset.Snapshot{Source: v1alpha1.SourceCRD, Complete: true, Gates: []*v1alpha1.NodeGate{ng}}, gate.KeyPolicy{})
		now := clitest.Now
		taint := v1alpha1.Taint{Key: "example.com/a", Effect: corev1.TaintEffectNoSchedule}
		record := gate.Record{State: v1alpha1.StateClosed, Since: now.Add(-time.Hour), Reason: v1alpha1.ReasonBirth, Taint: gate.TaintText(taint), Source: v1alpha1.SourceCRD}
		d := set.Decide(&gate.Facts{CompleteSources: set.Sources, Node: gate.Node{
			Name: "n", Created: now.Add(-time.Hour), Labels: labels.Set{"pool": "a"}, Taints: []corev1.Taint{taint.Core()},
			Records: map[string]string{"g": record.String()},
		}}, now)
		if opened := d.Verdicts[0].Opened(); opened != c.opens {
			t.Errorf("%s cannot be compiled: opened %v, want %v", what, opened, c.opens)
		}
		if message := set.Acceptance["g"].Message; strings.Contains(message, "unless deadline.action is Open") != c.opens {
			t.Errorf("%s cannot be compiled: %s", what, message)
		}
	}
}
