// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// BenchmarkBirth measures the time that the policy adds to the creation of a Node, by
// the number of gates that select it and of other gates.
func BenchmarkBirth(b *testing.B) {
	in := installBirth(b)
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

// BenchmarkConfinement measures the time that the policy adds to nodegate's patch of a
// Node: the difference between nodegate and an administrator, whom the policy does not
// match. The patch takes the ownership of the taints from one of the other managers.
func BenchmarkConfinement(b *testing.B) {
	in := install(b)
	in.close(b)
	undisturbed(b, in)
	patch := jsonPatch(op("add", "/spec/taints", `[{"key":"test.nodegate.dev/b","effect":"NoSchedule"}]`), op("add", "/metadata/annotations/gate.nodegate.dev~1one", `"{}"`))
	for _, size := range []struct{ managers, labels, annotations int }{{0, 40, 20}, {5, 40, 20}, {9, 200, 200}, {10, 200, 200}} {
		name := fmt.Sprintf("managers=%d/labels=%d/annotations=%d", size.managers, size.labels, size.annotations)
		entries := updaters(size.managers, func(i int) int64 { return int64(1_000_000 + i) })
		for i := range entries {
			fields := `"f:metadata":{"f:labels":{".":{},` + ownedKeys(size.labels) + `},"f:annotations":{".":{},` + ownedKeys(size.annotations) + `}}`
			if i == size.managers-1 {
				fields += `,"f:spec":{"f:taints":{}}`
			}
			setFields(&entries[i], "{"+fields+"}")
		}
		node := create(b, in, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "bench-", Labels: labelled(size.labels), Annotations: labelled(size.annotations),
		}}, entries)
		for _, by := range []struct {
			name   string
			client *kubernetes.Clientset
		}{{"nodegate", in.nodegate}, {"admin", in.admin}} {
			b.Run(name+"/by="+by.name, func(b *testing.B) {
				for b.Loop() {
					if _, err := by.client.CoreV1().Nodes().Patch(b.Context(), node.Name, types.JSONPatchType, patch, ownDryRun); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
