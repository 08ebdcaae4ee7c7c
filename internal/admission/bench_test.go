// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// BenchmarkBirth measures what the policy adds to the creation of a Node, by the
// number of gates and of those that select it.
func BenchmarkBirth(b *testing.B) {
	in := install(b)
	for _, gates := range []struct{ selecting, others int }{{0, 0}, {1, 0}, {2, 0}, {10, 0}, {1, 9}, {1, 49}, {20, 180}, {200, 0}, {256, 0}} {
		b.Run(fmt.Sprintf("selecting=%d/others=%d", gates.selecting, gates.others), func(b *testing.B) {
			mine := map[string]string{"bench": fmt.Sprintf("%d-%d", gates.selecting, gates.others)}
			var all []*v1alpha1.NodeGate
			for i := range gates.selecting + gates.others {
				selector := metav1.LabelSelector{MatchLabels: mine}
				if i >= gates.selecting {
					selector.MatchLabels = map[string]string{"bench": "another"}
				}
				all = append(all, newGate(fmt.Sprintf("bench-%d", i), "a", selector))
			}
			in.close(b, all...)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bench", Labels: mine}}
			for b.Loop() {
				if _, err := in.admin.CoreV1().Nodes().Create(b.Context(), node, metav1.CreateOptions{DryRun: dryRun}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
