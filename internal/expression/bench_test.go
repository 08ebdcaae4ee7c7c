// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/internal/gate"
)

// The node has a usual size: 25 labels, 8 conditions, 4 taints.
func BenchmarkHolds(b *testing.B) {
	n := aNode()
	for i := range 23 {
		n.Labels[fmt.Sprintf("example.com/label-%d", i)] = "value"
	}
	n.Conditions = nil
	for i := range 7 {
		n.Conditions = append(n.Conditions, gate.Condition{Type: fmt.Sprintf("Condition%d", i), Status: corev1.ConditionFalse})
	}
	n.Conditions = append(n.Conditions, gate.Condition{Type: "Ready", Status: corev1.ConditionTrue})
	for _, name := range []string{"a label", "a condition", "an annotation", "a resource", "a version", "not its own taint", "all labels"} {
		b.Run(name, func(b *testing.B) {
			e := mustCompile(b, truths[name])
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Holds(n, ownKey); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		mustCompile(b, truths["a condition"])
	}
}
