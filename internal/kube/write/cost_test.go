// SPDX-License-Identifier: Apache-2.0

package write

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

// transition returns a node with gates, and the decision to open or close them.
func transition(gates int, before, after string) (*gate.Node, *gate.Decision) {
	n := &gate.Node{Name: "a", UID: "0d0a7d2c-6f0f-4b7e-a1d6-1f3a7a1f9a11", BootID: "4c0e7d2c-6f0f-4b7e-a1d6-1f3a7a1f9a12"}
	n.Taints = []corev1.Taint{kubetest.Taint("example.com/foreign", "yes", corev1.TaintEffectNoSchedule)}
	d := &gate.Decision{Taints: n.Taints, Records: map[string]string{}, Changes: true}
	if before != "" {
		n.HasAnnotations, n.Records = true, map[string]string{}
	}
	for i := range gates {
		name := fmt.Sprintf("gate-%02d", i)
		own := v1alpha1.Taint{Key: name + ".example/not-ready", Effect: corev1.TaintEffectNoSchedule}
		t := kubetest.Taint(own.Key, "", own.Effect)
		record := gate.Record{Reason: v1alpha1.ReasonSignalsHold, Boot: n.BootID, Source: v1alpha1.SourceCRD, Since: time.Unix(1700000000, 0)}
		record.Taint = gate.TaintText(own)
		if before != "" {
			record.State = before
			n.Records[name] = record.String()
		}
		record.State = after
		d.Records[name] = record.String()
		if after == v1alpha1.StateOpen {
			n.Taints = append(n.Taints, t)
		} else {
			d.Taints = append(d.Taints[:len(d.Taints):len(d.Taints)], t)
		}
		d.Verdicts = append(d.Verdicts, gate.Verdict{Gate: name, Before: before, After: after})
	}
	return n, d
}

// BenchmarkPatch measures the cost of composing a patch.
func BenchmarkPatch(b *testing.B) {
	for name, c := range map[string]struct {
		gates         int
		before, after string
	}{
		"open":           {1, v1alpha1.StateClosed, v1alpha1.StateOpen},
		"close":          {1, v1alpha1.StateOpen, v1alpha1.StateClosed},
		"birth":          {1, "", v1alpha1.StateClosed},
		"open/gates=20":  {20, v1alpha1.StateClosed, v1alpha1.StateOpen},
		"birth/gates=20": {20, "", v1alpha1.StateClosed},
	} {
		n, d := transition(c.gates, c.before, c.after)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if patch, err := Patch(n, d); err != nil || len(patch) == 0 {
					b.Fatalf("no patch: %v", err)
				}
			}
		})
	}
}

// The patches of BenchmarkPatch contain the expected operations.
func TestTransition(t *testing.T) {
	for _, after := range []string{v1alpha1.StateOpen, v1alpha1.StateClosed} {
		n, d := transition(2, map[string]string{v1alpha1.StateOpen: v1alpha1.StateClosed}[after], after)
		patch, err := Patch(n, d)
		operation := map[string]string{v1alpha1.StateOpen: `"remove"`, v1alpha1.StateClosed: `"/spec/taints/-"`}[after]
		if got := strings.Count(string(patch), operation); err != nil || got != 2 {
			t.Errorf("to %s: %d operations %s, want 2: %v\n%s", after, got, operation, err, patch)
		}
	}
}
